// The steps of a launch, for one device and for several.
#pragma once

#include "machine.hpp"

namespace deep_gemm::simulator {

// --- build.cpp
/// Fills in a launch, whose arguments live as long as it does. Throws where it cannot be made.
void prepare(LaunchState& launch, const Module& module, const Launch& given, const Options& options);
std::unique_ptr<Cluster> build_cluster(LaunchState& launch, uint32_t index);

// --- launch.cpp
/// What is left behind when a cluster has ended.
void finish_cluster(Cluster& cluster);
/// Adds what a cluster has counted, by instruction and else, whether it came to its end or not.
void add_counts(LaunchState& launch, Cluster& cluster, std::vector<uint64_t>& counts);
/// Of a launch that has ended, but for how long it took.
Report report_of(LaunchState& launch, const std::vector<uint64_t>& counts);

}  // namespace deep_gemm::simulator
