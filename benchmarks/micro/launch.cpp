// What the driver's launch costs the host, by itself: bursts of cuLaunchKernelEx of a kernel that does nothing.
//
//     nvcc -arch=sm_90a -cubin -o empty.cubin empty.cu && g++ -O2 -o launch launch.cpp -ldl && ./launch empty.cubin
//
// The first argument is the cubin; entries are empty_<bytes> with one argument of so many bytes.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

struct Attribute {
    int id;
    char pad[4];
    union {
        char bytes[64];
        struct {
            unsigned x, y, z;
        } cluster;
        int allowed;
    } value;
};
struct Config {
    unsigned grid[3], block[3], smem;
    void* stream;
    Attribute* attributes;
    unsigned attribute_count;
};

void* library = dlopen("libcuda.so.1", RTLD_NOW);

template <typename... Arguments>
void call(const char* name, Arguments... arguments) {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
    const int error = function ? function(arguments...) : -1;
    if (error != 0) {
        std::printf("%s: error %d\n", name, error);
        std::exit(1);
    }
}

constexpr int kBurst = 400, kBursts = 50;

double microseconds(void* function, unsigned attributes, void* stream) {
    static char argument[4096];
    void* arguments[] = {argument};
    Attribute attribute[2] = {};
    attribute[0].id = 4, attribute[0].value.cluster = {2, 1, 1};  // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute[1].id = 6, attribute[1].value.allowed = 1;          // ..._PROGRAMMATIC_STREAM_SERIALIZATION
    Config config = {{132, 1, 1}, {384, 1, 1}, 0, stream, attribute, attributes};
    const auto launch =
        reinterpret_cast<int (*)(const Config*, void*, void**, void**)>(dlsym(library, "cuLaunchKernelEx"));
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
    int device;
    void *context, *module, *stream;
    call("cuInit", 0u);
    call("cuDeviceGet", &device, 0);
    call("cuDevicePrimaryCtxRetain", &context, device);
    call("cuCtxSetCurrent", context);
    call("cuModuleLoad", &module, static_cast<const char*>(argv[1]));
    call("cuStreamCreate", &stream, 1u);
    for (const int bytes : {8, 256, 1024, 4000}) {
        void* function;
        call("cuModuleGetFunction", &function, module, ("empty_" + std::to_string(bytes)).c_str());
        for (void* on : {static_cast<void*>(nullptr), stream})
            std::printf("%4d bytes of arguments, %s stream: %.2f us; cluster of 2: %.2f; cluster, dependent: %.2f\n", bytes,
                        on ? "own" : "default", microseconds(function, 0, on), microseconds(function, 1, on),
                        microseconds(function, 2, on));
    }
}
