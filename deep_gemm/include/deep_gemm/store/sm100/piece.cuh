// Where a thread's share of a chunk lies in D: neighbours of one row of the instruction's frame.
#pragma once

#include <deep_gemm/arch/sm100_smem.cuh>
#include <deep_gemm/element.cuh>
#include <deep_gemm/epilogue/heads.cuh>
#include <deep_gemm/epilogue/run_exchange.cuh>
#include <deep_gemm/store/padding_rows.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm::sm100 {

template <Constant<GemmConfig> c>
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
template <Constant<GemmConfig> c>
using PieceSums = RegisterOf<c.sum()>[chunk_cols(c)];

/// Where these lie in D, `kCols` neighbours along the instruction's columns: a place (epilogue/tile_end.cuh). Behind a
/// gate, half as many: of columns gates and ups make one; where they are rows, two threads share theirs.
template <Constant<GemmConfig> c, bool kBehindGate = false>
struct Piece : RunExchange<c, piece_d_cols(c)> {
    static constexpr int32_t kCols = chunk_cols(c) / (kBehindGate ? 2 : 1), kValues = kCols;
    static constexpr bool kAlongN = !c.swap_ab;  // D's rows are contiguous along the neighbours
    using Stored = StorageOf<c.output>;
    using OfD = Piece<c, c.gate.any()>;

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

    /// What a gate has made of these.
    template <bool kOther>
        requires(kBehindGate && !kOther)
    DG_DEVICE explicit Piece(const Piece<c, kOther>& of)
        : row(of.row + (!kAlongN && has_ups() ? kCols : 0)),
          col(of.col / (2 * kGateCols) * kGateCols + of.col % kGateCols),
          m_end(of.m_end),
          n_end(c.d_cols(of.n_end)),
          group(of.group),
          expert(of.expert) {
        this->exchange_as(of);
    }

    /// visit(neighbour behind the gate, gate, up). Where they are rows, the thread of each gate takes the first half of
    /// both, that of the up the second.
    template <typename Values, typename Visit>
    static DG_DEVICE void for_each_gated(const Values& values, const Visit& visit) {
        constexpr int32_t kHalf = kCols / 2;
#pragma unroll
        for (int32_t i = 0; i < kHalf; ++i) {
            if constexpr (kAlongN) {
                const int32_t gate = i / kGateCols * 2 * kGateCols + i % kGateCols;
                visit(i, values[gate], values[gate + kGateCols]);
            } else {
                const bool ups = has_ups();
                const float mine = ups ? values[i + kHalf] : values[i], given = ups ? values[i] : values[i + kHalf],
                            other = __shfl_xor_sync(0xffffffff, given, kGateCols);
                visit(i, ups ? other : mine, ups ? mine : other);
            }
        }
    }

    DG_DEVICE int32_t row_of(int32_t i) const { return row + (kAlongN ? 0 : i); }
    DG_DEVICE bool inside(int32_t i) const {
        const int32_t at = col + (kAlongN ? i : 0);
        return row_of(i) < m_end && (kAhead ? c.gate.has(at, n_end) : at < n_end);
    }

    /// Where in memory a neighbour lies. `data` is D or C of the tile's group.
    template <typename Value>
    DG_DEVICE Value* place(Value* data, int64_t stride, int32_t i) const {
        return data + row_of(i) * stride + line_place(col + (kAlongN ? i : 0), n_end);
    }

    /// Whether all neighbours are inside and are units of 16 bytes.
    template <typename Value>
    DG_DEVICE bool is_whole(Value* data, int64_t stride) const {
        return kAlongN && !c.heads.any() && !kAhead && row < m_end && col + kCols <= n_end &&
               reinterpret_cast<uint64_t>(place(data, stride, 0)) % 16 == 0;
    }

    /// visit(neighbour, value) with values that lie along M of D, or along N: as B's rows do, or (`kAsC`) as C's
    /// columns.
    template <bool kAlongM, Element kElement, bool kAsC = false, typename Visit>
    DG_DEVICE void for_each_along(const StorageOf<kElement>* data, int64_t stride, const Visit& visit) const {
        const int32_t first = kAlongM ? row : col, end = kAlongM ? m_end : n_end;
        const auto load = [&](int32_t i) {
            const int32_t at = kAlongM || !kAhead ? i : kAsC ? channel_of<c>(i, end) : row_of_b<c>(i, end);
            const bool inside = kAlongM || !kAhead ? i < end : c.gate.has(i, end);
            return inside ? to_register<kElement>(data[at * stride]) : RegisterOf<kElement>{};
        };
        if constexpr (kAlongM == kAlongN) {  // along the instruction's rows: a thread has one
            const RegisterOf<kElement> of_all = load(first);
#pragma unroll
            for (int32_t i = 0; i < kCols; ++i) visit(i, of_all);
            return;
        }
        constexpr int32_t kInUnit = elements_in(kElement, 16);
        // Two loops: with the question inside, loads would wait for one another.
        if ((kAlongM || !kAhead || (!kAsC && !c.gate.joins())) && stride == 1 && first + kCols <= end &&
            reinterpret_cast<uint64_t>(data + first) % 16 == 0) {
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

    /// visit(neighbour, element) of a matrix that lies as D does; not of what is outside.
    template <Element kElement, typename Visit>
    DG_DEVICE void for_each_stored(const StorageOf<kElement>* data, int64_t stride, int64_t group_stride,
                                   const Visit& visit) const {
        const auto* const matrix = data + group * group_stride;
        if (is_whole(matrix, stride)) {
            constexpr int32_t kInUnit = elements_in(kElement, 16);
            const auto* line = reinterpret_cast<const uint4*>(place(matrix, stride, 0));
#pragma unroll
            for (int32_t unit = 0; unit < kCols / kInUnit; ++unit)
                for_each_in_words<kElement>(line[unit], [&](int32_t i, RegisterOf<kElement> value) {
                    visit(unit * kInUnit + i, value);
                });
        } else {
#pragma unroll
            for (int32_t i = 0; i < kCols; ++i)
                if (inside(i)) visit(i, to_register<kElement>(*place(matrix, stride, i)));
        }
    }

    /// visit(neighbour, its row of D).
    template <typename Visit>
    DG_DEVICE void for_each_row(const Visit& visit) const {
#pragma unroll
        for (int32_t i = 0; i < kCols; ++i) visit(i, row_of(i));
    }

    /// visit(neighbour, its column of D).
    template <typename Visit>
    DG_DEVICE void for_each_col(const Visit& visit) const {
#pragma unroll
        for (int32_t i = 0; i < kCols; ++i) visit(i, col + (kAlongN ? i : 0));
    }

    /// Runs of so many columns of a row of D that a thread has some of, and the one that a neighbour is of.
    template <int32_t kRunCols>
    static constexpr int32_t kRuns = kAlongN ? ceil_div(kCols, kRunCols) : kCols;
    template <int32_t kRunCols>
    static DG_DEVICE constexpr int32_t run(int32_t i) {
        return kAlongN ? i / kRunCols : i;
    }
    template <int32_t kRunCols, typename Combine>
    static DG_DEVICE void reduce_along(float (&of_runs)[kRuns<kRunCols>], const Combine& combine) {
        if constexpr (!kAlongN) {
#pragma unroll
            for (float& of_run : of_runs)
#pragma unroll
                for (int32_t distance = 1; distance < 32; distance *= 2)
                    if (!kBehindGate || distance != kGateCols)
                        of_run = combine(of_run, __shfl_xor_sync(0xffffffff, of_run, distance));
        }
    }

    static constexpr int32_t kQuartetValues = kAlongN ? 4 : 1;
    static DG_DEVICE int32_t in_quartet(int32_t i) { return kAlongN ? i % 4 : ptx::lane() % 4; }
    static DG_DEVICE uint32_t sum_over_quartet(uint32_t x) {
        if constexpr (kAlongN) return x;
        x += __shfl_xor_sync(0xffffffff, x, 1);
        return x + __shfl_xor_sync(0xffffffff, x, 2);
    }

    static constexpr int32_t kReaders = 1;  // or there would be more to exchange than to read
    static DG_DEVICE int32_t reader() { return 0; }

    /// visit(run, its row, the first of its columns that this warp has). By the thread that speaks for its warp.
    template <int32_t kRunCols, typename Visit>
    DG_DEVICE void for_each_held_run(const Visit& visit) const {
        if (!kAlongN && lane_col() != 0) return;
        for_each_part<kRunCols>(visit);
    }
    /// By all of its threads.
    template <int32_t kRunCols, typename Visit>
    DG_DEVICE void for_each_part(const Visit& visit) const {
        const int32_t first = kAlongN ? col : col - lane_col();
#pragma unroll
        for (int32_t i = 0; i < kRuns<kRunCols>; ++i)
            visit(i, row_of(kAlongN ? 0 : i), first + (kAlongN ? i * kRunCols : 0));
    }

    /// visit(neighbour) where `marks` (PaddingRowsOf) has its row; `first` is the first one's in the tile.
    template <typename Marks, typename Visit>
    static DG_DEVICE void for_each_marked(const Marks& marks, int32_t first, const Visit& visit) {
        constexpr int32_t kAtOnce = kBehindGate ? 8 : 16;
        static_assert(kCols % kAtOnce == 0, "bits of so many rows from a multiple of it on are in one word");
        if (kAlongN ? !marks.has(first) : !marks.any()) return;
        uint32_t rows = 0;
#pragma unroll
        for (int32_t i = 0; i < kCols; ++i) {
            if (!kAlongN && i % kAtOnce == 0) rows = marks.rows(first + i);
            if (kAlongN || (rows >> i % kAtOnce & 1)) visit(i);
        }
    }

private:
    /// Ahead of a gate what lies along N lies as rows of B do, or as columns of C.
    static constexpr bool kAhead = c.gate.any() && !kBehindGate;
    static DG_DEVICE int32_t line_place(int32_t at, int32_t n) {
        return kAhead ? channel_of<c>(at, n) : kBehindGate ? at : column_of_d<c>(at);
    }

    /// Which of the warp's columns of D this thread has, where they are rows: behind a gate two threads have the same,
    /// of other rows of D.
    static DG_DEVICE int32_t lane_col() {
        const int32_t lane = ptx::lane();
        return kBehindGate ? lane / (2 * kGateCols) * kGateCols + lane % kGateCols : lane;
    }

    /// Whether this thread's row is of ups, where gates and ups are rows.
    static DG_DEVICE bool has_ups() { return ptx::lane() / kGateCols % 2 != 0; }
};

/// What is stored of them.
template <Constant<GemmConfig> c>
using PieceValues = RegisterOf<c.output>[c.d_cols(chunk_cols(c))];

/// Rows of padding among these.
template <Constant<GemmConfig> c>
struct PiecePadding {
    const PaddingRows<c>& rows;

    template <typename Place, typename Visit>
    DG_DEVICE void for_each_value(const Place& at, const Tile& tile, const Visit& visit) const {
        at.for_each_marked(rows, at.row - (c.swap_ab ? tile.col : tile.row), visit);
    }
};

/// Neighbours that are 16 bytes.
template <Constant<GemmConfig> c>
inline constexpr int32_t kUnit = 16 / bytes_of(c.output, 1);

/// Sixteen bytes of D as four words.
template <Constant<GemmConfig> c>
DG_DEVICE void to_words(const RegisterOf<c.output>* values, uint32_t (&words)[4]) {
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
        if constexpr (bits(c.output) == 32)
            words[i] = to_word(values[i]);
        else if constexpr (bits(c.output) == 8)
            words[i] = Pack<c.output>::pack(values[4 * i], values[4 * i + 1]) |
                       Pack<c.output>::pack(values[4 * i + 2], values[4 * i + 3]) << 16;
        else
            words[i] = Pack<c.output>::pack(values[2 * i], values[2 * i + 1]);
    }
}

}  // namespace deep_gemm::sm100
