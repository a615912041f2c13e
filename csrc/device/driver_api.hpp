// The few calls of the CUDA driver that the runtime needs, looked up in libcuda.so.1 at their first use.
//
// No CUDA header is included, so that building needs no toolkit. Types and constants are those of cuda.h, under our
// names; `tests/jit/test_compilers.py` compares them with a toolkit's cuda.h where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deep_gemm::driver {

using Status = int;        // CUresult; zero is success
using DeviceHandle = int;  // CUdevice
using Context = struct ContextTag*;
using Library = struct LibraryTag*;
using KernelHandle = struct KernelTag*;
using Function = struct FunctionTag*;
using Stream = struct StreamTag*;
using EventHandle = struct EventTag*;

enum Attribute : int {  // CUdevice_attribute
    kClockKhz = 13,
    kMultiprocessorCount = 16,
    kMemoryClockKhz = 36,
    kMemoryBusBits = 37,
    kL2CacheBytes = 38,
    kComputeCapabilityMajor = 75,
    kComputeCapabilityMinor = 76,
    kMaxSharedMemoryPerBlockOptIn = 97,
};

enum FunctionAttribute : int {
    kLocalBytes = 3,
    kMaxDynamicSharedMemoryBytes = 8,
    kNonPortableClusterSizeAllowed = 14
};  // CUfunction_attribute

enum CaptureMode : int { kCaptureModeRelaxed = 2 };  // CUstreamCaptureMode

enum CaptureStatus : int { kCaptureStatusNone = 0 };  // CUstreamCaptureStatus

enum LaunchAttributeId : int {  // CUlaunchAttributeID
    kCooperative = 2,
    kClusterDimension = 4,
    kProgrammaticStreamSerialization = 6
};

struct LaunchAttribute {  // CUlaunchAttribute
    LaunchAttributeId id;
    int padding = 0;
    union {
        char bytes[64];
        struct {
            unsigned x, y, z;
        } cluster;
        int allowed;
    } value;
};
static_assert(sizeof(LaunchAttribute) == 72);

struct LaunchConfig {  // CUlaunchConfig
    unsigned grid_x, grid_y, grid_z;
    unsigned block_x, block_y, block_z;
    unsigned shared_memory_bytes;
    Stream stream;
    LaunchAttribute* attributes;
    unsigned attribute_count;
};
static_assert(sizeof(LaunchConfig) == 56);

enum TensorMapDataType : int {
    kUint8 = 0,
    kInt32 = 3,
    kFloat16 = 6,
    kFloat32 = 7,
    kBfloat16 = 9,
    k16U4Align8B = 13,
    k16U4Align16B = 14,
    k16U6Align16B = 15
};  // CUtensorMapDataType
enum TensorMapInterleave : int { kInterleaveNone = 0 };
enum TensorMapFill : int { kFillZero = 0 };

// One member for each call, named as the call without its prefix.
struct Api {
    Status (*Init)(unsigned flags);
    Status (*DriverGetVersion)(int* version);
    Status (*GetErrorName)(Status, const char** text);
    Status (*GetErrorString)(Status, const char** text);
    Status (*DeviceGetCount)(int* count);
    Status (*DeviceGet)(DeviceHandle*, int ordinal);
    Status (*DeviceGetName)(char* name, int length, DeviceHandle);
    Status (*DeviceGetAttribute)(int* value, int attribute, DeviceHandle);
    Status (*DevicePrimaryCtxRetain)(Context*, DeviceHandle);
    Status (*CtxGetCurrent)(Context*);
    Status (*CtxSetCurrent)(Context);
    Status (*ThreadExchangeStreamCaptureMode)(int* mode);
    Status (*LibraryLoadData)(Library*, const void* image, void* jit_options, void** jit_values, unsigned jit_count,
                              void* options, void** values, unsigned count);
    Status (*LibraryGetKernel)(KernelHandle*, Library, const char* entry);
    Status (*KernelGetFunction)(Function*, KernelHandle);
    Status (*KernelGetAttribute)(int* value, int attribute, KernelHandle, DeviceHandle);
    Status (*KernelSetAttribute)(int attribute, int value, KernelHandle, DeviceHandle);
    Status (*KernelGetParamInfo)(KernelHandle, size_t index, size_t* offset, size_t* bytes);  // null before CUDA 12.4
    Status (*LaunchKernelEx)(const LaunchConfig*, Function, void** parameters, void** extra);
    Status (*OccupancyMaxActiveClusters)(int* count, Function, const LaunchConfig*);
    Status (*TensorMapEncodeTiled)(void* map, int type, uint32_t rank, void* address, const uint64_t* sizes,
                                   const uint64_t* strides_bytes, const uint32_t* box, const uint32_t* element_strides,
                                   int interleave, int swizzle, int l2_promotion, int fill);
    Status (*StreamIsCapturing)(Stream, int* capture_status);
    Status (*EventCreate)(EventHandle*, unsigned flags);
    Status (*EventRecord)(EventHandle, Stream);
    Status (*EventSynchronize)(EventHandle);
    Status (*EventElapsedTime)(float* milliseconds, EventHandle start, EventHandle end);
    Status (*EventDestroy)(EventHandle);
    Status (*StreamSynchronize)(Stream);
    Status (*MemcpyDtoHAsync)(void* target, uint64_t source, size_t bytes, Stream);
    Status (*MemsetD32Async)(uint64_t address, unsigned value, size_t count, Stream);
};

/// The driver, started. Throws, saying what is missing, on a machine without one.
const Api& api();

[[noreturn]] void fail_call(Status status, const char* call);

/// Refuse to go on after a call that failed: names the call, the driver's reason, and what to do.
inline void check(Status status, const char* call) {
    if (status != 0) [[unlikely]]
        fail_call(status, call);
}

}  // namespace deep_gemm::driver
