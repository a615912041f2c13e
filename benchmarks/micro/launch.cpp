// What the driver's launch costs the host, by itself: cuLaunchKernelEx of a kernel that does nothing with an argument
// of a GEMM's size, with its shared memory or without, from warm caches or after the host has been through other
// memory. bench_host.py builds it, compiles empty.cu and reads the JSON that this prints:
//
//     launch <cubin of empty.cu>
#include <dlfcn.h>
#include <deep_gemm/arch/sm90.cuh>
#include <deep_gemm/params.cuh>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "device/driver_api.hpp"

using namespace deep_gemm::driver;

namespace {

void* library = dlopen("libcuda.so.1", RTLD_NOW);

template <typename... Arguments>
void call(const char* name, Arguments... arguments) {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
    const int error = function ? function(arguments...) : -1;
    if (error != 0) {
        std::fprintf(stderr, "%s: error %d\n", name, error);
        std::exit(1);
    }
}

constexpr int kBurst = 250, kLaunches = 5000;
constexpr unsigned kGemmSmem = deep_gemm::kMaxSmemBytes;  // a GEMM takes all that there is
volatile char host_memory[1 << 16];  // as much as a caller's Python may go through between two launches

struct Variant {
    Stream stream;
    unsigned attributes, smem_bytes;
    int touched_bytes;
};

double microseconds(Function function, const Variant& variant) {
    using Clock = std::chrono::steady_clock;
    static deep_gemm::GemmParams argument;
    void* arguments[] = {&argument};
    LaunchAttribute attributes[2] = {};
    attributes[0].id = kProgrammaticStreamSerialization, attributes[0].value.allowed = 1;
    attributes[1].id = kClusterDimension, attributes[1].value.cluster = {2, 1, 1};
    const LaunchConfig config = {
        132, 1, 1, 384, 1, 1, variant.smem_bytes, variant.stream, attributes, variant.attributes};
    const auto launch = reinterpret_cast<decltype(Api::LaunchKernelEx)>(dlsym(library, "cuLaunchKernelEx"));
    std::vector<double> times;
    for (int i = 0; i < kLaunches; ++i) {
        if (i % kBurst == 0) call("cuCtxSynchronize");
        for (int byte = 0; byte < variant.touched_bytes; byte += 64) host_memory[byte] = host_memory[byte] + 1;
        const auto begin = Clock::now();
        if (launch(&config, function, arguments, nullptr) != 0) std::exit(2);
        times.push_back(std::chrono::duration<double>(Clock::now() - begin).count() * 1e6);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

}  // namespace

int main(int, char** argv) {
    DeviceHandle device;
    Context context;
    void* module;
    Stream own;
    call("cuInit", 0u);
    call("cuDeviceGet", &device, 0);
    call("cuDevicePrimaryCtxRetain", &context, device);
    call("cuCtxSetCurrent", context);
    call("cuModuleLoad", &module, static_cast<const char*>(argv[1]));
    call("cuStreamCreate", &own, 1u);
    std::printf("[");
    const char* separator = "";
    Function function;
    call("cuModuleGetFunction", &function, module, "empty");
    call("cuFuncSetAttribute", function, static_cast<int>(kMaxDynamicSharedMemoryBytes), deep_gemm::kMaxSmemBytes);
    for (const Stream stream : {Stream{}, own})
        for (const unsigned attributes : {0u, 1u, 2u})
            for (const unsigned smem_bytes : {0u, kGemmSmem})
                for (const int touched : {0, static_cast<int>(sizeof(host_memory))}) {
                    std::printf(
                        "%s{\"stream\": \"%s\", \"attributes\": \"%s\", \"smem_bytes\": %u, "
                        "\"touched_bytes\": %d, \"us\": %.3f}",
                        separator, stream == nullptr ? "default" : "own",
                        attributes == 0   ? ""
                        : attributes == 1 ? "dependent"
                                          : "dependent, cluster of 2",
                        smem_bytes, touched, microseconds(function, {stream, attributes, smem_bytes, touched}));
                    separator = ",\n ";
                }
    std::printf("]\n");
}
