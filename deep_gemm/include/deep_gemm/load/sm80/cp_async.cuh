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
    static constexpr int32_t kLines = o.mn_major() ? c.tile.k : kExtent,
                             kSpans = bytes_of(o.element, o.mn_major() ? kExtent : c.tile.k) / kSwizzleBytes,
                             kCount = kLines * kSpans, kStep = threads(c) / kChunks;
    static_assert(kLines % kChunks == 0 && kStep % kChunks == 0, "chunks of a line are swapped by its number");
    static_assert(kLines % kStep == 0 || kStep % kLines == 0);

    static constexpr int32_t kEach = ceil_div(kCount, kStep);

public:
    /// Ahead of the K block from element `x` of the contiguous dimension and line `y` on.
    DG_DEVICE void place(const PlainMap& map, int32_t x, int32_t y, int32_t group) {
        stride_ = map.strides_bytes[0];
        source_ = map.address + group * map.strides_bytes[1] + (y + line() % kLines) * stride_ +
                  (bytes_of(o.element, x) + first_span() * kSwizzleBytes + chunk() * kChunkBytes);
        bytes_left_ = bytes_of(o.element, map.sizes[0] - x), lines_left_ = map.sizes[1] - y;
    }

    /// Whether a K block ends within the tensor.
    DG_DEVICE bool is_whole() const {
        return bytes_left_ >= kSpans * kSwizzleBytes && (!o.mn_major() || lines_left_ >= kLines);
    }

    /// Such a block. Rows beyond the tensor reach nothing that is stored, and are not copied.
    DG_DEVICE void copy(uint32_t stage) const {
        const uint32_t target = stage + chunk_offset(line() % kLines, chunk()) + first_span() * kLines * kSwizzleBytes;
        const uint8_t* source = source_;
        const int64_t step = kStep * stride_;
#pragma unroll
        for (int32_t i = 0; i < kEach; ++i) {
            if (kCount < kStep && line() >= kCount) break;
            const int32_t lines = i * kStep % kLines, span = kStep > kLines ? i * (kStep / kLines) : i * kStep / kLines;
            source = lines == 0 ? source_ : source + step;
            if (o.mn_major() || line() % kLines + lines < lines_left_)
                ptx::copy_async_x16(target + (span * kLines + lines) * kSwizzleBytes, source + span * kSwizzleBytes,
                                    kChunkBytes);
        }
    }

    /// Any block: what lies beyond the tensor along the contiguous dimension, or K, becomes zero.
    DG_DEVICE void copy_clipped(uint32_t stage) const {
        const uint8_t* const first = source_ - first_span() * kSwizzleBytes;
#pragma unroll 1
        for (int32_t i = line(); i < kCount; i += kStep) {
            const int32_t within = i % kLines, span = i / kLines, lines = within - line() % kLines;
            const int32_t bytes = bytes_left_ - span * kSwizzleBytes - chunk() * kChunkBytes;
            const bool is_line = within < lines_left_;
            if (o.mn_major() || is_line)
                ptx::copy_async_x16(stage + span * kLines * kSwizzleBytes + chunk_offset(within, chunk()),
                                    first + lines * stride_ + span * kSwizzleBytes,
                                    is_line ? min(max(bytes, 0), kChunkBytes) : 0);
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
    static DG_DEVICE int32_t chunk() { return threadIdx.x % kChunks; }
    static DG_DEVICE int32_t line() { return threadIdx.x / kChunks; }
    /// A step may be more lines than there are.
    static DG_DEVICE int32_t first_span() { return kStep > kLines ? line() / kLines : 0; }

    const uint8_t* source_;
    int64_t stride_;
    int32_t bytes_left_, lines_left_;  // of the tensor, from the K block's start on
};

/// Packed weights: whole blocks of 64 rows by 128 of K, as they lie; those that follow each other along K together.
template <GemmConfig c, Operand o, int32_t kExtent>
class OperandCopies<c, o, kExtent, true> {
    static constexpr int32_t kBlockBytes = packed_block_bytes(o.element), kRunBytes = c.tile.k / kPackedK * kBlockBytes,
                             kStepBytes = threads(c) * kChunkBytes;
    static_assert(kExtent % kPackedRows == 0 && c.tile.k % kPackedK == 0 && kBlockBytes % kStepBytes == 0);

public:
    /// Ahead of element `k` of K, in the `block`th 64 rows of all matrices.
    DG_DEVICE void place(const PlainMap& map, int32_t k, int32_t block) {
        const int32_t first_byte = k / kPackedK * kBlockBytes;
        stride_ = map.strides_bytes[1];
        source_ = map.address + block * stride_ + (first_byte + static_cast<int32_t>(threadIdx.x) * kChunkBytes);
        bytes_left_ = static_cast<int32_t>(stride_) - first_byte;
    }

    DG_DEVICE bool is_whole() const { return bytes_left_ >= kRunBytes; }

    DG_DEVICE void copy(uint32_t stage) const { copy_run<false>(stage); }

    /// Blocks beyond K become zero.
    DG_DEVICE void copy_clipped(uint32_t stage) const { copy_run<true>(stage); }

    DG_DEVICE void advance() { source_ += kRunBytes, bytes_left_ -= kRunBytes; }

private:
    template <bool kClips>
    DG_DEVICE void copy_run(uint32_t stage) const {
        const uint32_t target = stage + threadIdx.x * kChunkBytes;
#pragma unroll
        for (int32_t i = 0; i < kExtent / kPackedRows; ++i)
#pragma unroll
            for (int32_t at = 0; at < kRunBytes; at += kStepBytes)
                ptx::copy_async_x16(target + i * kRunBytes + at, source_ + i * stride_ + at,
                                    !kClips || at < bytes_left_ ? kChunkBytes : 0);
    }

    const uint8_t* source_;
    int64_t stride_;
    int32_t bytes_left_;  // of K, from the block's start on
};

/// A thread's copies of an operand's scales, or words like them, four bytes at a time: of each row, MN-major, or of
/// blocks of rows.
template <GemmConfig c, Scaling scaling, int32_t kExtent, bool kPerRow = scaling.per_row()>
class ScaleCopies {
public:
    /// `first`: the tile's first row; `entry`: of K, the next stage's first.
    DG_DEVICE void place(const GemmParams& params, const TensorMap& opaque, int32_t first, int32_t entry,
                         int32_t group) {
        if constexpr (kPerRow) {
            const PlainMap& map = plain(opaque);
            k_stride_ = map.strides_bytes[0];
            source_ = map.address + group * map.strides_bytes[1] + int64_t{first} * 4 + entry * k_stride_;
            row_stride_ = 4, rows_left_ = map.sizes[0] - first, entries_left_ = map.sizes[1] - entry;
        } else if constexpr (scaling.per_block()) {
            static_assert(scaling == c.b.scaling);
            const int32_t blocks = (extent_n<c>(params) + scaling.rows - 1) / scaling.rows,
                          entries = (params.k + scaling.k - 1) / scaling.k, block = first / scaling.rows;
            k_stride_ = params.block_scale_k_stride * 4, row_stride_ = params.block_scale_stride * 4;
            source_ = reinterpret_cast<const uint8_t*>(params.block_scales + group * params.block_scale_group_stride) +
                      block * row_stride_ + entry * k_stride_;
            rows_left_ = blocks - block, entries_left_ = entries - entry;
        }
    }

    DG_DEVICE void copy(uint32_t target) const {
        if constexpr (kCount > 0) {
#pragma unroll
            for (int32_t i = 0; i < ceil_div(kCount, threads(c)); ++i) {
                const int32_t at = static_cast<int32_t>(threadIdx.x) + i * threads(c), row = at % kRows,
                              entry = at / kRows;
                if (at < kCount)
                    ptx::copy_async<4>(target + at * 4, source_ + row * row_stride_ + entry * k_stride_,
                                       row < rows_left_ && entry < entries_left_ ? 4 : 0);
            }
        }
    }

    /// On to the next K block, which is the `next`th, counted along K.
    DG_DEVICE void advance(int32_t next) {
        if constexpr (kCount == 0) return;
        const int32_t entries = scale_entry(scaling, next, c.tile.k) - scale_entry(scaling, next - 1, c.tile.k);
        source_ += entries * k_stride_, entries_left_ -= entries;
    }

private:
    static constexpr int32_t kRows = kPerRow ? kExtent : scale_rows(scaling, kExtent),
                             kCount = kRows == 0 ? 0 : kRows * scale_entries(c, scaling);

    const uint8_t* source_;
    int64_t row_stride_, k_stride_;
    int32_t rows_left_, entries_left_;
};

/// Walks the tiles ahead of those that are multiplied, a K block at a time.
template <GemmConfig c>
class LoadRole {
public:
    DG_DEVICE LoadRole(const Smem<c>& smem, const GemmParams& params)
        : smem_(smem), params_(params), tiles_(params, smem.groups()) {}

    /// The next K block into the ring's next stage, which nobody reads any more. A tile without any takes a stage too.
    /// Its copies come in one run: ptxas (CUDA 13.0) has those that stand between products wait for others.
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
        block_ = tile_.k_block - 1;
        if (left_ > 0) place_operands(block_);
    }

    /// Of a K block.
    DG_DEVICE void place_operands(int32_t block) {
        const PlainMap *rows = &plain(params_.rows), *cols = &plain(params_.cols);
        int32_t origin = 0;
        if constexpr (c.group_maps) {
            const auto& group = static_cast<const ParamsFor<c>&>(params_).groups[tile_.group - params_.first_group];
            rows = &plain(group.rows), cols = &plain(group.cols), origin = tile_.k_block;
        }
        const auto [k, matrix] = place_block<c>(params_, block - origin);
        place<c.rows_operand()>(rows_, *rows, k, tile_.row, row_group() + matrix);
        place<c.cols_operand()>(cols_, *cols, k, tile_.col, col_group() + matrix);
        row_scales_.place(params_, params_.row_scales, tile_.row, scale_entry(c.row_scales(), block, c.tile.k),
                          row_group());
        col_scales_.place(params_, params_.col_scales, tile_.col, scale_entry(c.col_scales(), block, c.tile.k),
                          col_group());
        zeros_.place(params_, params_.zeros, tile_.row, scale_entry(zero_words(c), block, c.tile.k), row_group());
    }

    template <Operand o, typename Copies>
    DG_DEVICE void place(Copies& copies, const PlainMap& map, int32_t k, int32_t start, int32_t group) {
        if constexpr (o.packed())
            copies.place(map, k, group * packed_blocks(extent_n<c>(params_)) + start / kPackedRows);
        else
            copies.place(map, o.mn_major() ? start : k, o.mn_major() ? k : start, group);
    }

    /// Moves on first: behind the copies, it would wait until they have read their addresses.
    DG_DEVICE void copy_block() {
        --left_, ++block_;
        // The sum over a batch comes to other matrices on the way.
        if constexpr (c.grouping == Grouping::batch_sum)
            place_operands(block_);
        else
            rows_.advance(), cols_.advance(), row_scales_.advance(block_), col_scales_.advance(block_),
                zeros_.advance(block_);
        const uint32_t rows = smem_.rows(ring_.stage), cols = smem_.cols(ring_.stage);
        if (rows_.is_whole() && cols_.is_whole())
            rows_.copy(rows), cols_.copy(cols);
        else
            rows_.copy_clipped(rows), cols_.copy_clipped(cols);
        row_scales_.copy(smem_.row_scales(ring_.stage)), col_scales_.copy(smem_.col_scales(ring_.stage));
        zeros_.copy(smem_.zeros(ring_.stage));
    }

    DG_DEVICE int32_t row_group() const { return c.swap_ab ? group_of_b<c>(tile_) : group_of_a<c>(tile_); }
    DG_DEVICE int32_t col_group() const { return c.swap_ab ? group_of_a<c>(tile_) : group_of_b<c>(tile_); }

    const Smem<c>& smem_;
    const GemmParams& params_;
    TileScheduler<c> tiles_;
    OperandCopies<c, c.rows_operand(), c.tile.rows> rows_;
    OperandCopies<c, c.cols_operand(), c.tile.cols> cols_;
    ScaleCopies<c, c.row_scales(), c.tile.rows> row_scales_;
    ScaleCopies<c, c.col_scales(), c.tile.cols> col_scales_;
    ScaleCopies<c, zero_words(c), c.tile.rows, c.rows_operand().has_zeros()> zeros_;
    Ring<c.stages> ring_;
    Tile tile_ = {};
    int32_t left_ = 0, block_ = 0;  // the last one that was copied
    bool more_ = true;
};

}  // namespace deep_gemm::sm80
