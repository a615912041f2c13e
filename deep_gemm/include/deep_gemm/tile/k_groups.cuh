// Where the groups of a K-grouped problem lie along K, from counts that only the device knows.
//
// Each group's K is padded to whole K blocks, and these blocks are numbered through: FP8 scales have one entry for
// each, and so do operands that were copied to multiples of 128.
#pragma once

#include <deep_gemm/params.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/tile/group_plan.cuh>

namespace deep_gemm {

struct KGroup {
    int32_t begin, k;  // first element of K in the caller's operands, and number of elements
    int32_t first_block, blocks;
    int32_t first_word;  // of scales: no word is for two groups
};

/// Of values from 0 to `most`, which the sum does not exceed either: counts that make no sense must not overflow.
DG_DEVICE int32_t capped_sum(int32_t x, int32_t y, int32_t most) {
    return static_cast<int32_t>(min(static_cast<uint32_t>(x) + static_cast<uint32_t>(y), static_cast<uint32_t>(most)));
}

/// Sum over this lane and those below it.
DG_DEVICE int32_t sum_up_to_lane(int32_t value, int32_t most) {
#pragma unroll
    for (int32_t distance = 1; distance < 32; distance *= 2) {
        const int32_t other = __shfl_up_sync(0xffffffff, value, distance);
        if (static_cast<int32_t>(threadIdx.x % 32) >= distance) value = capped_sum(value, other, most);
    }
    return value;
}

/// One warp: `visit(group, KGroup)` for each group, by one lane each. Blocks are of kBlock, and words of scales,
/// where they are not one a block, of kWordK. Whatever the device's values are, groups lie in [0, k_end), and their
/// blocks in [0, block_end).
template <int32_t kBlock = kScaleGroupK, int32_t kWordK = kBlock, typename Visit>
DG_DEVICE void visit_k_groups(const KGroupLayout& layout, const Visit& visit) {
    const auto value_of = [&](int32_t group) {
        return min(max(ptx::load_global_int(layout.values + group), 0), layout.k_end);
    };
    int32_t k_before = 0, blocks_before = 0, words_before = 0;
    for (int32_t first = 0; first < layout.num_groups; first += 32) {
        const int32_t group = first + static_cast<int32_t>(threadIdx.x % 32);
        KGroup found = {};
        if (group < layout.num_groups) {
            found.k = value_of(group);
            if (layout.psum_alignment > 0 && group > 0) {
                const uint32_t alignment = layout.psum_alignment,
                               begin = (value_of(group - 1) + alignment - 1) / alignment * alignment;
                found.begin = static_cast<int32_t>(min(begin, static_cast<uint32_t>(layout.k_end)));
                found.k = max(found.k - found.begin, 0);
            }
        }
        found.blocks = min((found.k - 1) / kBlock + (found.k > 0), layout.block_end);
        const int32_t k_end = capped_sum(k_before, sum_up_to_lane(found.k, layout.k_end), layout.k_end),
                      blocks_end =
                          capped_sum(blocks_before, sum_up_to_lane(found.blocks, layout.block_end), layout.block_end);
        if (layout.psum_alignment == 0) found.begin = k_end - found.k;
        found.first_block = blocks_end - found.blocks;
        if constexpr (kWordK != kBlock) {
            constexpr int32_t kWordBlocks = kWordK / kBlock;  // 0: a block has several words
            const int32_t words = kWordBlocks > 0 ? (found.blocks + kWordBlocks - 1) / kWordBlocks
                                                  : (found.k - 1) / kWordK + (found.k > 0),
                          most = kWordBlocks > 0 ? layout.block_end : layout.k_end,
                          words_end = capped_sum(words_before, sum_up_to_lane(words, most), most);
            found.first_word = words_end - words;
            words_before = __shfl_sync(0xffffffff, words_end, 31);
        }
        if (group < layout.num_groups) visit(group, found);
        k_before = __shfl_sync(0xffffffff, k_end, 31);
        blocks_before = __shfl_sync(0xffffffff, blocks_end, 31);
    }
}

struct KBlocks {
    int32_t first, count;
};

/// K blocks that share a word of scales.
constexpr int32_t blocks_per_word(const GemmConfig& c, const Scaling& scaling) {
    return scaling.in_instruction() && word_k(scaling) > c.tile.k ? word_k(scaling) / c.tile.k : 1;
}

/// K blocks of a launch's groups, gathered once a CTA into shared memory.
template <Constant<GemmConfig> c>
struct KGroupTable {
    uint32_t base;

    /// `index` counts from the launch's first group.
    DG_DEVICE KBlocks blocks(int32_t index) const {
        const int4 v = ptx::load_shared_int_x4(base + index * kGroupEntryBytes);
        return {v.x, v.y};
    }

    /// The group's first word of scales, where they are not one a K block.
    DG_DEVICE int32_t first_word(int32_t index) const {
        return ptx::load_shared_int(base + index * kGroupEntryBytes + kFirstWord);
    }

    /// Elements of K, which the last block need not be full of.
    DG_DEVICE int32_t k(int32_t index) const {
        return ptx::load_shared_int(base + index * kGroupEntryBytes + kElements);
    }

    /// All threads of the CTA may call it, the first warp works. Synchronise before reading.
    template <int32_t kThreads>
    DG_DEVICE void fill(const GemmParams& params) const {
        if (threadIdx.x >= 32) return;
        visit_k_groups<c.tile.k, kWordK>(params.k_groups, [&](int32_t group, const KGroup& found) {
            const int32_t index = group - params.first_group;
            if (index >= 0 && index < params.num_groups)
                ptx::store_shared_int_x4(base + index * kGroupEntryBytes, found.first_block, found.blocks,
                                         found.first_word, found.k);
        });
    }

private:
    static constexpr uint32_t kFirstWord = 8, kElements = 12;
    static constexpr int32_t kOfA = blocks_per_word(c, c.a.scaling), kOfB = blocks_per_word(c, c.b.scaling),
                             kWordBlocks = kOfA < kOfB ? kOfB : kOfA,
                             kWordK = c.tile.k * kWordBlocks / words_per_block(c.a.scaling, c.tile.k);
};

}  // namespace deep_gemm
