// Words as four bytes.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

/// vabsdiff4: |a - b| of each signed byte.
DG_DEVICE uint32_t absolute_differences(uint32_t a, uint32_t b) {
    uint32_t differences;
    asm("vabsdiff4.u32.s32.s32 %0, %1, %2, %3;" : "=r"(differences) : "r"(a), "r"(b), "r"(0));
    return differences;
}

}  // namespace deep_gemm::ptx
