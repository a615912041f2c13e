#include "cuda.hpp"

#include <algorithm>

#include "../util/require.hpp"
#include "cuda_timing.hpp"
#include "driver_api.hpp"

namespace deep_gemm {
namespace {

using driver::api;
using driver::check;

/// Makes a context current and, where another one was, brings that back at the end.
class CurrentContext {
public:
    explicit CurrentContext(driver::Context wanted) {
        check(api().CtxGetCurrent(&previous_), "cuCtxGetCurrent");
        if (previous_ == wanted) [[likely]]
            return;
        check(api().CtxSetCurrent(wanted), "cuCtxSetCurrent");
        // A thread that had none keeps ours: its next launch is then as cheap as any other.
        restore_ = previous_ != nullptr;
    }
    ~CurrentContext() {
        if (restore_) api().CtxSetCurrent(previous_);
    }
    CurrentContext(const CurrentContext&) = delete;
    CurrentContext& operator=(const CurrentContext&) = delete;

private:
    driver::Context previous_ = nullptr;
    bool restore_ = false;
};

/// Lets this thread load code, or time what runs on its own stream, while another stream is being captured into a
/// graph. Neither touches the captured stream.
class RelaxedCapture {
public:
    RelaxedCapture() { check(api().ThreadExchangeStreamCaptureMode(&mode_), "cuThreadExchangeStreamCaptureMode"); }
    ~RelaxedCapture() { api().ThreadExchangeStreamCaptureMode(&mode_); }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

private:
    int mode_ = driver::kCaptureModeRelaxed;
};

struct CudaKernel final : Kernel {
    CudaKernel(const Device* device, driver::Function function, size_t params_bytes, uint32_t smem_bytes,
               int local_bytes)
        : Kernel(local_bytes), device(device), function(function), params_bytes(params_bytes), smem_bytes(smem_bytes) {}

    const Device* device;
    driver::Function function;  // belongs to the device's primary context
    size_t params_bytes;        // of the entry's only parameter; zero where the driver cannot tell
    uint32_t smem_bytes;        // the most that a launch may ask for
};

/// A launch as the driver takes it. The attributes lie beside the config that points to them, so it must not move.
struct DriverLaunch {
    driver::LaunchAttribute attributes[3];
    driver::LaunchConfig config;

    DriverLaunch(const LaunchShape& shape, bool starts_early, void* stream)
        : config{shape.grid, 1, 1, shape.block, 1, 1, shape.smem_bytes, static_cast<driver::Stream>(stream),
                 attributes, 0} {
        if (shape.cluster > 1) {
            auto& attribute = attributes[config.attribute_count++];
            attribute.id = driver::kClusterDimension;
            attribute.value.cluster = {shape.cluster, 1, 1};
        }
        if (shape.cooperative) {
            auto& attribute = attributes[config.attribute_count++];
            attribute.id = driver::kCooperative;
            attribute.value.allowed = 1;
        }
        if (shape.dependent_launch && starts_early) {
            auto& attribute = attributes[config.attribute_count++];
            attribute.id = driver::kProgrammaticStreamSerialization;
            attribute.value.allowed = 1;
        }
    }
    DriverLaunch(const DriverLaunch&) = delete;
    DriverLaunch& operator=(const DriverLaunch&) = delete;
};

int driver_type(TensorMapType type) {
    switch (type) {
        case TensorMapType::u8:
            return driver::kUint8;
        case TensorMapType::bf16:
            return driver::kBfloat16;
        case TensorMapType::f16:
            return driver::kFloat16;
        case TensorMapType::f32:
            return driver::kFloat32;
        case TensorMapType::i32:
            return driver::kInt32;
        case TensorMapType::u4:
            return driver::k16U4Align8B;
        case TensorMapType::u4_spread:
            return driver::k16U4Align16B;
        case TensorMapType::u6_spread:
            return driver::k16U6Align16B;
    }
    fail(ErrorKind::runtime, "unknown tensor map type ", static_cast<int>(type));
}

class CudaDevice final : public Device {
public:
    CudaDevice(int index, driver::DeviceHandle handle, driver::Context context, bool starts_early, DeviceFacts facts,
               int slot)
        : Device({false, index}, std::move(facts), slot),
          handle_(handle),
          context_(context),
          starts_early_(starts_early) {}

    EncodedTensorMap encode(const TensorMapSpec& spec) const override {
        check_tensor_map(spec);
        constexpr uint32_t kElementStrides[5] = {1, 1, 1, 1, 1};
        EncodedTensorMap map;
        const CurrentContext current(context_);  // a thread that never called CUDA has none
        // Swizzles and promotions are numbered as the driver numbers them.
        check(api().TensorMapEncodeTiled(&map, driver_type(spec.type), static_cast<uint32_t>(spec.rank), spec.address,
                                         spec.sizes, spec.strides_bytes, spec.box, kElementStrides,
                                         driver::kInterleaveNone, static_cast<int>(spec.swizzle),
                                         static_cast<int>(spec.l2_promotion), driver::kFillZero),
              "cuTensorMapEncodeTiled");
        return map;
    }

    const Kernel* load(const std::string& image, const char* entry, uint32_t smem_bytes) override {
        require(smem_bytes <= static_cast<uint32_t>(facts().max_smem_bytes), "kernel ", entry, " needs ", smem_bytes,
                " bytes of shared memory, but ", facts().name, " offers ", facts().max_smem_bytes, " to a block");
        const CurrentContext current(context_);
        const RelaxedCapture relaxed;
        driver::Library library = nullptr;
        // PTX must end in a zero, as a string's bytes do.
        check(api().LibraryLoadData(&library, image.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0),
              "cuLibraryLoadData");
        driver::KernelHandle kernel = nullptr;
        check(api().LibraryGetKernel(&kernel, library, entry), "cuLibraryGetKernel");
        check(api().KernelSetAttribute(driver::kMaxDynamicSharedMemoryBytes, static_cast<int>(smem_bytes), kernel,
                                       handle_),
              "cuKernelSetAttribute(max dynamic shared memory)");
        // Of more than eight blocks, where a plan knows that a GPC has as many SMs. Older GPUs have no clusters.
        if (facts().arch_major >= 9)
            check(api().KernelSetAttribute(driver::kNonPortableClusterSizeAllowed, 1, kernel, handle_),
                  "cuKernelSetAttribute(non-portable cluster size)");
        // Asking for the function now makes the driver load the code now, not in the middle of a captured launch.
        driver::Function function = nullptr;
        check(api().KernelGetFunction(&function, kernel), "cuKernelGetFunction");
        size_t offset = 0;
        size_t params_bytes = 0;
        if (api().KernelGetParamInfo != nullptr)
            check(api().KernelGetParamInfo(kernel, 0, &offset, &params_bytes), "cuKernelGetParamInfo");
        int local_bytes = 0;
        check(api().KernelGetAttribute(&local_bytes, driver::kLocalBytes, kernel, handle_),
              "cuKernelGetAttribute(local memory)");
        return new CudaKernel(this, function, params_bytes, smem_bytes, local_bytes);
    }

    void put(const Kernel& kernel, const LaunchShape& shape, const void* params, size_t params_bytes, void* stream,
             std::span<const Extent>) override {
        const auto& loaded = static_cast<const CudaKernel&>(kernel);
        check_launch(loaded, shape);
        require(loaded.params_bytes == 0 || loaded.params_bytes == params_bytes, "the kernel takes ",
                loaded.params_bytes, " bytes of parameters, but ", params_bytes, " came");
        DriverLaunch launch(shape, starts_early_, stream);
        void* parameters[] = {const_cast<void*>(params)};
        const CurrentContext current(context_);
        check(api().LaunchKernelEx(&launch.config, loaded.function, parameters, nullptr), "cuLaunchKernelEx");
    }

    void read(void* target, const void* source, size_t bytes, void* stream) override {
        const CurrentContext current(context_);
        const RelaxedCapture relaxed;
        check(api().MemcpyDtoHAsync(target, reinterpret_cast<uintptr_t>(source), bytes,
                                    static_cast<driver::Stream>(stream)),
              "cuMemcpyDtoHAsync");
        check(api().StreamSynchronize(static_cast<driver::Stream>(stream)), "cuStreamSynchronize");
    }

    int max_clusters(const Kernel& kernel, const LaunchShape& shape) override {
        const auto& loaded = static_cast<const CudaKernel&>(kernel);
        check_launch(loaded, shape);
        DriverLaunch launch(shape, starts_early_, nullptr);
        // The call needs the cluster's size even where it is one.
        if (shape.cluster == 1) {
            launch.attributes[launch.config.attribute_count].id = driver::kClusterDimension;
            launch.attributes[launch.config.attribute_count++].value.cluster = {1, 1, 1};
        }
        const CurrentContext current(context_);
        int count = 0;
        check(api().OccupancyMaxActiveClusters(&count, loaded.function, &launch.config),
              "cuOccupancyMaxActiveClusters");
        return count;
    }

    bool has_clock() const override { return true; }

    bool is_capturing(void* stream) override {
        const CurrentContext current(context_);
        int status = 0;
        // It fails for the legacy stream while any other stream is captured: nothing may be waited for then either.
        return api().StreamIsCapturing(static_cast<driver::Stream>(stream), &status) != 0 ||
               status != driver::kCaptureStatusNone;
    }

    std::vector<double> time_launches(void* stream, std::span<const std::function<void()>> launches,
                                      const TimingOptions& options) override {
        const CurrentContext current(context_);
        const RelaxedCapture relaxed;
        return driver::time_launches(static_cast<driver::Stream>(stream), launches, options);
    }

private:
    void check_launch(const CudaKernel& kernel, const LaunchShape& shape) const {
        require(kernel.device == this, "a kernel loaded on another device was launched on ", facts().name, " ",
                id().index);
        require(shape.cluster != 0 && shape.grid != 0 && shape.grid % shape.cluster == 0, "a grid of ", shape.grid,
                " blocks cannot be divided into clusters of ", shape.cluster);
        require(shape.smem_bytes <= kernel.smem_bytes, "a launch asks for ", shape.smem_bytes,
                " bytes of shared memory, but the kernel was loaded for ", kernel.smem_bytes);
    }

    driver::DeviceHandle handle_;
    driver::Context context_;
    bool starts_early_;
};

/// Whether machine code for one target runs on a GPU of another one: desktop GPUs of a major number, a newer minor one.
/// Those of Orin and its like (87, 88) share code with none.
bool shares_code(int target, int gpu) {
    constexpr int kSharing[] = {80, 86, 89};
    return std::ranges::count(kSharing, target) != 0 && std::ranges::count(kSharing, gpu) != 0;
}

/// Whether code for a target whose name ends in a letter runs on a GPU: that of a family also on its newer members.
bool is_own(const TargetChoice& choice, int gpu) {
    const bool family = choice.target.back() == 'f';
    return family ? choice.number <= gpu && choice.number / 10 == gpu / 10 : choice.number == gpu;
}

/// Makes a GPU's facts those of an older one: whatever asks is then told so, also which layouts of scales it wants. (Or
/// of the GPU itself, where its own target is a family's.)
void stand_in(DeviceFacts& facts, const TargetChoice& choice) {
    if (choice.target.empty() || choice.target == facts.target) return;
    const int number = facts.arch_major * 10 + facts.arch_minor;
    const bool specific = choice.target.back() == 'a' || choice.target.back() == 'f';
    require(!specific || is_own(choice, number), "code for ", choice.target, " runs on no other GPU, and ", facts.name,
            " is ", facts.target);
    require(choice.number <= number, "code for ", choice.target, " does not run on ", facts.name, ", which is ",
            facts.target, ": a chosen target must be an older one");
    facts.output = specific || shares_code(choice.number, number) ? Output::cubin : Output::driver_ptx;
    facts.target = choice.target;
    facts.arch_major = choice.number / 10, facts.arch_minor = choice.number % 10;
    facts.max_smem_bytes = std::min(facts.max_smem_bytes, choice.max_smem_bytes);
}

/// Drivers from CUDA 12.3 on keep programmatic dependent launches in a captured graph; older ones may refuse them
/// there.
constexpr int kStartsEarly = 12030;

}  // namespace

Device* open_cuda_device(int index, const TargetChoice& choice, int slot) {
    const auto [version, count] = cuda_driver_facts();
    require(index >= 0 && index < count, "CUDA device ", index, " does not exist: the driver shows ", count);
    driver::DeviceHandle handle = 0;
    check(api().DeviceGet(&handle, index), "cuDeviceGet");
    const auto attribute = [handle](driver::Attribute which) {
        int value = 0;
        check(api().DeviceGetAttribute(&value, which, handle), "cuDeviceGetAttribute");
        return value;
    };
    DeviceFacts facts;
    char name[256] = "";
    check(api().DeviceGetName(name, sizeof(name), handle), "cuDeviceGetName");
    facts.name = name;
    facts.arch_major = attribute(driver::kComputeCapabilityMajor);
    facts.arch_minor = attribute(driver::kComputeCapabilityMinor);
    const GpuTarget own = known_targets().of_gpu(facts.name, facts.arch_major, facts.arch_minor);
    facts.target = own.target;
    facts.output = own.translated ? Output::driver_ptx : Output::cubin;
    facts.num_sms = attribute(driver::kMultiprocessorCount);
    facts.max_smem_bytes = attribute(driver::kMaxSharedMemoryPerBlockOptIn);
    facts.l2_bytes = attribute(driver::kL2CacheBytes);
    facts.clock_mhz = attribute(driver::kClockKhz) / 1000;
    const int64_t transfers_per_ms = int64_t{2} * attribute(driver::kMemoryClockKhz);  // both edges of the clock
    facts.memory_gb_per_s = static_cast<int>(transfers_per_ms * attribute(driver::kMemoryBusBits) / 8 / 1000000);
    stand_in(facts, choice);
    // The context that torch and the CUDA runtime use. It is never released: kernels live as long as the process.
    driver::Context context = nullptr;
    check(api().DevicePrimaryCtxRetain(&context, handle), "cuDevicePrimaryCtxRetain");
    return new CudaDevice(index, handle, context, version >= kStartsEarly, std::move(facts), slot);
}

CudaDriverFacts cuda_driver_facts() {
    CudaDriverFacts facts;
    check(api().DriverGetVersion(&facts.version), "cuDriverGetVersion");
    check(api().DeviceGetCount(&facts.device_count), "cuDeviceGetCount");
    return facts;
}

}  // namespace deep_gemm
