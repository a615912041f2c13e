// Hopper: what is there for the compiler's sake alone (ptxas of CUDA 13.0), with what it gains: a class's calls would
// take so much longer without (docs/notes/tuning-gains.md).
#pragma once

#include <deep_gemm/arch/sm90_loop.cuh>

namespace deep_gemm {

struct CompilerHints {
    /// The place in the ring, and the descriptors made of it, belong in uniform registers. Where ptxas is not sure that
    /// all lanes count K blocks alike, as behind a scheduler that loads, it moves each of them there (R2UR) while wgmma
    /// waits for it. tests/kernels/test_every_kernel.py looks for such moves. (psum 3.4 %, one BF16 case 6.3 %)
    bool makes_count_uniform;

    /// Late tiles ask whether there are K blocks only where there may be none. Without the question, ptxas does not see
    /// that all lanes of a masked kernel count alike; with it, a tile stored late has its code twice, and 256x128
    /// spills. (4 to 8 experts 23 %)
    bool never_empty;

    /// Three warpgroups in turn make the address of row scales anew for each K block: they are slower with it in a
    /// register; why is not known. (one dense case 4.3 %)
    bool forgets_row;
};

constexpr CompilerHints compiler_hints(const GemmConfig& c) {
    const bool same_for_all = has_fixed_extents(c.grouping) && !c.split_k.last_tiles;  // a count of the argument's
    const bool may_be_empty =
        c.grouping == Grouping::m_psum || (c.grouping == Grouping::k_contiguous && !adds_to_memory(c.store));
    return {.makes_count_uniform = !same_for_all || (!c.scaled() && c.cluster.k > 1),
            .never_empty = stores_late(c) && !may_be_empty,
            .forgets_row = c.scaled() && !c.sm90.look_ahead && !overlaps_blocks(c)};
}

}  // namespace deep_gemm
