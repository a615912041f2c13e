// What the scheduler asks of a warp's fragments.
#pragma once

#include <random>

#include "machine.hpp"

namespace deep_gemm::simulator {

bool runnable(const Warp& warp, const Fragment& fragment);
bool runnable(const Warp& warp);
void leave_fragment(Warp& warp);
void enter_fragment(Warp& warp, size_t index);
/// Join fragments that stand at the same place. Those that wait for something else than each other stay apart, and so
/// do drifting ones that could go on.
void merge(Warp& warp);
/// The fragment to run next: the one furthest behind, so that the others can catch up, or while lanes drift the one
/// that ran last; -1 if all wait.
int choose_fragment(const Warp& warp);
/// bar.warp.sync may be met at different places: lanes of its mask that all stand at one of them go on.
void release_warp_syncs(Warp& warp);
/// In some turns of the random schedule, one part of a warp's lanes runs ahead of the others.
void maybe_drift(Warp& warp, std::mt19937_64& random);

enum class Gathered { yes, skip, no };
/// May this instruction execute now, given who is here?
Gathered gather(Warp& warp, const Instruction& in, uint32_t lanes);

}  // namespace deep_gemm::simulator
