// SM80 and what follows it without wgmma: what its kernels can choose beside a tile.
#pragma once

#include <deep_gemm/format.cuh>

namespace deep_gemm::sm80 {

struct Schedule {
    int32_t row_warps = 2;  // of a CTA, that divide a tile's rows, as TilePlan::col_warps its columns
    int32_t k_warps = 1;    // and K of a stage: they add up at the end of a tile
    int32_t ctas_per_sm = 1;
    bool copy_engine = false;               // brings stages; else threads do
    Element multiplied_as = Element::bf16;  // what the instruction takes: operands are converted to it in registers

    constexpr bool operator==(const Schedule&) const = default;
};

}  // namespace deep_gemm::sm80
