// Where a thread's sums in registers lie in D, and how they get there without being staged.
#pragma once

#include <deep_gemm/element.cuh>
#include <deep_gemm/epilogue/heads.cuh>
#include <deep_gemm/epilogue/run_exchange.cuh>
#include <deep_gemm/mma/fragment_16x8.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/store/quad.cuh>
#include <deep_gemm/store/swapped_gates.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm {

/// The place of what a gate has made of pairs of a fragment's values; without a gate, the fragment.
template <Constant<GemmConfig> c, bool = c.gate.any() && c.swap_ab>
struct SelectPlaceOfD {
    using Type = Fragment<ConfigParts<c>::kBehindGate>;
};
template <Constant<GemmConfig> c>
struct SelectPlaceOfD<c, true> {
    using Type = SwappedGates<c>;
};

/// D's (or C's) elements behind one thread's accumulators: a place (epilogue/tile_end.cuh). Two running pointers are
/// all the addressing that takes registers.
template <Constant<GemmConfig> c>
struct Fragment : RunExchange<c, fragment_d_cols(c)> {
    static constexpr int32_t kValues = kAccumulators<c>;
    using OfD = typename SelectPlaceOfD<c>::Type;

    int32_t row, col;      // of register 0, in D's own frame: M and N
    int32_t m_end, n_end;  // first elements past D; past a group's rows, where others' may follow
    int32_t group;
    int32_t expert;  // whose B it is

    DG_DEVICE Fragment(const Tile& tile, int32_t first_row, const GemmParams& params)
        : m_end(ends_with_group(c) ? tile.m_end : extent_m<c>(params)),
          n_end(extent_n<c>(params)),
          group(group_of_d<c>(tile)),
          expert(group_of_b<c>(tile)) {
        const int32_t lane = threadIdx.x % 32;
        const int32_t along_rows = Fragment16x8::thread_row(tile.row + first_row);
        const int32_t along_cols = tile.col + Fragment16x8::col(lane);
        row = c.swap_ab ? along_cols : along_rows;
        col = c.swap_ab ? along_rows : along_cols;
    }

    /// Of warps that divide columns too: where this thread's register 0 lies in the tile.
    DG_DEVICE Fragment(const Tile& tile, int32_t along_rows, int32_t along_cols, const GemmParams& params)
        : row(c.swap_ab ? tile.col + along_cols : tile.row + along_rows),
          col(c.swap_ab ? tile.row + along_rows : tile.col + along_cols),
          m_end(ends_with_group(c) ? tile.m_end : extent_m<c>(params)),
          n_end(extent_n<c>(params)),
          group(group_of_d<c>(tile)),
          expert(group_of_b<c>(tile)) {}

    /// What a gate has made of the pairs of this one's values. Gates and ups are columns of the instruction; or see
    /// SwappedGates.
    template <Constant<GemmConfig> product>
    DG_DEVICE explicit Fragment(const Fragment<product>& of)
        : row(of.row),
          col(of.col / (2 * kGateCols) * kGateCols + of.col % kGateCols),
          m_end(of.m_end),
          n_end(product.gate.columns(of.n_end)),
          group(of.group),
          expert(of.expert) {
        this->exchange_as(of);
        static_assert(product.gate.any() && !c.swap_ab && product.held_cols() % (2 * kGateCols) == 0);
    }

    /// visit(register of D, the gate, the up).
    template <typename Values, typename Visit>
    static DG_DEVICE void for_each_gated(const Values& values, const Visit& visit) {
        static_assert(kGateCols == Fragment16x8::kCols && kGateCols == Fragment16x8::kHalfRows);
        // Registers of so many gates, which as many ups follow: those of 8 columns, or one row's of them.
        constexpr int32_t kOne = c.swap_ab ? Fragment16x8::pair(0, 1) : Fragment16x8::kRegisters;
#pragma unroll
        for (int32_t i = 0; i < kValues / 2; ++i) {
            const int32_t gate = i / kOne * 2 * kOne + i % kOne;
            visit(i, values[gate], values[gate + kOne]);
        }
    }

    /// visit(register, pointer to the first element of the pair, distance to the second, is the first inside, is the
    /// second).
    template <typename Stored, typename Visit>
    DG_DEVICE void for_each_pair(Stored* data, int64_t stride, int64_t group_stride, const Visit& visit) const {
        if constexpr (c.heads.any() || c.gate.any())
            return for_each_scattered_pair(data + group * group_stride, stride, visit);
        Stored* line = data + group * group_stride + row * stride + col;
#pragma unroll
        for (int32_t j = 0; j < c.held_cols() / Fragment16x8::kCols; ++j) {
#pragma unroll
            for (int32_t half = 0; half < 2; ++half) {
                const int32_t i = Fragment16x8::pair(j, half);
                const int32_t down = Fragment16x8::kHalfRows * half, along = Fragment16x8::kCols * j;
                if constexpr (c.swap_ab) {
                    const bool inside = col + down < n_end;
                    visit(i, line + down, stride, inside && row + along < m_end, inside && row + along + 1 < m_end);
                } else {
                    const bool inside = row + down < m_end;
                    visit(i, line + along + down * stride, int64_t{1}, inside && col + along < n_end,
                          inside && col + along + 1 < n_end);
                }
            }
            if constexpr (c.swap_ab) line += Fragment16x8::kCols * stride;
        }
    }

    /// visit(register, value) with values that lie along M of D, or along N: as B's rows do, or (`kAsC`) as C's
    /// columns.
    template <bool kAlongM, Element kElement, bool kAsC = false, typename Visit>
    DG_DEVICE void for_each_along(const StorageOf<kElement>* data, int64_t stride, const Visit& visit) const {
        using Both = decltype(load_pair<kElement>(data));
        using One = decltype(Both::x);
        const int32_t first = kAlongM ? row : col, end = kAlongM ? m_end : n_end;
        const auto load = [&](int32_t i) {
            const int32_t place = kAlongM ? i : kAsC ? channel_of<c>(i, end) : row_of_b<c>(i, end);
            const bool inside = kAlongM ? i < end : c.gate.has(i, end);
            return inside ? to_register<kElement>(data[place * stride]) : One{};
        };
        if constexpr (kAlongM != c.swap_ab) {  // along the instruction's rows: a thread has two
            const One of[2] = {load(first), load(first + Fragment16x8::kHalfRows)};
#pragma unroll
            for (int32_t i = 0; i < kValues; ++i) visit(i, of[Fragment16x8::half(i)]);
        } else {
            const auto each_group = [&](const auto& load_two) {
#pragma unroll
                for (int32_t group = 0; group < c.held_cols() / Fragment16x8::kCols; ++group) {
                    const Both two = load_two(first + group * Fragment16x8::kCols);
#pragma unroll
                    for (int32_t i = 0; i < Fragment16x8::kRegisters; ++i)
                        visit(Fragment16x8::kRegisters * group + i, Fragment16x8::neighbour(i) ? two.y : two.x);
                }
            };
            // Two loops: with the question inside, loads would wait for one another.
            const bool pairs = (kAlongM || !c.gate.any() || (!kAsC && !c.gate.joins())) && stride == 1 &&
                               end % 2 == 0 && reinterpret_cast<uint64_t>(data) % (2 * sizeof(*data)) == 0;
            if (pairs)
                each_group([&](int32_t i) { return i < end ? load_pair<kElement>(data + i) : Both{}; });
            else
                each_group([&](int32_t i) { return Both{load(i), load(i + 1)}; });
        }
    }

    /// Whether registers' pairs are neighbours in D, all of them inside or none, and aligned as one access wants them.
    template <typename Stored>
    DG_DEVICE bool has_pairs(const Stored* data, int64_t stride, int64_t group_stride) const {
        constexpr int32_t kSplits = c.heads.left | c.heads.skipped | c.heads.right;
        return !c.swap_ab && !c.gate.any() && kSplits % 2 == 0 && (stride | group_stride | n_end) % 2 == 0 &&
               reinterpret_cast<uint64_t>(data) % (2 * sizeof(Stored)) == 0;
    }

    /// visit(register, element) of a matrix that lies as D does; what is outside may be zero.
    template <Element kElement, typename Visit>
    DG_DEVICE void for_each_stored(const StorageOf<kElement>* data, int64_t stride, int64_t group_stride,
                                   const Visit& visit) const {
        using Stored = StorageOf<kElement>;
        // Two loops: with the question inside, loads would wait for one another.
        if (!c.swap_ab && has_pairs(data, stride, group_stride))
            for_each_pair(data, stride, group_stride, [&](int32_t i, const Stored* pair, int64_t, bool first, bool) {
                using Both = decltype(load_pair<kElement>(pair));
                const Both both = first ? load_pair<kElement>(pair) : Both{};
                visit(i, both.x), visit(i + 1, both.y);
            });
        else
            for_each_pair(data, stride, group_stride,
                          [&](int32_t i, const Stored* pair, int64_t step, bool first, bool second) {
                              if (first) visit(i, to_register<kElement>(pair[0]));
                              if (second) visit(i + 1, to_register<kElement>(pair[step]));
                          });
    }

    /// visit(register, its row of D).
    template <typename Visit>
    DG_DEVICE void for_each_row(const Visit& visit) const {
#pragma unroll
        for (int32_t i = 0; i < kValues; ++i)
            visit(i, row + (c.swap_ab ? Fragment16x8::col_step(i) : Fragment16x8::row_step(i)));
    }

    /// visit(register, its column of D).
    template <typename Visit>
    DG_DEVICE void for_each_col(const Visit& visit) const {
#pragma unroll
        for (int32_t i = 0; i < kValues; ++i)
            visit(i, col + (c.swap_ab ? Fragment16x8::row_step(i) : Fragment16x8::col_step(i)));
    }

    /// Runs of `kCols` columns of a row of D that this thread has some of, and the one that a register is of.
    template <int32_t kCols>
    static constexpr int32_t kRuns = c.swap_ab                ? kValues / 2
                                     : c.held_cols() <= kCols ? 2
                                                              : 2 * (c.held_cols() / kCols);
    template <int32_t kCols>
    static DG_DEVICE constexpr int32_t run(int32_t i) {
        if (c.swap_ab) return Fragment16x8::group(i) * 2 + Fragment16x8::neighbour(i);
        return Fragment16x8::group(i) * Fragment16x8::kCols / kCols * 2 + Fragment16x8::half(i);
    }

    /// What all threads of its warp that have some of a run found of it, `of_runs`, to each of them.
    template <int32_t kCols, typename Combine>
    static DG_DEVICE void reduce_along(float (&of_runs)[kRuns<kCols>], const Combine& combine) {
        constexpr int32_t kNeighbours = c.swap_ab ? 4 : 1, kEnd = c.swap_ab ? 32 : 4;  // lanes that share a run
#pragma unroll
        for (float& of_run : of_runs)
#pragma unroll
            for (int32_t distance = kNeighbours; distance < kEnd; distance *= 2)
                of_run = combine(of_run, __shfl_xor_sync(0xffffffff, of_run, distance));
    }

    static constexpr int32_t kQuartetValues = c.swap_ab ? 1 : 2;
    static DG_DEVICE int32_t in_quartet(int32_t i) {
        return c.swap_ab ? threadIdx.x / 4 % 4 : threadIdx.x % 2 * 2 + Fragment16x8::neighbour(i);
    }
    static DG_DEVICE uint32_t sum_over_quartet(uint32_t x) {
        if constexpr (!c.swap_ab) return x + __shfl_xor_sync(0xffffffff, x, 1);
        x += __shfl_xor_sync(0xffffffff, x, 4);
        return x + __shfl_xor_sync(0xffffffff, x, 8);
    }

    static constexpr int32_t kReaders = c.swap_ab ? 8 : 4;
    static DG_DEVICE int32_t reader() { return c.swap_ab ? threadIdx.x % 32 / 4 : threadIdx.x % 4; }

    /// visit(run, its row, the first of its columns that this warp has). By the thread that speaks for its warp.
    template <int32_t kCols, typename Visit>
    DG_DEVICE void for_each_held_run(const Visit& visit) const {
        if (reader() != 0) return;
        for_each_part<kCols>(visit);
    }
    /// By all of its threads.
    template <int32_t kCols, typename Visit>
    DG_DEVICE void for_each_part(const Visit& visit) const {
        const int32_t lane = threadIdx.x % 32,
                      first = col - (c.swap_ab ? Fragment16x8::row(lane) : Fragment16x8::col(lane));
#pragma unroll
        for (int32_t i = 0; i < kRuns<kCols>; ++i) {
            if constexpr (c.swap_ab)
                visit(i, row + i / 2 * Fragment16x8::kCols + i % 2, first);
            else
                visit(i, row + i % 2 * Fragment16x8::kHalfRows, first + i / 2 * kCols);
        }
    }

    /// visit(register) where `marks` (PaddingRowsOf) has its row. This warp has some of the tile's rows, from `first`
    /// on, or a part of all.
    template <typename Marks, typename Visit>
    static DG_DEVICE void for_each_marked(const Marks& marks, int32_t first, const Visit& visit) {
        const int32_t lane = threadIdx.x % 32;
        uint32_t rows = 0;
        if constexpr (c.swap_ab) {
            if (!marks.any()) return;
        } else {  // most warps have none among their 16, and must not pay for it
            rows = marks.rows(first) & ((1u << Fragment16x8::kRows) - 1);
            if (rows == 0) return;
            rows >>= Fragment16x8::row(lane);
        }
#pragma unroll
        for (int32_t i = 0; i < kValues; ++i) {
            const int32_t step = c.swap_ab ? Fragment16x8::col_step(i) : Fragment16x8::row_step(i);
            if (c.swap_ab && step % 32 == 0) rows = marks.rows(step) >> Fragment16x8::col(lane);
            if (rows >> step % 32 & 1) visit(i);
        }
    }

private:
    /// for_each_pair where neighbours of the product are none of D's or, of a gate, of C's. (Apart, or other kernels'
    /// code would change.)
    template <typename Stored, typename Visit>
    DG_DEVICE void for_each_scattered_pair(Stored* data, int64_t stride, const Visit& visit) const {
#pragma unroll
        for (int32_t j = 0; j < c.held_cols() / Fragment16x8::kCols; ++j) {
#pragma unroll
            for (int32_t half = 0; half < 2; ++half) {
                const int32_t i = Fragment16x8::pair(j, half);
                const int32_t down = Fragment16x8::kHalfRows * half, along = Fragment16x8::kCols * j;
                const int32_t y = row + (c.swap_ab ? along : down), x = col + (c.swap_ab ? down : along);
                const auto lies = [&](int32_t at) {
                    return c.gate.any() ? channel_of<c>(at, n_end) : column_of_d<c>(at);
                };
                const int32_t place = lies(x);
                const int64_t next = c.swap_ab ? stride : lies(x + 1) - place;
                const auto has = [&](int32_t at) { return c.gate.has(at, n_end); };
                const bool first = y < m_end && has(x),
                           second = c.swap_ab ? y + 1 < m_end && has(x) : y < m_end && has(x + 1);
                visit(i, data + y * stride + place, next, first, second);
            }
        }
    }
};

/// Whether a tile's rows of bytes are written 16 at a time.
constexpr bool stores_byte_quads(const GemmConfig& c) {
    return bits(c.output) == 8 && !c.swap_ab && !c.heads.any() && c.held_cols() % kByteQuadCols == 0;
}

/// And D's rows lie so, all 16 inside or none.
template <Constant<GemmConfig> c>
DG_DEVICE bool has_byte_quads(const Fragment<c>& at, const GemmParams& params) {
    return ((params.d_stride | params.d_group_stride | at.n_end) % 16) == 0 &&
           reinterpret_cast<uint64_t>(params.d_data) % 16 == 0;
}

/// Of 64 columns of a row each of four lanes has two of every eight, and stores 16 that follow each other.
template <Constant<GemmConfig> c>
DG_DEVICE void store_byte_quads(const Results<c>& results, const Fragment<c>& at, const GemmParams& params) {
    const int32_t lane = threadIdx.x % kQuad, first_col = at.col - Fragment16x8::col(lane) + lane * 16;
    auto* data =
        static_cast<uint8_t*>(params.d_data) + at.group * params.d_group_stride + at.row * params.d_stride + first_col;
#pragma unroll
    for (int32_t along = 0; along < c.held_cols(); along += kByteQuadCols)
#pragma unroll
        for (int32_t half = 0; half < 2; ++half) {
            uint32_t words[kQuad];  // two pairs of neighbours, eight columns apart
#pragma unroll
            for (int32_t i = 0; i < kQuad; ++i) {
                const int32_t low = Fragment16x8::pair(along / Fragment16x8::kCols + 2 * i, half),
                              high = low + Fragment16x8::kRegisters;
                words[i] = Pack<c.output>::pack(results[low], results[low + 1]) |
                           Pack<c.output>::pack(results[high], results[high + 1]) << 16;
            }
            exchange_in_quad(words);
            const int32_t down = half * Fragment16x8::kHalfRows;
            constexpr uint32_t kLow = 0x5410, kHigh = 0x7632;  // halves of two words
            if (at.row + down < at.m_end && first_col + along < at.n_end)
                *reinterpret_cast<uint4*>(data + down * params.d_stride + along) =
                    make_uint4(ptx::permute_bytes(words[0], words[1], kLow),
                               ptx::permute_bytes(words[2], words[3], kLow),
                               ptx::permute_bytes(words[0], words[1], kHigh),
                               ptx::permute_bytes(words[2], words[3], kHigh));
        }
}

/// Registers to global memory, in place of what is there or added to it.
template <Constant<GemmConfig> c>
DG_DEVICE void store_direct(const Results<c>& total, const Fragment<c>& at, const GemmParams& params) {
    using Stored = typename Storage<c.output>::Type;
    constexpr bool kAdd = adds_to_memory(c.store);
    static_assert(!kAdd || c.output == Element::fp32, "only FP32 is added in place: 16 bits would be rounded twice");
    auto* data = static_cast<Stored*>(params.d_data);
    if constexpr (stores_byte_quads(c))
        if (has_byte_quads<c>(at, params)) return store_byte_quads<c>(total, at, params);
    // Two loops: with the question inside, NVVM (CUDA 13.0) left one of 64 pairs rolled, and the sums in local memory.
    if (!c.swap_ab && at.has_pairs(data, params.d_stride, params.d_group_stride))
        at.for_each_pair(data, params.d_stride, params.d_group_stride,
                         [&](int32_t i, Stored* pair, int64_t, bool first, bool) {
                             if (!first) return;
                             if constexpr (kAdd)
                                 ptx::add_global_x2(pair, total[i], total[i + 1]);
                             else
                                 store_pair<c.output>(pair, total[i], total[i + 1]);
                         });
    else
        at.for_each_pair(data, params.d_stride, params.d_group_stride,
                         [&](int32_t i, Stored* pair, int64_t step, bool first, bool second) {
                             if constexpr (kAdd) {
                                 if (first) ptx::add_global(pair, total[i]);
                                 if (second) ptx::add_global(pair + step, total[i + 1]);
                             } else {
                                 if (first) from_register<c.output>(pair[0], total[i]);
                                 if (second) from_register<c.output>(pair[step], total[i + 1]);
                             }
                         });
}

}  // namespace deep_gemm
