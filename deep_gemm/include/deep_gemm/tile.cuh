// How a kernel cuts its task up, on any architecture.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

/// Extents of one CTA's tile in the frame of the matrix instruction: `rows` lie on its M side, `cols` on its N side.
/// `k` is what one stage of the ring holds.
struct TileShape {
    int32_t rows, cols, k;
    constexpr bool operator==(const TileShape&) const = default;
};

/// CTAs of a cluster. Those that differ in `rows` share the cols operand, those that differ in `cols` share the rows
/// operand (both multicast), those that differ in `k` split K and add up through distributed shared memory: of every
/// tile, or of the last ones (SplitK::last_tiles).
struct ClusterShape {
    int32_t rows = 1, cols = 1, k = 1;
    constexpr bool operator==(const ClusterShape&) const = default;
    constexpr int32_t size() const { return rows * cols * k; }
};

enum class StoreKind : int32_t {
    tma,         // staged in shared memory, written by the copy engine, clipped at D's edges
    tma_add,     // the same, FP32 added to what D holds, by the L2: C is D, and nobody waits for it
    direct,      // registers to global memory: a D whose rows do not start at multiples of 16 bytes, and some FP32
    direct_add,  // the same, FP32 added to what D holds
};

/// How K is split, beside the CTAs that ClusterShape has for it.
struct SplitK {
    int32_t warpgroups = 1;      // of a CTA, that take the K blocks of the same rows in turn, and add up at the end
    bool last_tiles = false;     // CTAs that differ in cluster.k take tiles by themselves, and split K only of those
                                 // that would leave most of a last wave idle
    bool parts_in_ring = false;  // parts of a sum, and D, go where stages were, which leaves room for more stages
    constexpr bool operator==(const SplitK&) const = default;
};

/// How a tile of D leaves the CTA.
struct StorePlan {
    StoreKind kind = StoreKind::tma;
    int32_t buffers = 1;  // staged chunks of D that a warp may have under way
    constexpr bool operator==(const StorePlan&) const = default;
};
constexpr bool is_staged(const StorePlan& store) {
    return store.kind == StoreKind::tma || store.kind == StoreKind::tma_add;
}
constexpr bool adds_to_memory(const StorePlan& store) {
    return store.kind == StoreKind::tma_add || store.kind == StoreKind::direct_add;
}

struct TilePlan {
    bool swap_ab =
        false;  // false: rows are A's (tokens), cols are B's (weights). true: the other way round, D stored transposed
    TileShape tile = {128, 128, 128};
    ClusterShape cluster = {};
    int32_t col_warps = 1;  // of a CTA, that divide a tile's columns, where warps hold sums in registers
    SplitK split_k = {};
    int32_t stages = 4;  // of the ring
    StorePlan store = {};
    bool stream_b =
        false;  // B's lines leave the L2 first and A's last: no CTA comes back for B when the tiles under way are done
    int32_t tensor_core_percent = 100;  // below 100 the load role paces the tensor cores
    int32_t group_capacity = 0;         // most groups whose sizes only the device knows
    bool skips_padding = false;  // 64 rows of a tile that hold nothing but padding are neither copied nor multiplied
    bool group_maps = false;  // K groups are matrices of their own, each with its tensor maps in the kernel's argument

    constexpr bool operator==(const TilePlan&) const = default;
    /// Whether copies go to other CTAs of the cluster too.
    constexpr bool multicasts() const { return cluster.rows * cluster.cols > 1; }
    /// CTAs that split K of every tile, and those of a cluster that walk the same tiles.
    constexpr int32_t k_ctas() const { return split_k.last_tiles ? 1 : cluster.k; }
    constexpr int32_t tile_ctas() const { return cluster.rows * cluster.cols * k_ctas(); }
    /// Along M and N: a CTA's tile, CTAs of its cluster, and what they cover together.
    constexpr int32_t tile_m() const { return swap_ab ? tile.cols : tile.rows; }
    constexpr int32_t tile_n() const { return swap_ab ? tile.rows : tile.cols; }
    constexpr int32_t cluster_m() const { return swap_ab ? cluster.cols : cluster.rows; }
    constexpr int32_t cluster_n() const { return swap_ab ? cluster.rows : cluster.cols; }
    constexpr int32_t super_tile_m() const { return tile_m() * cluster_m(); }
    constexpr int32_t super_tile_n() const { return tile_n() * cluster_n(); }
};

/// Tiles of one matrix.
constexpr int32_t dense_tiles(const TilePlan& plan, int32_t m, int32_t n) {
    return ceil_div(m, plan.tile_m()) * ceil_div(n, plan.tile_n());
}

/// Of these, how many of the last wave CTAs share (SplitK::last_tiles): there must be a pair for each.
constexpr int32_t shared_tiles(const TilePlan& plan, int64_t tiles, int32_t ctas) {
    const int32_t last = static_cast<int32_t>(tiles % ctas);
    return plan.split_k.last_tiles && last <= ctas / 2 ? last : 0;
}

/// Whether the host says which cluster walks where (GemmParams::cta_order).
constexpr bool has_cta_order(const TilePlan& plan) { return plan.cluster.size() > 1 && plan.cluster.rows == 1; }

/// Rows that the last tile along an extent copies: what is left, in whole swizzle atoms. The copy engine takes
/// about 4 cycles for each row beyond the tensor (docs/notes/tried.md), and a box of the full height would have
/// many of them. Nothing writes the rest of the stage; what it holds reaches only rows and columns of the product that
/// are not stored.
constexpr int32_t last_box(int32_t extent, int32_t tile) {
    return extent % tile == 0 ? tile : align_up(extent % tile, 8);
}

/// What one copy of a staged D takes away: in D's own frame `inner` runs along N and `outer` along M.
struct StoreChunk {
    int32_t inner, outer;  // elements
    int32_t count;         // chunks of the 16 rows
    int32_t element_bytes;
    constexpr int32_t bytes() const { return outer * swizzle_bytes(); }
    constexpr int32_t swizzle_bytes() const { return inner * element_bytes; }
};

}  // namespace deep_gemm
