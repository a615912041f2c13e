// How often the FFMA of a kernel let the scheduler turn to another warp: bits of the machine code that no source can
// set.
//
// Beside each instruction stand hints for the scheduler. `yield`: turn to another warp, if one is ready. `reuse`: keep
// an operand for the next instruction, which then need not read it from the register file. ptxas makes every second
// FFMA behind a wait for wgmma yield, if the wgmma were issued in the same round of a loop, and none otherwise. While
// other warps' wgmma are under way, which live on the register file too, the one or the other is up to 10 % slower than
// what is right for a kernel (docs/performance.md, "FFMA that yield"). So its source says what it wants:
//
//     // FFMA yield: 1 of 8
//
// Both bits are hints: whatever they say, results are the same.
#pragma once

#include <optional>
#include <string>

namespace deep_gemm::jit {

/// The line of a source whose every `every`th FFMA is to yield; 0: none.
std::string ffma_yields_line(int every);

/// What a source asks for; nothing: as ptxas has it. Throws where nobody can tell.
std::optional<int> ffma_yields_of(const std::string& source);

/// Makes every `every`th FFMA of a run yield, and the others keep operands that the next one reads again. A run ends
/// where something is multiplied, waited for or jumped to. `cubin` is of sm_90: another architecture may encode
/// instructions in another way. (Entries of the disk cache hold what this made: a change here is one of kFormat there.)
void set_ffma_yields(std::string& cubin, int every);

}  // namespace deep_gemm::jit
