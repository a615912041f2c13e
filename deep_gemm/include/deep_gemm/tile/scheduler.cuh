// Which tiles a CTA computes, as finished coordinates. Every role of a CTA walks the same sequence on its own.
#pragma once

#include <deep_gemm/params.cuh>
#include <deep_gemm/tile/cluster_position.cuh>
#include <deep_gemm/tile/group_table.cuh>
#include <deep_gemm/tile/k_groups.cuh>

namespace deep_gemm {

/// Elements, not blocks. `row` and `col` are in the frame of the matrix instruction (GemmConfig::swap_ab).
struct Tile {
    int32_t row, col;
    int32_t group;
    int32_t k_block, k_blocks;  // first and count
    int32_t m_end;              // first row past the group's real ones (extent of D where groups have no end)
    int32_t shared;             // 1: the pair's other CTA has the other half of its K (SplitK::last_tiles)
};

/// Rows of a tile that hold anything but padding, in steps of 64 (GemmConfig::skips_padding).
DG_DEVICE int32_t wanted_rows(const Tile& tile) {
    return min(4, (tile.m_end - tile.row + kRunRows - 1) / kRunRows) * kRunRows;
}

/// Third coordinate of each tensor for a tile.
template <Constant<GemmConfig> c>
DG_DEVICE int32_t group_of_a(const Tile& tile) {
    return c.grouping == Grouping::masked || c.grouping == Grouping::batched ? tile.group : 0;
}
template <Constant<GemmConfig> c>
DG_DEVICE int32_t group_of_b(const Tile& tile) {
    return divides_k(c.grouping) ? 0 : tile.group;
}
template <Constant<GemmConfig> c>
DG_DEVICE int32_t group_of_d(const Tile& tile) {
    return c.grouping == Grouping::masked || has_equal_groups(c.grouping) ? tile.group : 0;
}

/// Walks the tiles of one matrix or one group: `strip` blocks of M together, all of N block by block, then the next
/// strip.
template <Constant<GemmConfig> c>
struct Rasterizer {
    /// K blocks that are not shared between CTAs.
    static constexpr int32_t kUnitBlocks = c.stages_of_block(), kUnitK = c.tile.k * kUnitBlocks;

    ClusterPosition<c> position;
    int32_t n_blocks, k_units;
    FastDivisor strip, raster_group_tiles;

    DG_DEVICE explicit Rasterizer(const GemmParams& params)
        : n_blocks((extent_n<c>(params) + c.super_tile_n() - 1) / c.super_tile_n()),
          // Read at run time even where K is compiled in: of a count that they know, the compiler and ptxas unroll and
          // peel the roles' loops until they spill, move accumulators about, or wait for each multiplication by itself
          // (C7514).
          k_units((params.k + kUnitK - 1) / kUnitK),
          strip(params.raster_group_blocks),
          raster_group_tiles(params.raster_group_tiles) {}

    /// This CTA's part of K.
    DG_DEVICE void share_k(Tile& tile) const {
        if constexpr (c.split_k.last_tiles) {
            // No branch, and the rank within a pair by the CTA's number: all lanes visibly count alike.
            const int32_t second = tile.shared & blockIdx.x;
            tile.k_block = second * (k_units >> 1) * kUnitBlocks;
            tile.k_blocks = ((k_units + second) >> tile.shared) * kUnitBlocks;
        } else {
            const int32_t first = k_units * position.k / c.cluster.k;
            tile.k_block = first * kUnitBlocks;
            tile.k_blocks = (k_units * (position.k + 1) / c.cluster.k - first) * kUnitBlocks;
        }
    }

    /// Coordinates of the `index`th super-tile of a group of `m_blocks` blocks that starts at row `m_start`.
    DG_DEVICE void place(Tile& tile, int32_t index, int32_t m_blocks, int32_t m_start) const {
        const int32_t full = static_cast<int32_t>(strip.divisor);
        const int32_t raster_group_index = raster_group_tiles.quotient(index),
                      rest = index - raster_group_index * static_cast<int32_t>(raster_group_tiles.divisor);
        const int32_t first = raster_group_index * full, height = min(full, m_blocks - first);
        const int32_t n_block = height == full ? strip.quotient(rest) : rest / height,
                      m_block = first + rest - n_block * height;
        const int32_t m = m_start + m_block * c.super_tile_m(), n = n_block * c.super_tile_n();
        tile.row = (c.swap_ab ? n : m) + position.row * c.tile.rows;
        tile.col = (c.swap_ab ? m : n) + position.col * c.tile.cols;
    }
};

/// Where this CTA begins to walk the tiles; from there it takes as many steps as CTAs, or clusters, walk beside it.
template <Constant<GemmConfig> c>
DG_DEVICE int32_t first_place(const GemmParams& params) {
    if constexpr (!has_cta_order(c)) return blockIdx.x / c.tile_ctas();
    const int32_t place = params.cta_order[blockIdx.x / c.cluster.size()];
    return c.split_k.last_tiles ? 2 * place + blockIdx.x % 2 : place;
}

/// Which tiles a CTA gets, by their numbers: of n CTAs (or clusters) each takes every n-th.
template <Constant<GemmConfig> c>
struct EvenDeal {
    int32_t next;

    DG_DEVICE EvenDeal(const GemmParams& params, const GroupTable<c>&) : next(first_place<c>(params)) {}
    DG_DEVICE void advance() { next += gridDim.x / c.tile_ctas(); }
};

/// `next` says whether there is another tile, and its K blocks; `place` says where it lies. Two calls, because the
/// second takes a while and multiplying can begin without it, unless the tile is kPlaced already. kReadsTable: only
/// behind the table of groups.
template <Constant<GemmConfig> c, typename Deal = EvenDeal<c>, Grouping = c.grouping, bool = has_group_table(c)>
class TileScheduler;

/// One matrix.
template <Constant<GemmConfig> c, typename Deal>
class TileScheduler<c, Deal, Grouping::dense, false> {
public:
    static constexpr bool kReadsTable = false;
    static constexpr bool kPlaced = false;

    DG_DEVICE TileScheduler(const GemmParams& params, const GroupTable<c>&)
        : params_(params), raster_(params), m_end_(extent_m<c>(params)), next_(first_place<c>(params)) {
        m_blocks_ = (m_end_ + kBlockM - 1) / kBlockM;
    }

    DG_DEVICE bool next(Tile& tile) {
        // A shared tile counts twice, for one CTA and the other. (Asked about the tile itself, ptxas does not see that
        // all lanes walk alike.)
        const int32_t tiles = m_blocks_ * raster_.n_blocks,
                      end = c.split_k.last_tiles ? 2 * tiles - params_.first_shared : tiles;
        if (next_ >= end) return false;
        if constexpr (c.split_k.last_tiles) tile.shared = min(max(next_ - params_.first_shared + 1, 0), 1);
        raster_.share_k(tile);
        tile.group = 0;
        tile.m_end = m_end_;
        at_ = next_;
        next_ += gridDim.x / c.tile_ctas();
        return true;
    }

    DG_DEVICE void place(Tile& tile) const {
        int32_t index = at_;
        if constexpr (c.split_k.last_tiles)
            if (tile.shared) index = params_.first_shared + (at_ - params_.first_shared) / 2;
        raster_.place(tile, index, m_blocks_, 0);
    }

private:
    static constexpr int32_t kBlockM = c.super_tile_m();
    const GemmParams& params_;
    Rasterizer<c> raster_;
    int32_t m_end_, m_blocks_, next_, at_ = 0;
};

/// Rows of all experts in one matrix, each row naming its expert. Experts start at multiples of the alignment, which a
/// tile's height divides, so that all rows of a tile that name an expert name the same one, mostly its first row.
///
/// Always one tile ahead, so that nobody waits for the first row's index.
template <Constant<GemmConfig> c, typename Deal>
class TileScheduler<c, Deal, Grouping::m_contiguous, false> {
public:
    static constexpr bool kReadsTable = false;
    static constexpr bool kPlaced = true;  // its expert could not be known without its place

    DG_DEVICE TileScheduler(const GemmParams& params, const GroupTable<c>&)
        : raster_(params),
          experts_(params.grouped_layout),
          num_groups_(params.num_groups),
          m_end_(extent_m<c>(params)),
          next_(first_place<c>(params)) {
        m_blocks_ = (m_end_ + kBlockM - 1) / kBlockM;
        look_ahead();
    }

    DG_DEVICE bool next(Tile& tile) {
        do {
            if (next_ >= m_blocks_ * raster_.n_blocks) return false;
            tile = ahead_;
            next_ += gridDim.x / c.tile_ctas();
            look_ahead();
            if (!names_expert(tile.group)) tile.group = look_further(c.swap_ab ? tile.col : tile.row);
        } while (!names_expert(tile.group));  // nothing but padding
        return true;
    }

    DG_DEVICE void place(const Tile&) const {}

private:
    DG_DEVICE bool names_expert(int32_t index) const {
        return static_cast<uint32_t>(index) < static_cast<uint32_t>(num_groups_);
    }

    /// The expert of a tile whose first row is padding. What names none is larger, without a sign, than what does.
    DG_DEVICE int32_t look_further(int32_t row) const {
        constexpr int32_t kAtOnce = 8;
        uint32_t least = ~0u;
#pragma unroll 1
        for (int32_t i = 0; i < kBlockM && !names_expert(least); i += kAtOnce) {
#pragma unroll
            for (int32_t j = 0; j < kAtOnce; ++j)
                least =
                    min(least, static_cast<uint32_t>(ptx::load_global_int(experts_ + min(row + i + j, m_end_ - 1))));
        }
        return static_cast<int32_t>(least);
    }

    DG_DEVICE void look_ahead() {
        if (next_ >= m_blocks_ * raster_.n_blocks) return;
        raster_.share_k(ahead_);
        raster_.place(ahead_, next_, m_blocks_, 0);
        ahead_.group = ptx::load_global_int(experts_ + (c.swap_ab ? ahead_.col : ahead_.row));
        ahead_.m_end = m_end_;
    }

    static constexpr int32_t kBlockM = c.tile_m();
    static_assert(kBlockM % 8 == 0);
    static_assert(c.cluster_m() == 1, "neighbours along M may belong to different experts");
    Rasterizer<c> raster_;
    const int32_t* experts_;
    int32_t num_groups_, m_end_, m_blocks_, next_;
    Tile ahead_ = {};
};

/// Groups whose rows the device counts; a table in shared memory says where each begins. Extents are read again for
/// each tile: the highest ones leave few registers.
template <Constant<GemmConfig> c, typename Deal, Grouping kGrouping>
class TileScheduler<c, Deal, kGrouping, true> {
public:
    static constexpr bool kReadsTable = true;
    static constexpr bool kPlaced =
        kGrouping == Grouping::m_psum || c.skips_padding;  // its place says how much of it is padding

    DG_DEVICE TileScheduler(const GemmParams& params, const GroupTable<c>& table)
        : params_(params), table_(table), entry_(table.entry(0)), deal_(params, table) {}

    DG_DEVICE bool next(Tile& tile) {
        const Rasterizer<c> raster(params_);
        // Rather than kept where three kinds of tiles leave no registers.
        if constexpr (c.skips_padding) entry_ = table_.entry(index_);
        while (entry_.group >= 0 && deal_.next >= entry_.block_end * raster.n_blocks) {
            blocks_before_ = entry_.block_end;
            entry_ = table_.entry(++index_);
        }
        if (entry_.group < 0) return false;
        raster.share_k(tile);
        tile.group = entry_.group;
        tile.m_end = entry_.row_end;
        at_ = deal_.next - blocks_before_ * raster.n_blocks;
        deal_.advance();
        if constexpr (kPlaced) {  // blocks of nothing but padding become zero
            locate(tile);
            if (kGrouping == Grouping::m_psum && (c.swap_ab ? tile.col : tile.row) >= tile.m_end) tile.k_blocks = 0;
        }
        return true;
    }

    DG_DEVICE void place(Tile& tile) const {
        if constexpr (!kPlaced) locate(tile);
    }

    /// Of the latest tile, when it has its place: which of all groups' blocks of rows it is.
    DG_DEVICE int32_t block_of_rows(const Tile& tile) const {
        return blocks_before_ + ((c.swap_ab ? tile.col : tile.row) - entry_.row_begin) / c.tile_m();
    }

private:
    DG_DEVICE void locate(Tile& tile) const {
        const Rasterizer<c> raster(params_);
        int32_t blocks = entry_.block_end - blocks_before_;
        if constexpr (c.skips_padding) {
            // A block with padding costs less: it comes by itself, behind the others. If it took turns with them, the
            // same CTAs would have it all along N, and with every expert.
            blocks = (entry_.row_end - entry_.row_begin) / c.tile_m();
            const int32_t behind = at_ - blocks * raster.n_blocks;
            if (behind >= 0) {
                tile.row = entry_.row_begin + blocks * c.tile_m();
                tile.col = behind * c.super_tile_n() + raster.position.col * c.tile.cols;
                return;
            }
        }
        raster.place(tile, at_, blocks, entry_.row_begin);
    }

    static_assert(c.cluster_m() == 1, "a cluster works on one group's block of rows");
    const GemmParams& params_;
    GroupTable<c> table_;
    GroupEntry entry_;
    Deal deal_;
    int32_t at_ = 0, index_ = 0, blocks_before_ = 0;
};

/// One product per range of K, all of the same extents. Extents are read again for each tile: registers are short where
/// there are three math warpgroups.
template <Constant<GemmConfig> c, typename Deal>
class TileScheduler<c, Deal, Grouping::k_contiguous, false> {
public:
    static constexpr bool kReadsTable = true;
    static constexpr bool kPlaced = false;

    DG_DEVICE TileScheduler(const GemmParams& params, const KGroupTable<c>& table)
        : params_(params), table_(table), next_(first_place<c>(params)) {}

    DG_DEVICE bool next(Tile& tile) {
        const Rasterizer<c> raster(params_);
        const int32_t group_tiles = m_blocks() * raster.n_blocks;
        tile.m_end = extent_m<c>(params_);
        KBlocks blocks;
        do {
            const int32_t index = next_ / group_tiles;
            if (index >= params_.num_groups) return false;
            at_ = next_ - index * group_tiles;
            tile.group = params_.first_group + index;
            blocks = table_.blocks(index);
            next_ += gridDim.x / c.tile_ctas();
        } while (adds_to_memory(c.store) && blocks.count == 0);  // nothing to add; otherwise D becomes C or zero
        tile.k_block = blocks.first, tile.k_blocks = blocks.count;
        return true;
    }

    DG_DEVICE void place(Tile& tile) const { Rasterizer<c>(params_).place(tile, at_, m_blocks(), 0); }

private:
    static constexpr int32_t kBlockM = c.super_tile_m();
    static_assert(c.cluster.k == 1, "groups differ in K: a cluster does not split it");

    DG_DEVICE int32_t m_blocks() const { return (extent_m<c>(params_) + kBlockM - 1) / kBlockM; }

    const GemmParams& params_;
    KGroupTable<c> table_;
    int32_t next_, at_ = 0;
};

}  // namespace deep_gemm
