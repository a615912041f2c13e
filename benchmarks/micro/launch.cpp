// What the driver's launch costs the host, by itself: bursts of cuLaunchKernelEx of a kernel that does nothing.
// bench_host.py builds it, compiles empty.cu and reads the JSON that this prints:
//
//     launch <cubin of empty.cu>
//
// Entries are empty_<bytes> with one argument of so many bytes.
#include <dlfcn.h>

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

constexpr int kBurst = 250, kBursts = 50;

double microseconds(Function function, unsigned attribute_count, Stream stream) {
    static char argument[4096];
    void* arguments[] = {argument};
    LaunchAttribute attributes[2] = {};
    attributes[0].id = kClusterDimension, attributes[0].value.cluster = {2, 1, 1};
    attributes[1].id = kProgrammaticStreamSerialization, attributes[1].value.allowed = 1;
    const LaunchConfig config = {132, 1, 1, 384, 1, 1, 0, stream, attributes, attribute_count};
    const auto launch = reinterpret_cast<decltype(Api::LaunchKernelEx)>(dlsym(library, "cuLaunchKernelEx"));
    std::vector<double> times;
    for (int burst = 0; burst < kBursts; ++burst) {
        call("cuCtxSynchronize");
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < kBurst; ++i)
            if (launch(&config, function, arguments, nullptr) != 0) std::exit(2);
        times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kBurst * 1e6);
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
    for (const int bytes : {8, 1088, 4000}) {
        Function function;
        call("cuModuleGetFunction", &function, module, ("empty_" + std::to_string(bytes)).c_str());
        for (const Stream stream : {Stream{}, own}) {
            for (const unsigned attributes : {0u, 1u, 2u}) {
                std::printf("%s{\"argument_bytes\": %d, \"stream\": \"%s\", \"attributes\": \"%s\", \"us\": %.3f}",
                            separator, bytes, stream == nullptr ? "default" : "own",
                            attributes == 0   ? ""
                            : attributes == 1 ? "cluster of 2"
                                              : "cluster of 2, dependent",
                            microseconds(function, attributes, stream));
                separator = ",\n ";
            }
        }
    }
    std::printf("]\n");
}
