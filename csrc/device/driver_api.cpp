#include "driver_api.hpp"

#include <dlfcn.h>

#include <string>

#include "../util/require.hpp"

namespace deep_gemm::driver {
namespace {

constexpr Status kNotInitialized = 3;

/// What the user can do about a failure, where it is known.
const char* advice(Status status) {
    switch (status) {
        case 2:
            return "The GPU has no memory left for code: free some, or lower what other programs reserve.";
        case kNotInitialized:
            return "If this process was forked after CUDA had been used, CUDA cannot be used in it: start workers with "
                   "multiprocessing's \"spawn\" method.";
        case 34:
            return "libcuda.so.1 is the toolkit's stub: remove the stubs directory from LD_LIBRARY_PATH.";
        case 36:
        case 803:
        case 804:
            return "The NVIDIA driver is too old or does not match its kernel module: update it, or reboot after an update.";
        case 46:
            return "Another process uses the GPU exclusively.";
        case 100:
            return "No GPU is visible: see nvidia-smi and CUDA_VISIBLE_DEVICES.";
        case 200:
        case 209:
        case 218:
        case 222:
            return "The kernel does not fit this driver or GPU. If the compiler is of a newer major version than the driver "
                   "(python -m deep_gemm shows both), install the NVRTC of the driver's version and name it in "
                   "DG_JIT_NVRTC_LIBRARY.";
        case 500:
            return "The kernel's entry is not in the image; this is a bug in deep_gemm, or a foreign file in its cache.";
        case 700:
        case 710:
        case 714:
        case 715:
        case 716:
        case 717:
        case 718:
        case 719:
            return "A kernel launched earlier, by any library, failed; CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer shows which.";
        case 701:
            return "The kernel asks for more threads, registers or shared memory than the GPU has.";
        case 802:
            return "The driver waits for the fabric manager (nvidia-fabricmanager).";
        case 912:
            return "The GPU cannot place a cluster of this size.";
        default:
            return "";
    }
}

template <typename Call>
void find(void* library, Call& call, const char* symbol, bool required = true) {
    call = reinterpret_cast<Call>(dlsym(library, symbol));
    require_runtime(call != nullptr || !required, "The NVIDIA driver has no ", symbol,
                    ": deep_gemm needs a driver of CUDA 12.0 or later (nvidia-smi shows the version)");
}

Api load() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* reason = dlerror();
        fail(ErrorKind::runtime, "No CUDA driver: ", reason == nullptr ? "libcuda.so.1 was not found" : reason,
             ". CUDA tensors need the NVIDIA driver; CPU tensors run on the simulator without one.");
    }
    Api api{};
#define DEEP_GEMM_FIND(name) find(library, api.name, "cu" #name)
    DEEP_GEMM_FIND(Init);
    DEEP_GEMM_FIND(DriverGetVersion);
    DEEP_GEMM_FIND(GetErrorName);
    DEEP_GEMM_FIND(GetErrorString);
    DEEP_GEMM_FIND(DeviceGetCount);
    DEEP_GEMM_FIND(DeviceGet);
    DEEP_GEMM_FIND(DeviceGetName);
    DEEP_GEMM_FIND(DeviceGetAttribute);
    DEEP_GEMM_FIND(DevicePrimaryCtxRetain);
    DEEP_GEMM_FIND(CtxGetCurrent);
    DEEP_GEMM_FIND(CtxSetCurrent);
    DEEP_GEMM_FIND(ThreadExchangeStreamCaptureMode);
    DEEP_GEMM_FIND(LibraryLoadData);
    DEEP_GEMM_FIND(LibraryGetKernel);
    DEEP_GEMM_FIND(KernelGetFunction);
    DEEP_GEMM_FIND(KernelGetAttribute);
    DEEP_GEMM_FIND(KernelSetAttribute);
    DEEP_GEMM_FIND(LaunchKernelEx);
    DEEP_GEMM_FIND(OccupancyMaxActiveClusters);
    DEEP_GEMM_FIND(TensorMapEncodeTiled);
    DEEP_GEMM_FIND(StreamIsCapturing);
    DEEP_GEMM_FIND(EventCreate);
    DEEP_GEMM_FIND(EventRecord);
    DEEP_GEMM_FIND(EventSynchronize);
    DEEP_GEMM_FIND(EventElapsedTime);
    DEEP_GEMM_FIND(StreamSynchronize);
    DEEP_GEMM_FIND(MemsetD32Async);
#undef DEEP_GEMM_FIND
    find(library, api.MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
    find(library, api.EventDestroy, "cuEventDestroy_v2");
    find(library, api.KernelGetParamInfo, "cuKernelGetParamInfo", /*required=*/false);
    return api;
}

/// Set once the library is loaded, so that a failing cuInit can still be put into words.
const Api* g_loaded = nullptr;

}  // namespace

const Api& api() {
    // If either step throws, the next call tries again: a driver may be loaded later.
    static const Api kApi = [] {
        static const Api kLoaded = load();
        g_loaded = &kLoaded;
        check(kLoaded.Init(0), "cuInit");
        return kLoaded;
    }();
    return kApi;
}

void fail_call(Status status, const char* call) {
    const char* name = nullptr;
    const char* text = nullptr;
    if (g_loaded != nullptr) {
        g_loaded->GetErrorName(status, &name);
        g_loaded->GetErrorString(status, &text);
    }
    const std::string help = advice(status);
    fail(ErrorKind::runtime, call, " failed: ", name == nullptr ? "unknown error" : name, " (", status,
         text == nullptr ? "" : ", ", text == nullptr ? "" : text, ")", help.empty() ? "" : ". ", help);
}

}  // namespace deep_gemm::driver
