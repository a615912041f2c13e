// How often the FFMA of a kernel let the scheduler turn to another warp: bits of the machine code that no source can
// set.
//
// Beside each instruction stand hints for the scheduler. `yield`: turn to another warp, if one is ready. `reuse`: keep
// an operand for the next instruction, which then need not read it from the register file. ptxas makes every second
// FFMA behind a wait for wgmma yield, if the wgmma were issued in the same round of a loop, and none otherwise. While
// other warps' wgmma are under way, which live on the register file too, the one or the other is up to 10 % slower than
// what is right for a kernel (docs/notes/tried.md, "FFMA that yield"). So its source says what it wants:
//
//     // FFMA yield: 1 of 8
//
// (config/sm90/ffma_line.hpp.)
// Both bits are hints: whatever they say, results are the same.
#pragma once

#include <string>

namespace deep_gemm::jit::sm90 {

/// Makes every `every`th FFMA of a run yield where the source asks for it, and the others keep operands that the next
/// one reads again. A run ends where something is multiplied, waited for or jumped to. Throws where nobody can tell
/// what the source asks for.
void finish_ffma_yields(const std::string& source, std::string& cubin);

}  // namespace deep_gemm::jit::sm90
