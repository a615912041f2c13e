// The load role without a copy engine: all threads of a CTA copy 16 bytes at a time, several K blocks ahead.
//
// A stage holds an operand in lines of 128 bytes: K-major, a line for each row and span of K; MN-major, one for each of
// K and block of 64 rows. The 16-byte chunks of a line are swapped by the line's number, so that matrices of eight
// lines are read without bank conflicts. What lies beyond a tensor becomes zero.
#pragma once

#include <deep_gemm/arch/sm80_smem.cuh>
#include <deep_gemm/ptx/cp_async.cuh>
#include <deep_gemm/tile/batches.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm::sm80 {

/// Where the `chunk`th 16 bytes of a line lie.
DG_DEVICE uint32_t chunk_offset(int32_t line, int32_t chunk) {
    return line * kSwizzleBytes + ((chunk ^ (line % kChunks)) * kChunkBytes);
}

/// A thread's copies of an operand: the same chunk of every so many lines.
template <GemmConfig c, Operand o, int32_t kExtent, bool = o.packed()>
class OperandCopies {
public:
    /// From element `x` of the contiguous dimension and line `y` on.
    DG_DEVICE void place(const PlainMap& map, int32_t x, int32_t y, int32_t group) {
        const int32_t first_line = y + line() % kLines, first_byte = bytes_of(o.element, x) + chunk() * kChunkBytes;
        stride_ = map.strides_bytes[0];
        source_ = map.address + group * map.strides_bytes[1] + first_line * stride_ + first_byte;
        bytes_left_ = bytes_of(o.element, map.sizes[0]) - first_byte, lines_left_ = map.sizes[1] - first_line;
    }

    DG_DEVICE void copy(uint32_t target) const {
#pragma unroll
        for (int32_t i = 0; i < kEach; ++i) {
            if constexpr (kLines % kStep == 0)
                copy_chunk(target + chunk_offset(line(), chunk()), i * kStep % kLines, i * kStep / kLines);
            else if (const int32_t at = line() + i * kStep; at < kCount)
                copy_chunk(target + chunk_offset(line() % kLines, chunk()), at % kLines - line() % kLines, at / kLines);
        }
    }

    /// On to the next K block.
    DG_DEVICE void advance() {
        if constexpr (o.mn_major())
            source_ += c.tile.k * stride_, lines_left_ -= c.tile.k;
        else
            source_ += row_bytes(c, o), bytes_left_ -= row_bytes(c, o);
    }

private:
    static constexpr int32_t kLines = o.mn_major() ? c.tile.k : kExtent,
                             kSpans = bytes_of(o.element, o.mn_major() ? kExtent : c.tile.k) / kSwizzleBytes,
                             kCount = kLines * kSpans, kStep = threads(c) / kChunks, kEach = ceil_div(kCount, kStep);
    static_assert(kLines % kChunks == 0 && kStep % kChunks == 0, "chunks of a line are swapped by its number");
    static DG_DEVICE int32_t chunk() { return threadIdx.x % kChunks; }
    static DG_DEVICE int32_t line() { return threadIdx.x / kChunks; }

    /// So many lines and spans from the thread's first one.
    DG_DEVICE void copy_chunk(uint32_t target, int32_t lines, int32_t span) const {
        const int32_t bytes = min(max(bytes_left_ - span * kSwizzleBytes, 0), kChunkBytes);
        ptx::copy_async_x16(target + (span * kLines + lines) * kSwizzleBytes,
                            source_ + lines * stride_ + span * kSwizzleBytes, lines < lines_left_ ? bytes : 0);
    }

    const uint8_t* source_;
    int64_t stride_;
    int32_t bytes_left_, lines_left_;
};

/// Packed weights: whole blocks of 64 rows by 128 of K, as they lie; those that follow each other along K together.
template <GemmConfig c, Operand o, int32_t kExtent>
class OperandCopies<c, o, kExtent, true> {
public:
    /// From element `k` of K, and the `block`th 64 rows of all matrices.
    DG_DEVICE void place(const PlainMap& map, int32_t k, int32_t block) {
        const int32_t first_byte = k / kPackedK * kBlockBytes + threadIdx.x * kChunkBytes;
        stride_ = map.strides_bytes[1];
        source_ = map.address + block * stride_ + first_byte;
        bytes_left_ = stride_ - first_byte;
    }

    DG_DEVICE void copy(uint32_t target) const {
#pragma unroll
        for (int32_t i = 0; i < kExtent / kPackedRows; ++i)
#pragma unroll
            for (int32_t at = 0; at < kRunBytes; at += kStepBytes)
                ptx::copy_async_x16(target + i * kRunBytes + at + threadIdx.x * kChunkBytes, source_ + i * stride_ + at,
                                    at < bytes_left_ ? kChunkBytes : 0);
    }

    DG_DEVICE void advance() { source_ += kRunBytes, bytes_left_ -= kRunBytes; }

private:
    static constexpr int32_t kBlockBytes = packed_block_bytes(o.element), kRunBytes = c.tile.k / kPackedK * kBlockBytes,
                             kStepBytes = threads(c) * kChunkBytes;
    static_assert(kExtent % kPackedRows == 0 && c.tile.k % kPackedK == 0 && kRunBytes % kStepBytes == 0);

    const uint8_t* source_;
    int64_t stride_, bytes_left_;
};

/// Words of a stage, each of them for a row of the tile, `entries` of them along K, MN-major. `first`: the tile's first
/// row; `entry`: of K, the stage's first.
template <GemmConfig c, int32_t kRows, int32_t kEntries>
DG_DEVICE void copy_row_words(uint32_t target, const PlainMap& map, int32_t first, int32_t entry, int32_t group) {
#pragma unroll
    for (int32_t i = threadIdx.x; i < kRows * kEntries; i += threads(c)) {
        const int32_t row = first + i % kRows, at = entry + i / kRows;
        const uint8_t* source =
            map.address + group * map.strides_bytes[1] + at * map.strides_bytes[0] + int64_t{row} * 4;
        ptx::copy_async<4>(target + i * 4, source, row < map.sizes[0] && at < map.sizes[1] ? 4 : 0);
    }
}

/// An operand's scales of a stage, four bytes at a time: of each row, or of blocks of rows.
template <GemmConfig c, Scaling scaling, int32_t kExtent>
struct ScaleCopies {
    static constexpr int32_t kRows = scale_rows(scaling, kExtent), kEntries = scale_entries(c, scaling);

    static DG_DEVICE void copy_rows(uint32_t target, const PlainMap& map, int32_t first, int32_t entry, int32_t group) {
        copy_row_words<c, kRows, kEntries>(target, map, first, entry, group);
    }

    static DG_DEVICE void copy_blocks(uint32_t target, const GemmParams& params, int32_t first, int32_t entry,
                                      int32_t group, int32_t extent, int32_t entries) {
        for (int32_t i = threadIdx.x; i < kRows * kEntries; i += threads(c)) {
            const int32_t block = first / scaling.rows + i % kRows, at = entry + i / kRows;
            const float* source = params.block_scales + group * params.block_scale_group_stride +
                                  block * params.block_scale_stride + at * params.block_scale_k_stride;
            ptx::copy_async<4>(target + i * 4, source, block * scaling.rows < extent && at < entries ? 4 : 0);
        }
    }
};

/// Walks the tiles ahead of those that are multiplied, a K block at a time.
template <GemmConfig c>
class LoadRole {
public:
    DG_DEVICE LoadRole(const Smem<c>& smem, const GemmParams& params)
        : smem_(smem), params_(params), tiles_(params, smem.groups()) {}

    /// The next K block into the ring's next stage, which nobody reads any more. A tile without any takes a stage too.
    DG_DEVICE void copy_next() {
        if (left_ == 0) begin_tile();
        if (left_ > 0) copy_block();
        ptx::commit_copies();
        ring_.advance();
    }

private:
    DG_DEVICE void begin_tile() {
        more_ = more_ && tiles_.next(tile_);
        if (more_)
            tiles_.place(tile_);
        else
            tile_.k_blocks = -1;
        if (threadIdx.x == 0) smem_.write_tile(ring_.stage, tile_);
        left_ = max(tile_.k_blocks, 0);
        block_ = tile_.k_block;
        if (left_ > 0) place_operands();
    }

    DG_DEVICE void place_operands() {
        const PlainMap *rows = &plain(params_.rows), *cols = &plain(params_.cols);
        int32_t origin = 0;
        if constexpr (c.group_maps) {
            const auto& group = static_cast<const ParamsFor<c>&>(params_).groups[tile_.group - params_.first_group];
            rows = &plain(group.rows), cols = &plain(group.cols), origin = tile_.k_block;
        }
        const auto [k, matrix] = place_block<c>(params_, block_ - origin);
        place<c.rows_operand()>(rows_, *rows, k, tile_.row, row_group() + matrix);
        place<c.cols_operand()>(cols_, *cols, k, tile_.col, col_group() + matrix);
    }

    template <Operand o, typename Copies>
    DG_DEVICE void place(Copies& copies, const PlainMap& map, int32_t k, int32_t start, int32_t group) {
        if constexpr (o.packed())
            copies.place(map, k, group * packed_blocks(extent_n<c>(params_)) + start / kPackedRows);
        else
            copies.place(map, o.mn_major() ? start : k, o.mn_major() ? k : start, group);
    }

    DG_DEVICE void copy_block() {
        rows_.copy(smem_.rows(ring_.stage));
        cols_.copy(smem_.cols(ring_.stage));
        copy_scales<c.row_scales(), c.tile.rows>(smem_.row_scales(ring_.stage), params_.row_scales, tile_.row,
                                                 row_group());
        copy_scales<c.col_scales(), c.tile.cols>(smem_.col_scales(ring_.stage), params_.col_scales, tile_.col,
                                                 col_group());
        if constexpr (c.rows_operand().has_zeros())
            copy_row_words<c, c.tile.rows, zero_entries(c)>(smem_.zeros(ring_.stage), plain(params_.zeros), tile_.row,
                                                            k_group(c.rows_operand().zeros_k, block_, c.tile.k),
                                                            row_group());
        --left_, ++block_;
        // The sum over a batch comes to other matrices on the way.
        if constexpr (c.grouping == Grouping::batch_sum)
            place_operands();
        else
            rows_.advance(), cols_.advance();
    }

    template <Scaling scaling, int32_t kExtent>
    DG_DEVICE void copy_scales(uint32_t target, const TensorMap& map, int32_t first, int32_t group) const {
        using Copies = ScaleCopies<c, scaling, kExtent>;
        const int32_t entry = scale_entry(scaling, block_, c.tile.k);
        if constexpr (scaling.per_row()) {
            Copies::copy_rows(target, plain(map), first, entry, group);
        } else if constexpr (scaling.per_block()) {
            static_assert(scaling == c.b.scaling);
            Copies::copy_blocks(target, params_, first, entry, group, extent_n<c>(params_),
                                (params_.k + scaling.k - 1) / scaling.k);
        }
    }

    DG_DEVICE int32_t row_group() const { return c.swap_ab ? group_of_b<c>(tile_) : group_of_a<c>(tile_); }
    DG_DEVICE int32_t col_group() const { return c.swap_ab ? group_of_a<c>(tile_) : group_of_b<c>(tile_); }

    const Smem<c>& smem_;
    const GemmParams& params_;
    TileScheduler<c> tiles_;
    OperandCopies<c, c.rows_operand(), c.tile.rows> rows_;
    OperandCopies<c, c.cols_operand(), c.tile.cols> cols_;
    Ring<c.stages> ring_;
    Tile tile_ = {};
    int32_t left_ = 0, block_ = 0;
    bool more_ = true;
};

}  // namespace deep_gemm::sm80
