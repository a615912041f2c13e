// The simulator as a device. Launches run at once, in the caller's thread and helpers, and are over when launch
// returns.
#include "simulator_device.hpp"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "../../util/require.hpp"
#include "core/targets.hpp"

namespace deep_gemm::simulator {

namespace {

constexpr int64_t kL2Bytes = int64_t(50) << 20;
constexpr size_t kKeptReports = 64;

std::mutex state_mutex;  // guards the options and the reports
std::deque<std::pair<std::string, Report>> kept_reports;

std::string read(const char* variable) {
    const char* value = std::getenv(variable);
    return value ? value : "";
}

DeviceOptions from_environment() {
    DeviceOptions options;
    const auto number = [&](const char* variable, uint64_t otherwise, uint64_t least, uint64_t most) {
        const std::string text = read(variable);
        if (text.empty()) return otherwise;
        uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        require(error == std::errc() && end == text.data() + text.size() && value >= least && value <= most, variable,
                " must be a whole number from ", least, " to ", most, ", got '", text, "'");
        return value;
    };
    const auto checked = [&](const char* variable, auto&& take) {
        const std::string text = read(variable);
        if (text.empty()) return;
        try {
            take(text);
        } catch (const Error& error) {
            fail(error.kind(), variable, ": ", error.what());
        }
    };
    // The simulator is the GPU that it is told to be; told nothing, it is the one that GPUs stand in for.
    const char* const target = read("DG_SIM_TARGET").empty() ? "DG_TARGET" : "DG_SIM_TARGET";
    checked(target, [&](const std::string& text) { options.target = parse_target(text).name; });
    checked("DG_SIM_SCHEDULE", [&](const std::string& text) { options.run.schedule = parse_schedule(text); });
    checked("DG_SIM_HAZARDS", [&](const std::string& text) { options.run.hazards = parse_hazard_mode(text); });
    checked("DG_SIM_RULES", [&](const std::string& text) { options.run.rules = parse_rules(text); });
    options.run.seed = number("DG_SIM_SEED", options.run.seed, 0, UINT64_MAX);
    options.run.threads = int(number("DG_SIM_THREADS", options.run.threads, 0, INT32_MAX));
    options.num_sms = int(number("DG_SIM_NUM_SMS", options.num_sms, 1, INT32_MAX));
    return options;
}

DeviceOptions& current_options() {
    static DeviceOptions options = from_environment();
    return options;
}

DeviceFacts make_facts(const std::string& name, int num_sms) {
    const Target target = parse_target(name);
    DeviceFacts facts;
    facts.name = "PTX simulator (" + name + ")";
    facts.arch_major = int(target.number / 10);
    facts.arch_minor = int(target.number % 10);
    facts.target = name;
    facts.output = Output::ptx;
    facts.num_sms = num_sms;
    facts.max_smem_bytes = int(shared_bytes_of(target));
    facts.l2_bytes = kL2Bytes;
    return facts;
}

class SimulatedKernel final : public Kernel {
public:
    SimulatedKernel(std::shared_ptr<const Module> module, std::string entry)
        : module(std::move(module)), entry(std::move(entry)) {}
    const std::shared_ptr<const Module> module;
    const std::string entry;
};

/// Blocks that tell each other something take turns, all of them there from the beginning, and what they exchange is
/// followed by the memory model.
Report run_blocks(const std::shared_ptr<const Module>& module, const Launch& launch, std::span<const Extent> exchanged,
                  const Options& options) {
    if (exchanged.empty()) return collect(*module, launch, options);
    const DeviceLaunch one{module, launch};
    return std::move(collect_devices({&one, 1}, exchanged, options).front());
}

class SimulatorDevice final : public Device {
public:
    SimulatorDevice(const std::string& target, int num_sms) : Device({true, 0}, make_facts(target, num_sms)) {}

    EncodedTensorMap encode(const TensorMapSpec& spec) const override { return simulator::encode(spec); }

    const Kernel* load(const std::string& image, const char* entry, uint32_t smem_bytes) override {
        require(smem_bytes <= uint32_t(facts().max_smem_bytes), "the kernel wants ", smem_bytes,
                " bytes of shared memory, a block may have ", facts().max_smem_bytes);
        return new SimulatedKernel(simulator::load(image), entry);
    }

    void put(const Kernel& kernel, const LaunchShape& shape, const void* params, size_t params_bytes, void*,
             std::span<const Extent> extents) override {
        const auto& simulated = static_cast<const SimulatedKernel&>(kernel);
        Launch launch;
        launch.entry = simulated.entry.c_str();
        launch.grid[0] = shape.grid;
        launch.block[0] = shape.block;
        launch.cluster[0] = shape.cluster;
        launch.smem_bytes = shape.smem_bytes;
        launch.params = params;
        launch.params_bytes = params_bytes;
        if (take_launch) {
            launch.extents = extents;
            take_launch(simulated.module, launch);
            return;
        }
        std::vector<Extent> own, exchanged;
        for (const Extent& extent : extents) (extent.exchanged ? exchanged : own).push_back(extent);
        launch.extents = own;
        const Options options = device_options().run;
        Report report = run_blocks(simulated.module, launch, exchanged, options);
        {
            const std::lock_guard lock(state_mutex);
            kept_reports.emplace_back(simulated.entry, report);
            if (kept_reports.size() > kKeptReports) kept_reports.pop_front();
        }
        if (options.hazards == HazardMode::error) raise_first(report, launch.entry);
    }

    void read(void* target, const void* source, size_t bytes, void*) override { std::memcpy(target, source, bytes); }

    int max_clusters(const Kernel&, const LaunchShape& shape) override {
        return std::max(1, facts().num_sms / int(std::max(1u, shape.cluster)));
    }
};

}  // namespace

DeviceOptions device_options() {
    const std::lock_guard lock(state_mutex);
    return current_options();
}

void set_device_options(const DeviceOptions& options) {
    parse_target(options.target);
    require(options.num_sms >= 1, "the simulator needs at least one SM, got ", options.num_sms);
    require(options.run.threads >= 0, "threads must be 0 (one per core) or more, got ", options.run.threads);
    const std::lock_guard lock(state_mutex);
    current_options() = options;
}

Device& simulator_device(int index) {
    require(index == 0, "there is one simulator, cpu:0, not ", index);
    static std::map<std::pair<std::string, int>, SimulatorDevice>
        devices;  // never removed: kernels and plans keep pointers
    const std::lock_guard lock(state_mutex);
    const DeviceOptions& options = current_options();
    return devices.try_emplace({options.target, options.num_sms}, options.target, options.num_sms).first->second;
}

std::vector<std::pair<std::string, Report>> reports() {
    const std::lock_guard lock(state_mutex);
    return {kept_reports.begin(), kept_reports.end()};
}

void clear_reports() {
    const std::lock_guard lock(state_mutex);
    kept_reports.clear();
}

Schedule parse_schedule(const std::string& text) {
    if (text == "lazy") return Schedule::lazy;
    if (text == "eager") return Schedule::eager;
    require(text == "random", "the schedule must be lazy, eager or random, got '", text, "'");
    return Schedule::random;
}

HazardMode parse_hazard_mode(const std::string& text) {
    if (text == "error") return HazardMode::error;
    require(text == "report", "the hazard mode must be error or report, got '", text, "'");
    return HazardMode::report;
}

Rules parse_rules(const std::string& text) {
    if (text == "manual") return Rules::manual;
    require(text == "hardware", "the rules must be manual or hardware, got '", text, "'");
    return Rules::hardware;
}

const char* name(Schedule schedule) {
    return schedule == Schedule::lazy ? "lazy" : schedule == Schedule::eager ? "eager" : "random";
}
const char* name(HazardMode mode) { return mode == HazardMode::error ? "error" : "report"; }
const char* name(Rules rules) { return rules == Rules::manual ? "manual" : "hardware"; }

}  // namespace deep_gemm::simulator
