// The simulator as a device: what CPU tensors run on.
#pragma once

#include <functional>
#include <memory>

#include "../device.hpp"
#include "simulator.hpp"

namespace deep_gemm::simulator {

/// What the user chose. The environment (DG_SIM_*) gives the first values and is read once.
struct DeviceOptions {
    std::string target = "sm_90a";
    int num_sms = 4;  // a real GPU has 132; few keep persistent kernels persistent, and the simulation fast
    Options run;
};

DeviceOptions device_options();
void set_device_options(const DeviceOptions& options);

/// The device for the target and the number of SMs now chosen.
Device& simulator_device(int index);

/// Where there is one, launches of this thread are told to it, and not run.
inline thread_local std::function<void(const std::shared_ptr<const Module>&, const Launch&)> take_launch;

/// Reports of the launches since the last call of clear_reports, the newest last; at most the last 64.
std::vector<std::pair<std::string, Report>> reports();
void clear_reports();

Schedule parse_schedule(const std::string& text);
HazardMode parse_hazard_mode(const std::string& text);
Rules parse_rules(const std::string& text);
const char* name(Schedule schedule);
const char* name(HazardMode mode);
const char* name(Rules rules);

}  // namespace deep_gemm::simulator
