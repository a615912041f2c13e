// Goes through csrc/device/cuda.cpp on the fake driver; tests/jit/test_driver.py compares what is printed.
#include <dlfcn.h>

#include <cstdio>
#include <functional>

#include "api/call/target_choice.hpp"
#include "device/cuda.hpp"
#include "util/require.hpp"

using namespace deep_gemm;

namespace {

template <typename Call>
Call* fake(const char* name) {
    return reinterpret_cast<Call*>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), name));
}

void expect_error(const std::function<void()>& call) {
    try {
        call();
        std::printf("no error\n");
    } catch (const Error& error) {
        std::printf("%s\n", error.what());
    }
}

}  // namespace

int main() {
    announce_targets();
    static uint32_t data_to_flush[16];
    const auto set_current = fake<void(int)>("fake_set_current");
    const auto current = fake<int()>("fake_current");
    const auto fail_launches = fake<void(int)>("fake_fail_launches");
    const auto capture_mode = fake<int()>("fake_capture_mode");

    Device& first = *open_cuda_device(0, {}, 0);
    Device& second = *open_cuda_device(1, {}, 1);
    std::printf("%s %s, %s %s\n", first.facts().name.c_str(), first.facts().target.c_str(), second.facts().name.c_str(),
                second.facts().target.c_str());

    // Loading and launching find their context current, and leave the caller's.
    set_current(1);
    const Kernel* kernel = first.load("image", "some_kernel", 100000);
    std::printf("current %d, capture mode %d\n", current(), capture_mode());
    const uint64_t params[2] = {7, 8};
    const auto stream = reinterpret_cast<void*>(0xabc);
    const auto launch = [&](const LaunchShape& shape) {
        first.launch(*kernel, shape, params, sizeof(params), stream, {});
    };
    launch({.grid = 6, .block = 384, .cluster = 2, .smem_bytes = 99999, .dependent_launch = true});
    std::printf("current %d\n", current());
    launch({.grid = 1, .block = 128});
    // A thread that had no context keeps the one it was given.
    set_current(-1);
    launch({.grid = 1, .block = 128});
    std::printf("current %d\n", current());
    std::printf("clusters %d %d\n", first.max_clusters(*kernel, {.grid = 1, .block = 128}),
                first.max_clusters(*kernel, {.grid = 4, .block = 128, .cluster = 4}));

    expect_error([&] { launch({.grid = 3, .block = 128, .cluster = 2}); });
    expect_error([&] { launch({.grid = 0, .block = 128}); });
    expect_error([&] { launch({.grid = 1, .block = 128, .smem_bytes = 100001}); });
    expect_error([&] { first.launch(*kernel, {.grid = 1, .block = 128}, params, 8, stream, {}); });
    expect_error([&] { second.launch(*kernel, {.grid = 1, .block = 128}, params, 16, stream, {}); });
    expect_error([&] { first.load("image", "another_entry", 0); });
    expect_error([&] { first.load("image", "some_kernel", 1 << 20); });
    expect_error([&] { open_cuda_device(4, {}, 4); });
    fail_launches(700);
    expect_error([&] { launch({.grid = 1, .block = 128}); });
    std::printf("current %d, capture mode %d\n", current(), capture_mode());

    // Timing: two pieces of work, the second of which takes 2, 4, 6, 8 and then 10 ms.
    const auto work = fake<void(float)>("fake_work");
    float milliseconds = 0;
    const std::function<void()> pieces[] = {[&] { work(3); }, [&] { work(milliseconds += 2); }};
    for (const double us :
         first.time_launches(stream, pieces, {.rounds = 5, .flush = data_to_flush, .flush_bytes = 64}))
        std::printf("median %.0f us\n", us);
    for (const int status : {0, 1, 3}) {  // no capture, a capture, a failing call
        fake<void(int)>("fake_capture_status")(status);
        std::printf("capture status %d: %s\n", status, first.is_capturing(stream) ? "capturing" : "free");
    }
    std::printf("current %d, capture mode %d\n", current(), capture_mode());

    // Tensor maps.
    alignas(64) static char data[64];
    TensorMapSpec good;
    good.address = data;
    good.type = TensorMapType::bf16;
    good.sizes[0] = 100, good.sizes[1] = 50, good.strides_bytes[0] = 208, good.box[0] = 64, good.box[1] = 128;
    good.swizzle = TensorMapSwizzle::bytes_128;
    first.encode(good);
    const auto broken = [&](auto&& change) {
        TensorMapSpec spec = good;
        change(spec);
        expect_error([&] { first.encode(spec); });
    };
    broken([](TensorMapSpec& s) { s.rank = 6; });
    broken([](TensorMapSpec& s) { s.address = nullptr; });
    broken([](TensorMapSpec& s) { s.address = data + 8; });
    broken([](TensorMapSpec& s) { s.sizes[1] = 0; });
    broken([](TensorMapSpec& s) { s.sizes[1] = (uint64_t{1} << 32) + 1; });
    broken([](TensorMapSpec& s) { s.box[1] = 257; });
    broken([](TensorMapSpec& s) { s.strides_bytes[0] = 200; });
    broken([](TensorMapSpec& s) { s.box[0] = 4; });
    broken([](TensorMapSpec& s) { s.swizzle = TensorMapSwizzle::bytes_64; });
}
