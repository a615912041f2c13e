// What deep_gemm/jit.py and `python -m deep_gemm` call: settings, compiling, devices. Bindings only.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/string.h>

#include <vector>

#include "device/cuda.hpp"
#include "device/device.hpp"
#include "jit/cache.hpp"
#include "jit/compile.hpp"
#include "jit/kernel.hpp"
#include "jit/nvrtc.hpp"
#include "jit/settings.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Bytes;
using tvm::ffi::Map;
using tvm::ffi::String;
using Facts = Map<String, Any>;

Output parse_output(const String& text) {
    require(text == "cubin" || text == "ptx", "output must be \"cubin\" or \"ptx\", not \"", std::string(text), "\"");
    return text == "cubin" ? Output::cubin : Output::ptx;
}

void initialize(const String& package_dir, const Array<String>& nvrtc_directories) {
    jit::initialize(package_dir, std::vector<std::string>(nvrtc_directories.begin(), nvrtc_directories.end()));
}

Facts jit_settings() {
    const jit::Settings& s = jit::settings();
    Facts facts;
    facts.Set("cache_dir", String(s.cache_dir));
    facts.Set("cache_max_bytes", static_cast<int64_t>(s.cache_max_bytes));
    facts.Set("include_dir", String(s.include_dir()));
    facts.Set("use_nvrtc", s.use_nvrtc);
    facts.Set("nvrtc_library", String(s.nvrtc_library));
    facts.Set("nvcc_compiler", String(s.nvcc_compiler));
    facts.Set("cpp_standard", s.cpp_standard);
    facts.Set("with_lineinfo", s.with_lineinfo);
    facts.Set("ptxas_verbose", s.ptxas_verbose);
    facts.Set("ptxas_check", s.ptxas_check);
    facts.Set("autotune", s.autotune);
    constexpr const char* kCheckLayouts[] = {"never", "on CPU tensors", "always"};
    facts.Set("check_layouts", String(kCheckLayouts[static_cast<int>(s.check_layouts)]));
    facts.Set("debug", s.debug);
    facts.Set("print_compiler_command", s.print_compiler_command);
    facts.Set("print_load_time", s.print_load_time);
    facts.Set("print_configs", s.print_configs);
    facts.Set("dump_ptx", s.dump_ptx);
    facts.Set("dump_sass", s.dump_sass);
    return facts;
}

/// Opens the compiler, and throws if there is none.
Facts jit_compiler() {
    Facts facts;
    facts.Set("identity", String(jit::compiler_identity()));
    facts.Set("path", String(jit::settings().use_nvrtc ? jit::nvrtc::library_path() : jit::settings().nvcc_compiler));
    return facts;
}

Bytes jit_compile(const String& name, const String& text, const String& target, const String& output) {
    return Bytes(jit::compile_to_image({.name = name, .text = text}, target, parse_output(output)));
}

String jit_cache_key(const String& name, const String& text, const String& target, const String& output) {
    return jit::cache_key({.name = name, .text = text}, target, parse_output(output));
}

int64_t jit_prune_cache(int64_t max_bytes) {
    require(max_bytes >= 0, "a cache has a size of 0 bytes or more, not ", max_bytes);
    return jit::DiskCache::get().prune(static_cast<uint64_t>(max_bytes));
}

String jit_entry_problem(const String& directory_name) { return jit::DiskCache::get().problem_of(directory_name); }

std::vector<int64_t> to_vector(const Array<int64_t>& values) { return {values.begin(), values.end()}; }

/// Ends what threads wait for or compute, by the ids that Linux gives them, until they are let go.
void export_stop_threads(const Array<int64_t>& ids) { stop_threads(to_vector(ids)); }
void export_let_threads_go(const Array<int64_t>& ids) { let_threads_go(to_vector(ids)); }

Facts jit_statistics() {
    const jit::Statistics counts = jit::statistics();
    Facts facts;
    facts.Set("compiled", counts.compiled);
    facts.Set("stored", counts.stored);
    facts.Set("found_on_disk", counts.found_on_disk);
    facts.Set("loaded", counts.loaded);
    facts.Set("compile_seconds", counts.compile_seconds);
    return facts;
}

/// Throws, saying why, on a machine without a driver.
Facts cuda_driver() {
    const CudaDriverFacts driver = cuda_driver_facts();
    Facts facts;
    facts.Set("version", driver.version);
    facts.Set("device_count", driver.device_count);
    return facts;
}

Facts device_facts(bool simulated, int64_t index) {
    const DeviceFacts& device = Device::get({simulated, static_cast<int>(index)}).facts();
    Facts facts;
    facts.Set("name", String(device.name));
    facts.Set("arch_major", device.arch_major);
    facts.Set("arch_minor", device.arch_minor);
    facts.Set("target", String(device.target));
    facts.Set("num_sms", device.num_sms);
    facts.Set("max_smem_bytes", device.max_smem_bytes);
    facts.Set("l2_bytes", device.l2_bytes);
    return facts;
}

/// Runs any kernel whose one argument is a struct of pointers (the tensors) and then 64-bit integers (the numbers), on
/// the device and torch stream of the first tensor. `name` is its extern "C" symbol. The tests of this runtime use it;
/// the library's calls do not.
void jit_launch(const String& name, const String& text, int64_t grid, int64_t block, int64_t cluster,
                int64_t smem_bytes, bool dependent_launch, const Array<tvm::ffi::Tensor>& tensors,
                const Array<int64_t>& numbers) {
    require(!tensors.empty(), "a launch needs at least one tensor: it says which device to use");
    const DLDevice where = tensors[0].device();
    require_type(where.device_type == kDLCPU || where.device_type == kDLCUDA,
                 "tensors must be on a CPU or a CUDA device");
    const bool simulated = where.device_type == kDLCPU;
    Device& device = Device::get({simulated, simulated ? 0 : where.device_id});
    std::vector<uint64_t> params;
    std::vector<Extent> extents;
    for (const tvm::ffi::Tensor& tensor : tensors) {
        const size_t bytes = (static_cast<size_t>(tensor.numel()) * tensor.dtype().bits * tensor.dtype().lanes + 7) / 8;
        extents.push_back({tensor.data_ptr(), bytes, "tensor", true});
        params.push_back(reinterpret_cast<uint64_t>(tensor.data_ptr()));
    }
    for (const int64_t number : numbers) params.push_back(static_cast<uint64_t>(number));
    const LaunchShape shape{static_cast<uint32_t>(grid), static_cast<uint32_t>(block), static_cast<uint32_t>(cluster),
                            static_cast<uint32_t>(smem_bytes), dependent_launch};
    const Kernel* kernel = jit::get_kernel(device, {.name = name, .text = text}, shape.smem_bytes);
    void* stream = simulated ? nullptr : TVMFFIEnvGetStream(where.device_type, where.device_id);
    device.launch(*kernel, shape, params.data(), params.size() * sizeof(uint64_t), stream, extents);
}

/// How many clusters of this size, of CTAs with so many threads and so much shared memory, a device runs at once.
int64_t jit_max_clusters(bool simulated, int64_t index, const String& name, const String& text, int64_t block,
                         int64_t cluster, int64_t smem_bytes) {
    Device& device = Device::get({simulated, static_cast<int>(index)});
    const LaunchShape shape{static_cast<uint32_t>(cluster), static_cast<uint32_t>(block),
                            static_cast<uint32_t>(cluster), static_cast<uint32_t>(smem_bytes), false};
    return device.max_clusters(*jit::get_kernel(device, {.name = name, .text = text}, shape.smem_bytes), shape);
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(initialize, deep_gemm::initialize);
DEEP_GEMM_EXPORT(jit_settings, deep_gemm::jit_settings);
DEEP_GEMM_EXPORT(jit_compiler, deep_gemm::jit_compiler);
DEEP_GEMM_EXPORT(jit_compile, deep_gemm::jit_compile);
DEEP_GEMM_EXPORT(jit_cache_key, deep_gemm::jit_cache_key);
DEEP_GEMM_EXPORT(jit_prune_cache, deep_gemm::jit_prune_cache);
DEEP_GEMM_EXPORT(jit_entry_problem, deep_gemm::jit_entry_problem);
DEEP_GEMM_EXPORT(stop_threads, deep_gemm::export_stop_threads);
DEEP_GEMM_EXPORT(let_threads_go, deep_gemm::export_let_threads_go);
DEEP_GEMM_EXPORT(jit_statistics, deep_gemm::jit_statistics);
DEEP_GEMM_EXPORT(cuda_driver, deep_gemm::cuda_driver);
DEEP_GEMM_EXPORT(device_facts, deep_gemm::device_facts);
DEEP_GEMM_EXPORT(jit_launch, deep_gemm::jit_launch);
DEEP_GEMM_EXPORT(jit_max_clusters, deep_gemm::jit_max_clusters);
