// Copies of a stage without the copy engine: 16 bytes a thread at a time.
//
// A stage holds an operand in lines of 128 bytes: K-major, a line for each row and span of K; MN-major, one for each of
// K and block of 64 rows. The 16-byte chunks of a line are swapped by the line's number, so that matrices of eight
// lines are read without bank conflicts. What lies beyond a tensor becomes zero.
#pragma once

#include <deep_gemm/arch/sm80_smem.cuh>
#include <deep_gemm/epilogue/heads.cuh>
#include <deep_gemm/load/sm80/places.cuh>
#include <deep_gemm/ptx/cp_async.cuh>

namespace deep_gemm::sm80 {

/// Where the `chunk`th 16 bytes of a line lie.
DG_DEVICE uint32_t chunk_offset(int32_t line, int32_t chunk) {
    return line * kSwizzleBytes + ((chunk ^ (line % kChunks)) * kChunkBytes);
}

/// Of the threads that copy a stage, which is this one.
template <Constant<GemmConfig> c>
DG_DEVICE int32_t copy_thread() {
    return threadIdx.x % copy_threads(c);
}

/// A thread's copies of an operand: the same chunk of every so many lines. `kGated`: of B, where tiles have gates and
/// ups, in their order.
template <Constant<GemmConfig> c, Constant<Operand> o, int32_t kExtent, bool kGated, bool = o.packed()>
class OperandCopies {
    static constexpr int32_t kLines = o.mn_major() ? c.tile.k : kExtent,
                             kSpans = (o.mn_major() ? bytes_of(o.element, kExtent) : row_bytes(c, o)) / kSwizzleBytes,
                             kStep = copy_threads(c) / kChunks, kUnroll = ceil_div(promotes(c) ? 4 : 8, kSpans);
    /// Of memory: what a chunk of a stage holds, and a line.
    static constexpr int32_t kCopied = kChunkBytes * bits(o.element) / stage_bits(c, o),
                             kCopiedLine = kChunks * kCopied;
    static_assert(kLines % kChunks == 0, "chunks of a line are swapped by its number");
    static_assert(kChunks % kStep == 0 || kStep % kChunks == 0);
    static_assert(!kGated || (!o.mn_major() && kExtent % (2 * kGateCols) == 0), "whole groups of gates and ups");

public:
    /// Ahead of the K block that begins at `k`, in the rows that begin with this one.
    DG_DEVICE void place(const PlainMap& map, int32_t k, int32_t row, int32_t group) {
        const int32_t x = o.mn_major() ? row : k, y = o.mn_major() ? k : row;
        stride_ = map.strides_bytes[0];
        source_ = map.address + group * map.strides_bytes[1] + (y + line()) * stride_ +
                  (bytes_of(o.element, x) + chunk() * kCopied);
        if constexpr (kGated) n_ = map.sizes[1], source_ += (row_of_b<c>(y + line(), n_) - (y + line())) * stride_;
        rows_left_ = map.sizes[o.mn_major() ? 0 : 1] - row;
    }

    /// Whether a block of which so much K is left ends within the tensor, except for rows of K-major ones.
    DG_DEVICE bool is_whole(int32_t k_left) const {
        return k_left >= c.tile.k && (!o.mn_major() || rows_left_ >= kExtent);
    }

    /// Rows of the tile that the tensor has, and those behind them.
    DG_DEVICE int32_t rows_left(const GemmParams&, const Tile&) const { return rows_left_; }

    /// Such a block. Rows beyond the tensor reach nothing that is stored, and are not copied.
    DG_DEVICE void copy(uint32_t stage) const {
        if (o.mn_major() || rows_left_ >= kLines)
            copy_lines<true, false>(stage, c.tile.k);
        else
            copy_lines<false, false>(stage, c.tile.k);
    }

    /// Any block: what lies beyond the tensor along the contiguous dimension, or K, becomes zero.
    DG_DEVICE void copy_clipped(uint32_t stage, int32_t k_left) const { copy_lines<false, true>(stage, k_left); }

    /// On to the next K block.
    DG_DEVICE void advance() { source_ += o.mn_major() ? c.tile.k * stride_ : bytes_of(o.element, c.tile.k); }

private:
    template <bool kAllLines, bool kClips>
    DG_DEVICE void copy_lines(uint32_t stage, int32_t k_left) const {
        const int32_t lines_left = o.mn_major() ? k_left : rows_left_,
                      bytes_left = bytes_of(o.element, o.mn_major() ? rows_left_ : k_left);
        const uint8_t* source = source_;
        const int64_t step = kStep * stride_;
#pragma unroll(kClips ? 1 : kUnroll)
        for (int32_t first = 0; first < kLines; first += kStep, source += step) {
            // Of bits that are apart, rows of B add up.
            if constexpr (kGated) source = source_ + row_of_b<c>(first, n_) * stride_;
            const int32_t at = first + line();
            if (kStep > kLines && at >= kLines) break;
            bool is_line = kAllLines || at < lines_left;
            if constexpr (kGated && c.gate.partial) is_line = kAllLines || c.gate.has(n_ - rows_left_ + at, n_);
            if (!o.mn_major() && !is_line) continue;
            const uint32_t target =
                stage + (kStep < kChunks ? chunk_offset(at % kChunks, chunk()) + at / kChunks * kChunks * kSwizzleBytes
                                         : chunk_offset(line(), chunk()) + first * kSwizzleBytes);
#pragma unroll
            for (int32_t span = 0; span < kSpans; ++span) {
                const int32_t bytes = bytes_left - span * kCopiedLine - chunk() * kCopied;
                copy_chunk(target + span * kLines * kSwizzleBytes, source + span * kCopiedLine,
                           !kClips   ? kCopied
                           : is_line ? min(max(bytes, 0), kCopied)
                                     : 0);
            }
        }
    }

    static DG_DEVICE void copy_chunk(uint32_t target, const uint8_t* source, int32_t bytes) {
        if constexpr (kCopied == kChunkBytes)
            ptx::copy_async_x16(target, source, bytes);
        else
            ptx::copy_async<kCopied>(target, source, bytes);
    }

    static DG_DEVICE int32_t chunk() { return threadIdx.x % kChunks; }
    static DG_DEVICE int32_t line() { return copy_thread<c>() / kChunks; }

    const uint8_t* source_;
    int64_t stride_;
    int32_t rows_left_;  // of the tensor, from the tile's first on
    int32_t n_;          // rows of B, where tiles have gates and ups
};

/// Packed weights: blocks of 64 rows by 128 of K, or of fewer rows in each of a block's units, as they lie; those that
/// follow each other along K together.
template <Constant<GemmConfig> c, Constant<Operand> o, int32_t kExtent>
class OperandCopies<c, o, kExtent, false, true> {
    static constexpr int32_t kUnitBytes = packed_unit_bytes(kPackedRows), kTaken = packed_unit_bytes(kExtent),
                             kRunBytes = c.tile.k / kPackedK * packed_block_bytes(o.element),
                             kTakenOfRun = kRunBytes / kUnitBytes * kTaken, kStepBytes = copy_threads(c) * kChunkBytes;
    static_assert(kTakenOfRun % kStepBytes == 0 && (kStepBytes % kTaken == 0 || kTaken % kStepBytes == 0));

public:
    /// Ahead of element `k` of K, in the rows of all matrices that begin with this one.
    DG_DEVICE void place(const PlainMap& map, int32_t k, int32_t row) {
        const int32_t first_byte = k / kPackedK * packed_block_bytes(o.element);
        stride_ = map.strides_bytes[1];
        source_ = map.address + row / kPackedRows * stride_ + packed_unit_bytes(row % kPackedRows) + first_byte +
                  from(copy_thread<c>() * kChunkBytes);
    }

    DG_DEVICE bool is_whole(int32_t k_left) const { return k_left > c.tile.k - kPackedK; }

    /// They have padding, what they are scaled by has none.
    DG_DEVICE static int32_t rows_left(const GemmParams& params, const Tile& tile) {
        return extent_n<c>(params) - tile.row;
    }

    DG_DEVICE void copy(uint32_t stage) const { copy_run<false>(stage, c.tile.k); }

    /// Blocks beyond K become zero.
    DG_DEVICE void copy_clipped(uint32_t stage, int32_t k_left) const { copy_run<true>(stage, k_left); }

    DG_DEVICE void advance() { source_ += kRunBytes; }

private:
    /// Where a byte of what is taken of a run lies in it.
    static DG_DEVICE int32_t from(int32_t byte) { return byte / kTaken * kUnitBytes + byte % kTaken; }

    template <bool kClips>
    DG_DEVICE void copy_run(uint32_t stage, int32_t k_left) const {
        const int32_t bytes_left = ceil_div(k_left, kPackedK) * packed_block_bytes(o.element);
        uint32_t target = stage + copy_thread<c>() * kChunkBytes;
#pragma unroll
        for (int32_t block = 0; block < ceil_div(kExtent, kPackedRows); ++block) {
#pragma unroll
            for (int32_t i = 0; i < kTakenOfRun; i += kStepBytes)
                ptx::copy_async_x16(target + i, source_ + block * stride_ + from(i),
                                    !kClips || from(i) < bytes_left ? kChunkBytes : 0);
            target += kTakenOfRun;
        }
    }

    const uint8_t* source_;
    int64_t stride_;
};

/// A thread's copies of an operand's scales, or words like them, four bytes at a time: of each row, MN-major, or of
/// blocks of rows. Those of gates and ups come as `OperandCopies` has their rows.
template <Constant<GemmConfig> c, Constant<Scaling> scaling, int32_t kExtent, bool kGated,
          bool kPerRow = scaling.per_row()>
class ScaleCopies {
public:
    /// `first`: the tile's first row; `entry`: of K, the next stage's first.
    DG_DEVICE void place(const GemmParams& params, const TensorMap& opaque, int32_t first, int32_t entry,
                         int32_t group) {
        if constexpr (kPerRow) {
            const PlainMap& map = plain(opaque);
            k_stride_ = map.strides_bytes[0];
            if constexpr (kGated) n_ = extent_n<c>(params), first = row_of_b<c>(first, n_);
            source_ = map.address + group * map.strides_bytes[1] + int64_t{first} * 4 + entry * k_stride_;
            row_stride_ = 4;
        } else if constexpr (scaling.per_block()) {
            static_assert(scaling == c.b.scaling);
            constexpr bool kHalves = c.gate.blocks_in_halves();
            const int32_t blocks = (extent_n<c>(params) + scaling.rows - 1) / scaling.rows,
                          block = first / (kHalves ? 2 : 1) / scaling.rows;
            k_stride_ = params.block_scale_k_stride * 4, row_stride_ = params.block_scale_stride * 4;
            source_ = reinterpret_cast<const uint8_t*>(params.block_scales + group * params.block_scale_group_stride) +
                      block * row_stride_ + entry * k_stride_;
            blocks_left_ = blocks - block;
            if constexpr (kHalves) row_stride_ *= blocks / 2;  // one of gates, one of ups
        }
    }

    /// Of the operand so many rows and so much K are left.
    DG_DEVICE void copy(uint32_t target, int32_t operand_rows, int32_t k_left) const {
        if constexpr (kCount > 0) {
            const int32_t rows_left = kPerRow ? operand_rows : blocks_left_;
#pragma unroll
            for (int32_t i = 0; i < ceil_div(kCount, copy_threads(c)); ++i) {
                const int32_t at = copy_thread<c>() + i * copy_threads(c), row = at % kRows, entry = at / kRows;
                if (at < kCount)
                    ptx::copy_async<4>(target + at * 4, source_ + place(row) * row_stride_ + entry * k_stride_,
                                       has(row, rows_left) && entry * entry_k(scaling) < k_left ? 4 : 0);
            }
        }
    }

    /// On to the next K block, which is the `next`th, counted along K from where entries begin.
    DG_DEVICE void advance(int32_t next) {
        if constexpr (kCount == 0) return;
        const int32_t entries = scale_entry(scaling, next, c.tile.k) - scale_entry(scaling, next - 1, c.tile.k);
        source_ += entries * k_stride_;
    }

private:
    static constexpr int32_t kRows = kPerRow ? kExtent : scale_rows(c, scaling, kExtent),
                             kCount = kRows == 0 ? 0 : kRows * scale_entries(c, scaling);

    DG_DEVICE bool has(int32_t row, int32_t rows_left) const {
        if constexpr (kGated && kPerRow && c.gate.partial)
            return c.gate.has(n_ - rows_left + row, n_);
        else
            return row < rows_left;
    }

    DG_DEVICE int32_t place(int32_t row) const {
        if constexpr (kGated && kPerRow)
            return row_of_b<c>(row, n_);
        else
            return row;
    }

    const uint8_t* source_;
    int64_t row_stride_, k_stride_;
    int32_t blocks_left_;
    int32_t n_;
};

/// A thread's copies of all that a stage holds.
template <Constant<GemmConfig> c>
class ThreadCopies {
public:
    DG_DEVICE ThreadCopies(const Smem<c>& smem, const GemmParams& params) : smem_(smem), params_(params) {}

    /// Of two sets of threads, every other stage is a thread's.
    static DG_DEVICE bool is_turn(const Ring<c.stages>& ring) {
        static_assert(copy_turns(c) <= 2);
        const int32_t stages = ring.stage + c.stages % 2 * ring.phase;  // in two passes: odd or even
        return copy_turns(c) == 1 || stages % 2 == static_cast<int32_t>(threadIdx.x) / copy_threads(c);
    }
    static DG_DEVICE bool leads() { return copy_thread<c>() == 0; }

    /// At a K block of a tile.
    DG_DEVICE void place(const Tile& tile, int32_t block) {
        const PlainMap *rows = &plain(params_.rows), *cols = &plain(params_.cols);
        int32_t origin = 0;
        if constexpr (c.group_maps) {
            const auto& group = static_cast<const ParamsFor<c>&>(params_).groups[tile.group - params_.first_group];
            rows = &plain(group.rows), cols = &plain(group.cols), origin = tile.k_block;
        }
        const auto [k, matrix] = place_block<c>(params_, block - origin);
        k_left_ = cols->sizes[c.cols_operand().mn_major() ? 1 : 0] - k;
        place<ConfigParts<c>::kRows>(rows_, *rows, k, tile.row, row_group<c>(tile) + matrix);
        place<ConfigParts<c>::kCols>(cols_, *cols, k, tile.col, col_group<c>(tile) + matrix);
        row_scales_.place(params_, params_.row_scales, tile.row,
                          scale_place<c, ConfigParts<c>::kRowScales>(tile, block, smem_.groups(), params_),
                          row_group<c>(tile));
        col_scales_.place(params_, params_.col_scales, tile.col,
                          scale_place<c, ConfigParts<c>::kColScales>(tile, block, smem_.groups(), params_),
                          col_group<c>(tile));
        constexpr Scaling kZeroWords = zero_words(c);
        zeros_.place(params_, params_.zeros, tile.row, scale_entry(kZeroWords, block, c.tile.k), row_group<c>(tile));
    }

    /// From the K block before to this one, ahead of its copies: behind them, it would wait until they have read their
    /// addresses.
    DG_DEVICE void advance(const Tile& tile, int32_t block) {
        const int32_t next = block - words_origin<c>(tile);
        k_left_ -= c.tile.k, rows_.advance(), cols_.advance();
        row_scales_.advance(next), col_scales_.advance(next), zeros_.advance(next);
    }

    /// A stage, with a K block or without any.
    DG_DEVICE void fill(int32_t stage, bool has_block, const Tile& tile, int32_t) const {
        if (has_block) copy(stage, tile);
        const uint32_t full = smem_.full(stage);
        ptx::barrier_arrive_after_copies(full);
        if (leads()) ptx::barrier_arrive(full);
    }

private:
    DG_DEVICE void copy(int32_t stage, const Tile& tile) const {
        const uint32_t rows = smem_.rows(stage), cols = smem_.cols(stage);
        if (rows_.is_whole(k_left_) && cols_.is_whole(k_left_))
            rows_.copy(rows), cols_.copy(cols);
        else
            rows_.copy_clipped(rows, k_left_), cols_.copy_clipped(cols, k_left_);
        const int32_t rows_left = rows_.rows_left(params_, tile), cols_left = cols_.rows_left(params_, tile);
        row_scales_.copy(smem_.row_scales(stage), rows_left, k_left_);
        col_scales_.copy(smem_.col_scales(stage), cols_left, k_left_);
        zeros_.copy(smem_.zeros(stage), rows_left, k_left_);
    }

    template <Constant<Operand> o, typename Copies>
    DG_DEVICE void place(Copies& copies, const PlainMap& map, int32_t k, int32_t start, int32_t group) {
        if constexpr (o.packed())
            copies.place(map, k, group * packed_blocks(extent_n<c>(params_)) * kPackedRows + start);
        else
            copies.place(map, k, start, group);
    }

    const Smem<c>& smem_;
    const GemmParams& params_;
    static constexpr bool kGatedRows = c.gate.joins() && c.swap_ab, kGatedCols = c.gate.joins() && !c.swap_ab;

    OperandCopies<c, ConfigParts<c>::kRows, c.tile.rows, kGatedRows> rows_;
    OperandCopies<c, ConfigParts<c>::kCols, c.tile.cols, kGatedCols> cols_;
    ScaleCopies<c, ConfigParts<c>::kRowScales, c.tile.rows, kGatedRows> row_scales_;
    ScaleCopies<c, ConfigParts<c>::kColScales, c.tile.cols, kGatedCols> col_scales_;
    ScaleCopies<c, ZeroWords<c>::kScaling, c.tile.rows, false, c.rows_operand().has_zeros()> zeros_;
    int32_t k_left_ = 0;  // from the K block's start on
};

}  // namespace deep_gemm::sm80
