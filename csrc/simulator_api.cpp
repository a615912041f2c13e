// What deep_gemm/simulator.py calls: options of the CPU device, its reports, and runs of any PTX text. Bindings only.

#include <cstring>
#include <memory>
#include <utility>

#include "api/call/generation.hpp"
#include "device/simulator/simulator_device.hpp"
#include "util/ffi.hpp"
#include "util/require.hpp"

namespace deep_gemm {
namespace {

using ffi::Bytes;
using Integers = std::vector<int64_t>;

Object simulator_options() {
    const simulator::DeviceOptions options = simulator::device_options();
    return {{"target", options.target},
            {"num_sms", options.num_sms},
            {"schedule", simulator::name(options.run.schedule)},
            {"seed", static_cast<int64_t>(options.run.seed)},
            {"hazards", simulator::name(options.run.hazards)},
            {"rules", simulator::name(options.run.rules)},
            {"threads", options.run.threads},
            {"timeline", options.run.timeline}};
}

void set_simulator_options(const std::string& target, int64_t num_sms, const std::string& schedule, int64_t seed,
                           const std::string& hazards, const std::string& rules, int64_t threads, bool timeline) {
    simulator::DeviceOptions options;
    options.target = target;
    options.num_sms = static_cast<int>(num_sms);
    options.run.schedule = simulator::parse_schedule(schedule);
    options.run.seed = static_cast<uint64_t>(seed);
    options.run.hazards = simulator::parse_hazard_mode(hazards);
    options.run.rules = simulator::parse_rules(rules);
    options.run.threads = static_cast<int>(threads);
    options.run.timeline = timeline;
    simulator::set_device_options(options);
    Generation::advance();  // another target or number of SMs is another device
}

/// JSON list of {"kernel", "report"}, the newest launch last.
std::string simulator_reports() {
    std::string text = "[";
    for (const auto& [kernel, report] : simulator::reports())
        text += concat(text.size() > 1 ? ", " : "", "{\"kernel\": \"", kernel,
                       "\", \"report\": ", simulator::to_json(report), "}");
    return text + "]";
}

void clear_simulator_reports() { simulator::clear_reports(); }

void shape_of(const Integers& given, uint32_t* shape) {
    require(given.size() <= 3, "a shape has at most three dimensions");
    for (size_t i = 0; i < given.size(); ++i) shape[i] = static_cast<uint32_t>(given[i]);
}

std::vector<Extent> extents_of(const std::vector<TensorView>& tensors, const Integers& writable) {
    require(tensors.size() == writable.size(), "each tensor needs a word on whether it may be written");
    std::vector<Extent> extents;
    for (size_t i = 0; i < tensors.size(); ++i)
        extents.push_back({tensors[i].data(), tensors[i].contiguous_bytes(), "tensor", writable[i] != 0});
    return extents;
}

simulator::Options options_of(const std::string& schedule, int64_t seed, const std::string& hazards,
                              const std::string& rules, int64_t threads) {
    simulator::Options options;
    options.schedule = simulator::parse_schedule(schedule);
    options.seed = static_cast<uint64_t>(seed);
    options.hazards = simulator::parse_hazard_mode(hazards);
    options.rules = simulator::parse_rules(rules);
    options.threads = static_cast<int>(threads);
    return options;
}

/// Run PTX text. `tensors` are the memory that it may touch, of which those with `writable` true it may write.
std::string simulator_run(const std::string& ptx, const std::string& entry, const Integers& grid, const Integers& block,
                          const Integers& cluster, int64_t smem_bytes, const Bytes& params,
                          const std::vector<TensorView>& tensors, const Integers& writable, const std::string& schedule,
                          int64_t seed, const std::string& hazards, const std::string& rules, int64_t threads,
                          bool timeline) {
    const std::vector<Extent> extents = extents_of(tensors, writable);
    simulator::Launch launch;
    launch.entry = entry.empty() ? nullptr : entry.c_str();
    shape_of(grid, launch.grid);
    shape_of(block, launch.block);
    shape_of(cluster, launch.cluster);
    launch.smem_bytes = static_cast<uint32_t>(smem_bytes);
    launch.params = params.content.data();
    launch.params_bytes = params.content.size();
    launch.extents = extents;
    simulator::Options options = options_of(schedule, seed, hazards, rules, threads);
    options.timeline = timeline;
    const auto module = simulator::load(ptx);
    return simulator::to_json(simulator::run(*module, launch, options));
}

/// What devices that run together are given, one after the other, by the thread that then runs them.
struct Added {
    std::string entry, params;
    std::vector<Extent> extents;
    simulator::DeviceLaunch launch;
};
thread_local std::vector<std::unique_ptr<Added>> added;

void simulator_add_device(const std::string& ptx, const std::string& entry, const Integers& grid, const Integers& block,
                          const Integers& cluster, int64_t smem_bytes, const Bytes& params,
                          const std::vector<TensorView>& tensors, const Integers& writable) {
    auto one = std::make_unique<Added>();
    one->entry = entry, one->params = params.content, one->extents = extents_of(tensors, writable);
    one->launch.module = simulator::load(ptx), one->launch.device = static_cast<uint32_t>(added.size());
    simulator::Launch& launch = one->launch.launch;
    launch.entry = one->entry.empty() ? nullptr : one->entry.c_str();
    shape_of(grid, launch.grid);
    shape_of(block, launch.block);
    shape_of(cluster, launch.cluster);
    launch.smem_bytes = static_cast<uint32_t>(smem_bytes);
    launch.params = one->params.data(), launch.params_bytes = one->params.size();
    launch.extents = one->extents;
    added.push_back(std::move(one));
}

/// Launches of this thread's calls are added, and not run, as those of a device; -1: they run again. What they touch
/// must live until all have run.
void simulator_add_launches_of(int64_t device) {
    if (device < 0) {
        simulator::take_launch = nullptr;
        return;
    }
    simulator::take_launch = [device](const auto& module, const simulator::Launch& launch) {
        auto one = std::make_unique<Added>();
        one->entry = launch.entry, one->params.assign(static_cast<const char*>(launch.params), launch.params_bytes);
        one->extents.assign(launch.extents.begin(), launch.extents.end());
        one->launch = {module, launch, static_cast<uint32_t>(device)};
        one->launch.launch.entry = one->entry.c_str(), one->launch.launch.params = one->params.data();
        one->launch.launch.extents = one->extents;
        added.push_back(std::move(one));
    };
}

void simulator_forget_devices() { added.clear(); }

/// JSON list of {"kernel", "report"}, one for each launch that was added.
std::string simulator_run_devices(const std::vector<TensorView>& shared, const std::string& schedule, int64_t seed,
                                  const std::string& hazards, const std::string& rules) {
    const auto devices = std::exchange(added, {});
    std::vector<simulator::DeviceLaunch> launches;
    for (const auto& one : devices) launches.push_back(one->launch);
    std::vector<Extent> extents = extents_of(shared, Integers(shared.size(), 1));
    for (const auto& one : devices)  // what blocks of one launch tell each other
        std::copy_if(one->extents.begin(), one->extents.end(), std::back_inserter(extents),
                     [](const Extent& extent) { return extent.exchanged; });
    const simulator::Options options = options_of(schedule, seed, hazards, rules, 1);
    const auto reports = simulator::collect_devices(launches, extents, options);
    std::string text = "[";
    for (size_t i = 0; i < reports.size(); ++i) {
        if (options.hazards == simulator::HazardMode::error)
            simulator::raise_first(reports[i], devices[i]->entry.c_str());
        text += concat(i > 0 ? ", " : "", "{\"kernel\": \"", devices[i]->entry,
                       "\", \"report\": ", simulator::to_json(reports[i]), "}");
    }
    return text + "]";
}

/// The 128 bytes of a tensor map; `strides_bytes` of dimensions 1 and up.
Bytes simulator_tensor_map(int64_t address, int64_t type, const Integers& sizes, const Integers& strides_bytes,
                           const Integers& box, int64_t swizzle) {
    TensorMapSpec spec;
    spec.address = reinterpret_cast<void*>(address);
    spec.type = static_cast<TensorMapType>(type);
    spec.rank = static_cast<int>(sizes.size());
    spec.swizzle = static_cast<TensorMapSwizzle>(swizzle);
    require(box.size() == sizes.size() && (sizes.empty() || strides_bytes.size() + 1 == sizes.size()),
            "sizes, strides and box disagree on the rank");
    require(sizes.size() <= 5, "a tensor map has 1 to 5 dimensions, not ", sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
        spec.sizes[i] = static_cast<uint64_t>(sizes[i]);
        spec.box[i] = static_cast<uint32_t>(box[i]);
        if (i > 0) spec.strides_bytes[i - 1] = static_cast<uint64_t>(strides_bytes[i - 1]);
    }
    const EncodedTensorMap map = simulator::encode(spec);
    return {std::string(reinterpret_cast<const char*>(&map), sizeof(map))};
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(simulator_options, deep_gemm::simulator_options);
DEEP_GEMM_EXPORT(set_simulator_options, deep_gemm::set_simulator_options);
DEEP_GEMM_EXPORT(simulator_reports, deep_gemm::simulator_reports);
DEEP_GEMM_EXPORT(clear_simulator_reports, deep_gemm::clear_simulator_reports);
DEEP_GEMM_EXPORT(simulator_run, deep_gemm::simulator_run);
DEEP_GEMM_EXPORT(simulator_add_device, deep_gemm::simulator_add_device);
DEEP_GEMM_EXPORT(simulator_add_launches_of, deep_gemm::simulator_add_launches_of);
DEEP_GEMM_EXPORT(simulator_forget_devices, deep_gemm::simulator_forget_devices);
DEEP_GEMM_EXPORT(simulator_run_devices, deep_gemm::simulator_run_devices);
DEEP_GEMM_EXPORT(simulator_tensor_map, deep_gemm::simulator_tensor_map);
