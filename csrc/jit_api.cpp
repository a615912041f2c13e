// What deep_gemm/jit.py and `python -m deep_gemm` call: settings, compiling, devices. Bindings only.
#include <tvm/ffi/extra/c_env_api.h>

#include <map>
#include <mutex>
#include <vector>

#include "api/call/generation.hpp"
#include "api/call/target_choice.hpp"
#include "config/archs.hpp"
#include "config/fields.hpp"
#include "device/cuda.hpp"
#include "device/device.hpp"
#include "device/recorder.hpp"
#include "jit/cache.hpp"
#include "jit/compile.hpp"
#include "jit/kernel.hpp"
#include "jit/nvrtc.hpp"
#include "jit/settings.hpp"
#include "util/ffi.hpp"
#include "util/interrupt.hpp"
#include "util/require.hpp"

namespace deep_gemm {
namespace {

using ffi::Bytes;
using Integers = std::vector<int64_t>;

Output parse_output(const std::string& text) {
    for (const Output output : {Output::cubin, Output::ptx, Output::driver_ptx})
        if (text == jit::name(output)) return output;
    fail(ErrorKind::value, "output must be \"cubin\", \"ptx\" or \"driver_ptx\", not \"", text, "\"");
}

void initialize(const std::string& package_dir, const std::vector<std::string>& nvrtc_directories) {
    jit::initialize(package_dir, nvrtc_directories);
    announce_targets();
}

Object jit_settings() {
    const jit::Settings& s = jit::settings();
    constexpr const char* kCheckLayouts[] = {"never", "on CPU tensors", "always"};
    return {{"cache_dir", s.cache_dir},
            {"cache_max_bytes", static_cast<int64_t>(s.cache_max_bytes)},
            {"include_dir", s.include_dir()},
            {"use_nvrtc", s.use_nvrtc},
            {"nvrtc_library", s.nvrtc_library},
            {"nvcc_compiler", s.nvcc_compiler},
            {"cpp_standard", s.cpp_standard},
            {"with_lineinfo", s.with_lineinfo},
            {"ptxas_verbose", s.ptxas_verbose},
            {"ptxas_check", s.ptxas_check},
            {"refuse", s.refuse},
            {"target", s.target},
            {"autotune", s.autotune},
            {"fp32_scales", s.fp32_scales},
            {"check_layouts", kCheckLayouts[static_cast<int>(s.check_layouts)]},
            {"debug", s.debug},
            {"print_compiler_command", s.print_compiler_command},
            {"print_load_time", s.print_load_time},
            {"print_configs", s.print_configs},
            {"dump_ptx", s.dump_ptx},
            {"dump_sass", s.dump_sass}};
}

/// Opens the compiler, and throws if there is none.
Object jit_compiler() {
    return {{"identity", jit::compiler_identity()},
            {"path", jit::settings().use_nvrtc ? jit::nvrtc::library_path() : jit::settings().nvcc_compiler}};
}

Bytes jit_compile(const std::string& name, const std::string& text, const std::string& target,
                  const std::string& output) {
    return {jit::compile_to_image({.name = name, .text = text}, target, parse_output(output))};
}

std::string jit_cache_key(const std::string& name, const std::string& text, const std::string& target,
                          const std::string& output) {
    return jit::cache_key({.name = name, .text = text}, target, parse_output(output));
}

int64_t jit_prune_cache(int64_t max_bytes) {
    require(max_bytes >= 0, "a cache has a size of 0 bytes or more, not ", max_bytes);
    return jit::DiskCache::get().prune(static_cast<uint64_t>(max_bytes));
}

std::string jit_entry_problem(const std::string& directory_name) {
    return jit::DiskCache::get().problem_of(directory_name);
}

/// Ends what threads wait for or compute, by the ids that Linux gives them, until they are let go.
void export_stop_threads(const Integers& ids) { stop_threads(ids); }
void export_let_threads_go(const Integers& ids) { let_threads_go(ids); }

Object jit_statistics() {
    const jit::Statistics counts = jit::statistics();
    return {{"compiled", counts.compiled},
            {"stored", counts.stored},
            {"found_on_disk", counts.found_on_disk},
            {"loaded", counts.loaded},
            {"compile_seconds", counts.compile_seconds}};
}

/// The recorders that Python holds, by number.
class Recorders {
public:
    static Recorders& get() {
        static auto& kRecorders = *new Recorders;
        return kRecorders;
    }
    int64_t add(DeviceFacts facts) {
        const std::lock_guard guard(mutex_);
        recorders_.try_emplace(++last_, std::move(facts));
        return last_;
    }
    Recorder& find(int64_t number) {
        const std::lock_guard guard(mutex_);
        const auto found = recorders_.find(number);
        require(found != recorders_.end(), "there is no recorder ", number);
        return found->second;
    }
    void remove(int64_t number) {
        const std::lock_guard guard(mutex_);
        recorders_.erase(number);
    }

private:
    std::mutex mutex_;
    std::map<int64_t, Recorder> recorders_;
    int64_t last_ = 0;
};

const Card& card_named(const std::string& name) {
    const Card* const card = find_card(name);
    require(card != nullptr, "gpu must be one of ", Later{card_names}, ", got '", name, "'");
    return *card;
}

/// What costs go by of a GPU, by the name that its driver says.
Object card_facts(const std::string& name) {
    const Card& card = card_named(name);
    const GpuRates rates = card.rates();
    return {{"target", card.target},
            {"num_sms", card.sms},
            {"clock_mhz", card.clock_mhz},
            {"memory_gb_per_s", card.memory_gb_per_s},
            {"l2_mib", card.l2_mib},
            {"watts", card.watts},
            {"products_per_cycle", rates.products_per_cycle},
            {"integer_products_per_cycle", rates.integer_products_per_cycle}};
}

std::string gpus() { return card_names(); }

/// `gpu`: that one, or empty, and the first of the target.
int64_t open_recorder(const std::string& target, int64_t num_sms, const std::string& gpu) {
    const TargetRow* const row = find_target(target);
    require(row != nullptr, "there are kernels for ", Later{targets_text}, ", not for ", target);
    require(num_sms >= 1 && num_sms < (1 << 16), "num_sms must be between 1 and 65,535, got ", num_sms);
    const TargetFacts& facts = row->facts;
    const Card* const card = gpu.empty() ? nullptr : &card_named(gpu);
    require(card == nullptr || card->target >= facts.number, "gpu must run code for ", target, ", got ", gpu,
            ", which runs that for sm_", card == nullptr ? 0 : card->target);
    const int32_t l2_mib = card == nullptr ? facts.l2_mib : card->l2_mib;
    return Recorders::get().add({.name = gpu.empty() ? concat("a GPU for ", target) : gpu,
                                 .arch_major = facts.number / 10,
                                 .arch_minor = facts.number % 10,
                                 .target = target,
                                 .num_sms = static_cast<int>(num_sms),
                                 .max_smem_bytes = facts.smem_bytes,
                                 .l2_bytes = int64_t{l2_mib} << 20});
}

/// The calls of this thread; 0: they run again. What was remembered of earlier calls with the same tensors is void.
void record_thread(int64_t number) {
    require(number == 0 || Recorder::of_thread() == nullptr, "this thread's calls are recorded already");
    Recorder::choose_for_thread(number == 0 ? nullptr : &Recorders::get().find(number));
    Generation::advance();
}

Object take_recorded(int64_t number) {
    Recorder::Noted noted;
    if (!Recorders::get().find(number).take(noted)) return {};
    return {{"name", noted.name}, {"text", noted.text}, {"target", noted.target}};
}

void close_recorder(int64_t number) { Recorders::get().remove(number); }

/// Throws, saying why, on a machine without a driver.
Object cuda_driver() {
    const CudaDriverFacts driver = cuda_driver_facts();
    return {{"version", driver.version}, {"device_count", driver.device_count}};
}

Object device_facts(bool simulated, int64_t index) {
    const DeviceId id = simulated ? device_of_cpu_tensors() : DeviceId{.index = static_cast<int>(index)};
    const DeviceFacts& device = Device::get(id).facts();
    const std::optional<Arch> arch = find_arch(device.target);
    return {{"name", device.name},
            {"arch", std::string(arch ? name(*arch) : "")},
            {"arch_major", device.arch_major},
            {"arch_minor", device.arch_minor},
            {"target", device.target},
            {"num_sms", device.num_sms},
            {"max_smem_bytes", device.max_smem_bytes},
            {"l2_bytes", device.l2_bytes}};
}

/// Runs any kernel whose one argument is a struct of pointers (the tensors) and then 64-bit integers (the numbers), on
/// the device and torch stream of the first tensor. `name` is its extern "C" symbol. The tests of this runtime use it;
/// the library's calls do not.
void jit_launch(const std::string& name, const std::string& text, int64_t grid, int64_t block, int64_t cluster,
                int64_t smem_bytes, bool dependent_launch, const std::vector<TensorView>& tensors,
                const Integers& numbers) {
    require(!tensors.empty(), "a launch needs at least one tensor: it says which device to use");
    const DLDevice where = tensors[0].device();
    require_type(where.device_type == kDLCPU || where.device_type == kDLCUDA,
                 "tensors must be on a CPU or a CUDA device");
    const bool simulated = where.device_type == kDLCPU;
    Device& device = Device::get(simulated ? device_of_cpu_tensors() : DeviceId{.index = where.device_id});
    std::vector<uint64_t> params;
    std::vector<Extent> extents;
    for (const TensorView& tensor : tensors) {
        extents.push_back({tensor.data(), tensor.contiguous_bytes(), "tensor", true});
        params.push_back(reinterpret_cast<uint64_t>(tensor.data()));
    }
    for (const int64_t number : numbers) params.push_back(static_cast<uint64_t>(number));
    const LaunchShape shape{static_cast<uint32_t>(grid), static_cast<uint32_t>(block), static_cast<uint32_t>(cluster),
                            static_cast<uint32_t>(smem_bytes), dependent_launch};
    const Kernel* kernel = jit::get_kernel(device, {.name = name, .text = text}, shape.smem_bytes);
    void* stream = simulated ? nullptr : TVMFFIEnvGetStream(where.device_type, where.device_id);
    device.launch(*kernel, shape, params.data(), params.size() * sizeof(uint64_t), stream, extents);
}

/// How many clusters of this size, of CTAs with so many threads and so much shared memory, a device runs at once.
int64_t jit_max_clusters(bool simulated, int64_t index, const std::string& name, const std::string& text, int64_t block,
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
DEEP_GEMM_EXPORT(open_recorder, deep_gemm::open_recorder);
DEEP_GEMM_EXPORT(gpus, deep_gemm::gpus);
DEEP_GEMM_EXPORT(card_facts, deep_gemm::card_facts);
DEEP_GEMM_EXPORT(record_thread, deep_gemm::record_thread);
DEEP_GEMM_EXPORT(take_recorded, deep_gemm::take_recorded);
DEEP_GEMM_EXPORT(close_recorder, deep_gemm::close_recorder);
DEEP_GEMM_EXPORT(jit_statistics, deep_gemm::jit_statistics);
DEEP_GEMM_EXPORT(cuda_driver, deep_gemm::cuda_driver);
DEEP_GEMM_EXPORT(device_facts, deep_gemm::device_facts);
DEEP_GEMM_EXPORT(jit_launch, deep_gemm::jit_launch);
DEEP_GEMM_EXPORT(jit_max_clusters, deep_gemm::jit_max_clusters);
