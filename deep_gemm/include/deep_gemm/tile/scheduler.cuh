// Which tiles a CTA computes, as finished coordinates. Every role of a CTA walks the same sequence on its own.
#pragma once

#include <deep_gemm/params.cuh>
#include <deep_gemm/tile/cluster_position.cuh>

namespace deep_gemm {

/// Elements, not blocks. `row` and `col` are in the frame of the matrix instruction (GemmConfig::swap_ab).
struct Tile {
    int32_t row, col;
    int32_t group;
    int32_t k_block, k_blocks;  // first and count
};

/// Extents that the compiler may know.
template <GemmConfig c>
DG_DEVICE int32_t extent_m(const GemmParams& params) { return c.shape.m ? c.shape.m : params.m; }
template <GemmConfig c>
DG_DEVICE int32_t extent_n(const GemmParams& params) { return c.shape.n ? c.shape.n : params.n; }
template <GemmConfig c>
DG_DEVICE int32_t extent_k(const GemmParams& params) { return c.shape.k ? c.shape.k : params.k; }

template <GemmConfig c, Grouping = c.grouping>
class TileScheduler;

/// One matrix: clusters take super-tiles in turn, walking strips of row blocks column by column.
template <GemmConfig c>
class TileScheduler<c, Grouping::dense> {
public:
    DG_DEVICE explicit TileScheduler(const GemmParams& params)
        : k_blocks_((extent_k<c>(params) + c.tile.k - 1) / c.tile.k), strip_(params.strip_blocks) {
        const int32_t rows = c.swap_ab ? extent_n<c>(params) : extent_m<c>(params);
        const int32_t cols = c.swap_ab ? extent_m<c>(params) : extent_n<c>(params);
        row_blocks_ = (rows + kRows - 1) / kRows;
        col_blocks_ = (cols + kCols - 1) / kCols;
        next_ = blockIdx.x / c.cluster.size();
    }

    DG_DEVICE bool next(Tile& tile) {
        if (next_ >= row_blocks_ * col_blocks_) return false;
        const int32_t strip = next_ / (strip_ * col_blocks_), rest = next_ - strip * strip_ * col_blocks_;
        const int32_t first = strip * strip_, height = min(strip_, row_blocks_ - first);
        const int32_t col = rest / height, row = first + rest - col * height;
        tile.row = row * kRows + position_.row * c.tile.rows;
        tile.col = col * kCols + position_.col * c.tile.cols;
        tile.group = 0;
        tile.k_block = k_blocks_ * position_.k / c.cluster.k;
        tile.k_blocks = k_blocks_ * (position_.k + 1) / c.cluster.k - tile.k_block;
        next_ += gridDim.x / c.cluster.size();
        return true;
    }

private:
    static constexpr int32_t kRows = c.tile.rows * c.cluster.rows, kCols = c.tile.cols * c.cluster.cols;
    ClusterPosition<c> position_;
    int32_t row_blocks_, col_blocks_, k_blocks_, strip_, next_;
};

}  // namespace deep_gemm
