// A thread's share of a chunk of D: neighbours of one row of the instruction's frame, from complete sums to what is
// stored. How sums are scaled is in dequantise.cuh.
#pragma once

#include <deep_gemm/arch/sm100_smem.cuh>
#include <deep_gemm/element.cuh>
#include <deep_gemm/store/dequantise.cuh>
#include <deep_gemm/store/padding_rows.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm::sm100 {

template <GemmConfig c>
using PaddingRows = PaddingRowsOf<c, Smem<c>>;

template <Element kElement>
DG_DEVICE RegisterOf<kElement> from_word(uint32_t word) {
    if constexpr (kElement == Element::s32)
        return static_cast<int32_t>(word);
    else
        return __uint_as_float(word);
}
DG_DEVICE uint32_t to_word(float value) { return __float_as_uint(value); }
DG_DEVICE uint32_t to_word(int32_t value) { return static_cast<uint32_t>(value); }

/// visit(index, value) of the elements in 16 bytes of memory.
template <Element kElement, typename Visit>
DG_DEVICE void for_each_in_words(const uint4& four, const Visit& visit) {
    const uint32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
        if constexpr (bits(kElement) == 32) {
            visit(i, from_word<kElement>(words[i]));
        } else {
            const float2 two = Pack<kElement>::unpack(words[i]);
            visit(2 * i, two.x), visit(2 * i + 1, two.y);
        }
    }
}

/// A thread's sums of a chunk, as the tensor cores and other CTAs have made them.
template <GemmConfig c>
using PieceSums = RegisterOf<c.sum()>[chunk_cols(c)];

/// Where these lie in D, `kCols` neighbours along the instruction's columns, and what is stored of them.
template <GemmConfig c>
struct Piece {
    static constexpr int32_t kCols = chunk_cols(c), kValues = kCols;
    static constexpr bool kAlongN = !c.swap_ab;  // D's rows are contiguous along the neighbours
    using Stored = StorageOf<c.output>;

    RegisterOf<c.output> values[kCols];
    int32_t row, col;      // of the first, in D's own frame: M and N
    int32_t m_end, n_end;  // first elements past D
    int32_t group;
    int32_t expert;  // whose B it is

    /// `chunk` counts the warp's.
    DG_DEVICE Piece(const Tile& tile, int32_t chunk, const GemmParams& params)
        : m_end(c.grouping == Grouping::masked ? tile.m_end : extent_m<c>(params)),
          n_end(extent_n<c>(params)),
          group(group_of_d<c>(tile)),
          expert(group_of_b<c>(tile)) {
        const int32_t along_rows = tile.row + thread_row(),
                      along_cols = tile.col + first_store_col<c>() + chunk * kCols;
        row = c.swap_ab ? along_cols : along_rows;
        col = c.swap_ab ? along_rows : along_cols;
    }

    DG_DEVICE int32_t row_of(int32_t i) const { return row + (kAlongN ? 0 : i); }
    DG_DEVICE bool inside(int32_t i) const { return row_of(i) < m_end && col + (kAlongN ? i : 0) < n_end; }

    /// Where in memory a neighbour lies. `data` is D or C of the tile's group.
    template <typename Value>
    DG_DEVICE Value* place(Value* data, int64_t stride, int32_t i) const {
        const int32_t x = col + (kAlongN ? i : 0);
        return data + row_of(i) * stride + (c.heads.any() ? c.heads.place(x) : x);
    }

    /// Whether all neighbours are inside and are units of 16 bytes.
    template <typename Value>
    DG_DEVICE bool is_whole(Value* data, int64_t stride) const {
        return kAlongN && !c.heads.any() && row < m_end && col + kCols <= n_end &&
               reinterpret_cast<uint64_t>(place(data, stride, 0)) % 16 == 0;
    }

    /// visit(neighbour, value) with values that lie along M of D, or along N.
    template <bool kAlongM, Element kElement, typename Visit>
    DG_DEVICE void for_each_along(const StorageOf<kElement>* data, int64_t stride, const Visit& visit) const {
        const int32_t first = kAlongM ? row : col, end = kAlongM ? m_end : n_end;
        const auto load = [&](int32_t i) {
            return i < end ? to_register<kElement>(data[i * stride]) : RegisterOf<kElement>{};
        };
        if constexpr (kAlongM == kAlongN) {  // along the instruction's rows: a thread has one
            const RegisterOf<kElement> of_all = load(first);
#pragma unroll
            for (int32_t i = 0; i < kCols; ++i) visit(i, of_all);
            return;
        }
        constexpr int32_t kInUnit = elements_in(kElement, 16);
        // Two loops: with the question inside, loads would wait for one another.
        if (stride == 1 && first + kCols <= end && reinterpret_cast<uint64_t>(data + first) % 16 == 0) {
            const auto* line = reinterpret_cast<const uint4*>(data + first);
#pragma unroll
            for (int32_t unit = 0; unit < kCols / kInUnit; ++unit)
                for_each_in_words<kElement>(line[unit], [&](int32_t i, RegisterOf<kElement> value) {
                    visit(unit * kInUnit + i, value);
                });
        } else {
#pragma unroll
            for (int32_t i = 0; i < kCols; ++i) visit(i, load(first + i));
        }
    }
};

/// Complete sums as what is stored.
template <GemmConfig c>
DG_DEVICE void finish_sums(Piece<c>& piece, const PieceSums<c>& sums, const GemmParams& params) {
    if constexpr (c.finishes_sums()) {
        dequantise<c>(piece.values, sums, piece, params);
    } else {
#pragma unroll
        for (int32_t i = 0; i < Piece<c>::kCols; ++i) piece.values[i] = sums[i];
        undo_conversion<c>(piece.values);
    }
}

/// Neighbours that are 16 bytes.
template <GemmConfig c>
inline constexpr int32_t kUnit = 16 / bytes_of(c.output, 1);

/// Sixteen bytes of D as four words.
template <GemmConfig c>
DG_DEVICE void to_words(const RegisterOf<c.output>* values, uint32_t (&words)[4]) {
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
        if constexpr (bits(c.output) == 32)
            words[i] = to_word(values[i]);
        else
            words[i] = Pack<c.output>::pack(values[2 * i], values[2 * i + 1]);
    }
}

template <GemmConfig c>
DG_DEVICE void add_c(Piece<c>& piece, const Tile& tile, const GemmParams& params) {
    using Stored = typename Piece<c>::Stored;
    const auto* data = static_cast<const Stored*>(params.c_data) + group_of_d<c>(tile) * params.c_group_stride;
    if (piece.is_whole(data, params.c_stride)) {
        const auto* line = reinterpret_cast<const uint4*>(piece.place(data, params.c_stride, 0));
#pragma unroll
        for (int32_t unit = 0; unit < Piece<c>::kCols / kUnit<c>; ++unit)
            for_each_in_words<c.output>(line[unit], [&](int32_t i, RegisterOf<c.output> value) {
                piece.values[unit * kUnit<c> + i] += value;
            });
    } else {
#pragma unroll
        for (int32_t i = 0; i < Piece<c>::kCols; ++i)
            if (piece.inside(i)) piece.values[i] += to_register<c.output>(*piece.place(data, params.c_stride, i));
    }
}

/// Rows of padding become zero: those between a psum group and the next one, and those that the layout says are none.
template <GemmConfig c>
DG_DEVICE void clear_padding(Piece<c>& piece, const Tile& tile, const PaddingRows<c>& padding) {
    if constexpr (c.grouping == Grouping::m_psum) {
#pragma unroll
        for (int32_t i = 0; i < Piece<c>::kCols; ++i)
            piece.values[i] = piece.row_of(i) < tile.m_end ? piece.values[i] : 0;
    } else if constexpr (marks_padding(c)) {
        if (!padding.any()) return;
        const int32_t first = c.swap_ab ? tile.col : tile.row;
#pragma unroll
        for (int32_t i = 0; i < Piece<c>::kCols; ++i)
            piece.values[i] = padding.has(piece.row_of(i) - first) ? 0 : piece.values[i];
    }
}

}  // namespace deep_gemm::sm100
