// The end of a tile on SM100: store warps read sums from tensor memory, a chunk of columns at a time, and D goes out
// through the copy engine or from registers. A thread has one row of the instruction's frame. What is done to complete
// sums is in dequantise.cuh.
#pragma once

#include <deep_gemm/arch/sm100_smem.cuh>
#include <deep_gemm/element.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/tcgen05.cuh>
#include <deep_gemm/ptx/tma.cuh>
#include <deep_gemm/store/dequantise.cuh>
#include <deep_gemm/store/padding_rows.cuh>
#include <deep_gemm/store/swizzle.cuh>
#include <deep_gemm/store/tensor_parts.cuh>
#include <deep_gemm/tile/ring.cuh>
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

/// Through the copy engine: each warp's chunks take turns in its staging buffers.
template <GemmConfig c>
class StagedStores {
public:
    DG_DEVICE explicit StagedStores(const Smem<c>& smem) : buffers_(smem.staging(threadIdx.x / 32)) {}

    DG_DEVICE void write(const Piece<c>& piece, const Tile& tile, int32_t chunk, const GemmParams& params) {
        const uint32_t buffer = buffers_ + turn_ * kChunk.bytes();
        // The engine may still read an earlier chunk from this buffer. (Groups of stores belong to a thread: always the
        // same lane is elected.)
        if (ptx::elect_one()) ptx::wait_stores_read<c.store.buffers - 1>();
        __syncwarp();
        stage(buffer, piece);
        ptx::fence_for_async_proxy();
        __syncwarp();
        if (ptx::elect_one()) copy(buffer, tile, chunk, params);
        turn_ = turn_ + 1 == c.store.buffers ? 0 : turn_ + 1;
    }

    /// Shared memory must outlive the copies that read it.
    DG_DEVICE void finish() const {
        if (ptx::elect_one()) ptx::wait_stores<0>();
    }

private:
    static constexpr StoreChunk kChunk = store_chunk(c);
    static constexpr int32_t kSpan = kChunk.swizzle_bytes();

    static DG_DEVICE void stage(uint32_t buffer, const Piece<c>& piece) {
        const int32_t lane = ptx::lane();
        if constexpr (c.swap_ab && bits(c.output) == 16) {
            stage_pairs(buffer, piece);
        } else if constexpr (c.swap_ab) {
#pragma unroll
            for (int32_t i = 0; i < Piece<c>::kCols; ++i)
                ptx::store_shared(buffer + swizzled<kSpan>(i * kSpan + lane * 4), piece.values[i]);
        } else {
#pragma unroll
            for (int32_t unit = 0; unit < Piece<c>::kCols / kUnit<c>; ++unit) {
                uint32_t words[4];
                to_words<c>(piece.values + unit * kUnit<c>, words);
                ptx::store_shared_x4(buffer + swizzled<kSpan>(lane * kSpan + unit * 16), static_cast<int32_t>(words[0]),
                                     static_cast<int32_t>(words[1]), static_cast<int32_t>(words[2]),
                                     static_cast<int32_t>(words[3]));
            }
        }
    }

    /// Neighbours of D's rows are in neighbouring lanes: the even one takes both of one row, the odd one of the next.
    static DG_DEVICE void stage_pairs(uint32_t buffer, const Piece<c>& piece) {
        static_assert(2 * kSpan == 128, "two rows are swizzled alike");
        const int32_t lane = ptx::lane();
        const bool odd = lane % 2 != 0;
        const uint32_t own = odd * kSpan + lane / 2 * 4;
#pragma unroll
        for (int32_t i = 0; i < Piece<c>::kCols; i += 2) {
            const uint32_t first = i * kSpan, exchange = swizzled<kSpan>(first) ^ first;
            const float mine = odd ? piece.values[i + 1] : piece.values[i],
                        given = odd ? piece.values[i] : piece.values[i + 1],
                        other = __shfl_xor_sync(0xffffffff, given, 1);
            const uint32_t both = Pack<c.output>::pack(odd ? other : mine, odd ? mine : other);
            ptx::store_shared_int(buffer + (own ^ exchange) + first, static_cast<int32_t>(both));
        }
    }

    /// One thread.
    static DG_DEVICE void copy(uint32_t buffer, const Tile& tile, int32_t chunk, const GemmParams& params) {
        const int32_t row = tile.row + tensor_warp() * kWarpRows,
                      col = tile.col + first_store_col<c>() + chunk * Piece<c>::kCols;
        int32_t x = c.swap_ab ? row : col;
        if constexpr (c.heads.any()) {
            static_assert(c.heads.left % kChunk.inner == 0 && c.heads.right % kChunk.inner == 0,
                          "a chunk is of one part");
            x = c.heads.place(x);
        }
        const int32_t y = c.swap_ab ? col : row;
        if constexpr (adds_to_memory(c.store))
            ptx::add_box(&params.d, buffer, x, y, group_of_d<c>(tile));
        else
            ptx::store_box(&params.d, buffer, x, y, group_of_d<c>(tile));
        ptx::commit_stores();
    }

    uint32_t buffers_;
    int32_t turn_ = 0;
};

/// From registers, in place of what is there or added to it.
template <GemmConfig c>
class DirectStores {
public:
    DG_DEVICE explicit DirectStores(const Smem<c>&) {}

    DG_DEVICE void write(const Piece<c>& piece, const Tile& tile, int32_t, const GemmParams& params) const {
        using Stored = typename Piece<c>::Stored;
        static_assert(!adds_to_memory(c.store) || c.output == Element::fp32, "16 bits would be rounded twice");
        auto* data = static_cast<Stored*>(params.d_data) + group_of_d<c>(tile) * params.d_group_stride;
        if (!adds_to_memory(c.store) && piece.is_whole(data, params.d_stride)) {
            auto* line = reinterpret_cast<uint4*>(piece.place(data, params.d_stride, 0));
#pragma unroll
            for (int32_t i = 0; i < Piece<c>::kCols / kUnit<c>; ++i) {
                uint32_t words[4];
                to_words<c>(piece.values + i * kUnit<c>, words);
                line[i] = make_uint4(words[0], words[1], words[2], words[3]);
            }
            return;
        }
#pragma unroll
        for (int32_t i = 0; i < Piece<c>::kCols; ++i) {
            if (!piece.inside(i)) continue;
            Stored* const at = piece.place(data, params.d_stride, i);
            if constexpr (adds_to_memory(c.store))
                ptx::add_global(at, piece.values[i]);
            else
                from_register<c.output>(*at, piece.values[i]);
        }
    }

    DG_DEVICE void finish() const {}
};

template <GemmConfig c, bool = is_staged(c.store)>
struct SelectStores {
    using Type = DirectStores<c>;
};
template <GemmConfig c>
struct SelectStores<c, true> {
    using Type = StagedStores<c>;
};

/// A store warp's end of each tile, whoever brings the sums. Chunks are the warp's.
template <GemmConfig c>
class TileEnd {
public:
    DG_DEVICE TileEnd(const Smem<c>& smem, const GemmParams& params)
        : params_(params), stores_(smem), padding_(smem), parts_(smem) {}

    DG_DEVICE void begin() const { padding_.begin(); }

    /// Where CTAs split K: whether this one has the chunk, and what becomes of those that it has not.
    DG_DEVICE bool owns(int32_t chunk) const { return parts_.owns(chunk); }
    DG_DEVICE void send(const PieceSums<c>& sums, int32_t chunk) const { parts_.send(sums, chunk); }

    DG_DEVICE void write(PieceSums<c>& sums, const Tile& tile, int32_t chunk) {
        if constexpr (c.cluster.k > 1) parts_.add(sums, chunk);
        Piece<c> piece(tile, chunk, params_);
        finish_sums<c>(piece, sums, params_);
        if constexpr (c.add_c) add_c<c>(piece, tile, params_);
        clear_padding<c>(piece, tile, padding_);
        stores_.write(piece, tile, chunk, params_);
    }

    DG_DEVICE void end() { padding_.end(); }

    /// Behind the last tile.
    DG_DEVICE void finish() const { stores_.finish(); }

private:
    const GemmParams& params_;
    typename SelectStores<c>::Type stores_;
    PaddingRows<c> padding_;
    Parts<c> parts_;
};

/// All sums of this warp are in registers: the accumulator may be written again.
template <GemmConfig c>
DG_DEVICE void release_sums(uint32_t barrier, const ClusterPosition<c>& position) {
    ptx::tensor_fence_before_sync();
    __syncwarp();
    if (ptx::lane() != 0) return;
    if constexpr (mma_ctas(c) > 1)
        ptx::barrier_arrive_remote(barrier, ClusterPosition<c>::rank(0, position.col, position.k));
    else
        ptx::barrier_arrive(barrier);
}

/// The store role: four warps of each CTA.
template <GemmConfig c>
class StoreRole {
public:
    DG_DEVICE StoreRole(const Smem<c>& smem, const GemmParams& params, uint32_t tensor_memory)
        : smem_(smem), params_(params), sums_(tensor_memory + (tensor_warp() * kWarpRows << 16)), end_(smem, params) {}

    DG_DEVICE void run() {
        TileScheduler<c> tiles(params_, smem_.groups());
        Tile tile;
        while (tiles.next(tile)) {
            tiles.place(tile);
            store(tile);
        }
        end_.finish();
    }

private:
    DG_DEVICE void store(const Tile& tile) {
        const bool empty = kMayBeEmpty && tile.k_blocks == 0;  // nothing was multiplied, D is C or zero
        if (!empty) {
            ptx::barrier_wait(smem_.sums_full(accumulators_.stage), accumulators_.phase);
            ptx::tensor_fence_after_sync();
        }
        end_.begin();
        if constexpr (c.cluster.k > 1) send_parts(empty);
#pragma unroll 1
        for (int32_t chunk = 0; chunk < kChunks; ++chunk) {
            if (c.cluster.k > 1 && !end_.owns(chunk)) continue;
            PieceSums<c> sums;
            load(sums, chunk, empty);
            if (c.cluster.k == 1 && !empty && chunk + 1 == kChunks) release();
            end_.write(sums, tile, chunk);
        }
        end_.end();
    }

    /// To CTAs that own them. (No next tile waits for the accumulator.)
    DG_DEVICE void send_parts(bool empty) const {
#pragma unroll 1
        for (int32_t chunk = 0; chunk < kChunks; ++chunk) {
            if (end_.owns(chunk)) continue;
            PieceSums<c> sums;
            load(sums, chunk, empty);
            end_.send(sums, chunk);
        }
    }

    DG_DEVICE void load(PieceSums<c>& sums, int32_t chunk, bool empty) const {
        if (kMayBeEmpty && empty) {
#pragma unroll
            for (auto& sum : sums) sum = 0;
            return;
        }
        constexpr int32_t kCols = Piece<c>::kCols, kAtOnce = kCols % 32 == 0 ? 32 : 16;
        const uint32_t address = sums_ + accumulators_.stage * c.tile.cols + chunk * kCols;
        uint32_t words[kCols / kAtOnce][kAtOnce];
#pragma unroll
        for (int32_t i = 0; i < kCols / kAtOnce; ++i) ptx::load_tensor_memory(address + i * kAtOnce, words[i]);
        ptx::wait_tensor_loads();
#pragma unroll
        for (int32_t i = 0; i < kCols; ++i) sums[i] = from_word<c.sum()>(words[i / kAtOnce][i % kAtOnce]);
    }

    DG_DEVICE void release() {
        release_sums<c>(smem_.sums_empty(accumulators_.stage), position_);
        accumulators_.advance();
    }

    static constexpr int32_t kChunks = warp_chunks(c);
    /// Groups without K, blocks of nothing but padding, CTAs that find no K left to share.
    static constexpr bool kMayBeEmpty = divides_k(c.grouping) || c.grouping == Grouping::m_psum || c.cluster.k > 1;

    const Smem<c>& smem_;
    const GemmParams& params_;
    uint32_t sums_;
    ClusterPosition<c> position_;
    Ring<c.sm100.accumulators> accumulators_;
    TileEnd<c> end_;
};

}  // namespace deep_gemm::sm100
