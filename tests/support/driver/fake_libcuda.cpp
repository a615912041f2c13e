// Stands for libcuda.so.1 on a machine without one: four devices of DEVICE_SMS SMs (a macro) that do nothing, and
// a line on stdout for each call.
//
// Told to be silent it prints nothing: benchmarks/bench_host.py then times our own part of a call.
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "device/driver_api.hpp"

using namespace deep_gemm::driver;

namespace {
thread_local Context g_current = nullptr;
thread_local int g_capture_mode = 0;
Status g_launch_status = 0;
Context context_of(int device) { return reinterpret_cast<Context>(static_cast<uintptr_t>(0x100 + device)); }
int g_libraries = 0;
int g_capture_status = 0;
uintptr_t g_events = 0;
float g_milliseconds[1000];  // when each event was recorded
float g_now = 0;

/// "8.6 9.0": of each device.
std::vector<std::pair<int, int>> capabilities() {
    const char* wanted = std::getenv("FAKE_CAPABILITIES");
    std::istringstream text(wanted != nullptr ? wanted : "9.0 10.3 12.0 9.0");
    std::vector<std::pair<int, int>> found;
    char dot = 0;
    for (int major = 0, minor = 0; text >> major >> dot >> minor;) found.emplace_back(major, minor);
    return found;
}
const std::vector<std::pair<int, int>>& g_capabilities = *new auto(capabilities());

/// " compute_80", of PTX text; the driver reads it to its first zero.
std::string target_of_text(const char* image) {
    if (std::strncmp(image, "//", 2) != 0) return "";
    const char* target = std::strstr(image, ".target sm_");
    const bool lines = std::strstr(image, "\t.loc\t") != nullptr;
    return target == nullptr ? ""
                             : " compute_" + std::string(target + 11, std::strcspn(target + 11, ",\n ")) +
                                   (lines ? " with lines" : "");
}

bool g_silent = false;
size_t g_params_bytes = 16;

[[gnu::format(printf, 1, 2)]] void say(const char* format, ...) {
    va_list values;
    va_start(values, format);
    std::vprintf(format, values);
    va_end(values);
    std::fflush(stdout);  // between lines that Python prints
}
}  // namespace

int number_of(const char* variable) {
    const char* const wanted = std::getenv(variable);
    return wanted == nullptr ? 0 : std::atoi(wanted);
}

extern "C" {
// For the test itself.
void fake_set_current(int device) { g_current = device < 0 ? nullptr : context_of(device); }
int fake_current() {
    return g_current == nullptr ? -1 : static_cast<int>(reinterpret_cast<uintptr_t>(g_current)) - 0x100;
}
void fake_fail_launches(int status) { g_launch_status = status; }
int fake_capture_mode() { return g_capture_mode; }
void fake_capture_status(int status) { g_capture_status = status; }
void fake_work(float milliseconds) { g_now += milliseconds; }
void fake_take_any_parameters() { g_params_bytes = 0; }
void fake_be_silent() { g_silent = true; }

Status cuInit(unsigned) { return 0; }
Status cuDriverGetVersion(int* version) {
    const char* wanted = std::getenv("FAKE_DRIVER_VERSION");
    return *version = wanted != nullptr ? std::atoi(wanted) : 13000, 0;
}
Status cuGetErrorName(Status status, const char** text) {
    return *text = status == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_X", 0;
}
Status cuGetErrorString(Status, const char** text) { return *text = "what the driver says", 0; }
Status cuDeviceGetCount(int* count) { return *count = static_cast<int>(g_capabilities.size()), 0; }
Status cuDeviceGet(DeviceHandle* device, int ordinal) { return *device = ordinal, 0; }
Status cuDeviceGetName(char* name, int length, DeviceHandle device) {
    return std::snprintf(name, length, "Fake %d", device), 0;
}
Status cuDeviceGetAttribute(int* value, int attribute, DeviceHandle device) {
    switch (attribute) {
        case kComputeCapabilityMajor:
            return *value = g_capabilities[device].first, 0;
        case kComputeCapabilityMinor:
            return *value = g_capabilities[device].second, 0;
        case kMultiprocessorCount:
            return *value = DEVICE_SMS, 0;
        case kMaxSharedMemoryPerBlockOptIn:
            return *value = 232448, 0;
        case kL2CacheBytes:
            return *value = 50 << 20, 0;
        case kClockKhz:
            return *value = number_of("FAKE_CLOCK_KHZ"), 0;
        case kMemoryClockKhz:
            return *value = number_of("FAKE_MEMORY_CLOCK_KHZ"), 0;
        case kMemoryBusBits:
            return *value = 5120, 0;
        default:
            return 1;
    }
}
Status cuDevicePrimaryCtxRetain(Context* context, DeviceHandle device) { return *context = context_of(device), 0; }
Status cuCtxGetCurrent(Context* context) { return *context = g_current, 0; }
Status cuCtxSetCurrent(Context context) { return g_current = context, 0; }
Status cuThreadExchangeStreamCaptureMode(int* mode) {
    const int previous = g_capture_mode;
    g_capture_mode = *mode;
    *mode = previous;
    return 0;
}
Status cuLibraryLoadData(Library* library, const void* image, void*, void**, unsigned, void*, void**, unsigned) {
    if (!g_silent)
        say("load%s on context %d, capture mode %d\n", target_of_text(static_cast<const char*>(image)).c_str(),
            fake_current(), g_capture_mode);
    return *library = reinterpret_cast<Library>(static_cast<uintptr_t>(++g_libraries)), 0;
}
Status cuLibraryGetKernel(KernelHandle* kernel, Library, const char* entry) {
    if (std::strcmp(entry, "another_entry") == 0) return 500;
    if (!g_silent) say("entry %s\n", entry);
    const char* const spills = std::getenv("FAKE_SPILLS");  // a part of the names of kernels that do
    const uintptr_t number = spills != nullptr && std::strstr(entry, spills) != nullptr ? 2 : 1;
    return *kernel = reinterpret_cast<KernelHandle>(number), 0;
}
Status cuKernelGetAttribute(int* value, int attribute, KernelHandle kernel, DeviceHandle) {
    if (attribute != kLocalBytes) return 1;
    return *value = reinterpret_cast<uintptr_t>(kernel) == 2 ? 24 : 0, 0;
}
Status cuKernelGetFunction(Function* function, KernelHandle) {
    return *function = reinterpret_cast<Function>(static_cast<uintptr_t>(0x1000 + fake_current())), 0;
}
Status cuKernelSetAttribute(int attribute, int value, KernelHandle, DeviceHandle device) {
    if (!g_silent) say("kernel attribute %d = %d on device %d\n", attribute, value, device);
    return 0;
}
Status cuKernelGetParamInfo(KernelHandle, size_t, size_t* offset, size_t* bytes) {
    return *offset = 0, *bytes = g_params_bytes, 0;
}
Status cuLaunchKernelEx(const LaunchConfig* config, Function function, void** parameters, void**) {
    if (g_silent) return g_launch_status;
    uint64_t values[2];
    std::memcpy(values, parameters[0], sizeof(values));
    say("launch %lx on context %d: grid %u %u %u block %u %u %u smem %u stream %lx params %lu %lu",
        reinterpret_cast<uintptr_t>(function), fake_current(), config->grid_x, config->grid_y, config->grid_z,
        config->block_x, config->block_y, config->block_z, config->shared_memory_bytes,
        reinterpret_cast<uintptr_t>(config->stream), values[0], values[1]);
    for (unsigned i = 0; i < config->attribute_count; ++i) {
        const LaunchAttribute& attribute = config->attributes[i];
        if (attribute.id == kClusterDimension)
            say(" cluster %u %u %u", attribute.value.cluster.x, attribute.value.cluster.y, attribute.value.cluster.z);
        if (attribute.id == kProgrammaticStreamSerialization) say(" dependent %d", attribute.value.allowed);
    }
    say("\n");
    return g_launch_status;
}
Status cuOccupancyMaxActiveClusters(int* count, Function, const LaunchConfig* config) {
    return *count = static_cast<int>(DEVICE_SMS / config->attributes[0].value.cluster.x), 0;
}
Status cuTensorMapEncodeTiled(void* map, int type, uint32_t rank, void*, const uint64_t* sizes, const uint64_t* strides,
                              const uint32_t* box, const uint32_t* element_strides, int interleave, int swizzle,
                              int promotion, int fill) {
    std::memset(map, 0, 128);
    if (g_silent) return 0;
    say("encode type %d rank %u sizes %lu %lu stride %lu box %u %u steps %u %u interleave %d swizzle %d "
        "promotion %d fill %d\n",
        type, rank, sizes[0], sizes[1], strides[0], box[0], box[1], element_strides[0], element_strides[1], interleave,
        swizzle, promotion, fill);
    return 0;
}
Status cuStreamIsCapturing(Stream, int* status) { return g_capture_status > 2 ? 906 : (*status = g_capture_status, 0); }
Status cuEventCreate(EventHandle* event, unsigned) { return *event = reinterpret_cast<EventHandle>(++g_events), 0; }
Status cuEventRecord(EventHandle event, Stream stream) {
    if (stream != reinterpret_cast<Stream>(uintptr_t{0xabc})) return 1;
    return g_milliseconds[reinterpret_cast<uintptr_t>(event)] = g_now, 0;
}
Status cuEventSynchronize(EventHandle) {
    std::printf("wait on context %d, capture mode %d\n", fake_current(), g_capture_mode);
    return 0;
}
Status cuEventElapsedTime(float* milliseconds, EventHandle start, EventHandle end) {
    *milliseconds =
        g_milliseconds[reinterpret_cast<uintptr_t>(end)] - g_milliseconds[reinterpret_cast<uintptr_t>(start)];
    return 0;
}
Status cuEventDestroy_v2(EventHandle) { return 0; }
Status cuStreamSynchronize(Stream) { return g_silent ? 0 : (say("wait for the stream\n"), 0); }
Status cuMemcpyDtoHAsync_v2(void* target, uint64_t source, size_t bytes, Stream) {
    if (!g_silent) say("read %zu bytes\n", bytes);
    return std::memcpy(target, reinterpret_cast<const void*>(source), bytes), 0;
}
Status cuMemsetD32Async(uint64_t, unsigned, size_t count, Stream) {
    g_now += 0.001f * static_cast<float>(count);
    return 0;
}
}
