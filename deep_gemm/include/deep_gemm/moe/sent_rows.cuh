// Results that go from registers to the ranks whose tokens they are of, each row to its token's slot.
#pragma once

#include <deep_gemm/epilogue/step.cuh>
#include <deep_gemm/moe/config.cuh>
#include <deep_gemm/ranks/rows.cuh>
#include <deep_gemm/store/fragment.cuh>

namespace deep_gemm {

/// The same interface as DirectStores (store/sm90/direct.cuh).
template <Constant<GemmConfig> c>
struct SentStores {
    const TravelParams& travel;

    DG_DEVICE void begin() const {}
    DG_DEVICE void write(const Results<c>& total, const Fragment<c>& at, const Tile&, int32_t,
                         const GemmParams&) const {
        static_assert(may_be_sent(c) && c.output == Element::bf16);
        if constexpr (c.swap_ab)
            send_columns(total, at);
        else
            send_rows(total, at);
    }
    DG_DEVICE void end() const {}

private:
    using Stored = typename Storage<c.output>::Type;

    /// None: the row is padding.
    DG_DEVICE Stored* row_of(int32_t row, int32_t m_end) const {
        const int32_t source = row < m_end ? ptx::load_global_int(travel.source + row) : -1;
        return source < 0 ? nullptr : reinterpret_cast<Stored*>(result_of(travel, source));
    }

    /// Of 32 columns of a row each of four lanes has two of every eight, and stores 8 that follow each other.
    DG_DEVICE void send_rows(const Results<c>& total, const Fragment<c>& at) const {
        const int32_t lane = threadIdx.x % 32, first_col = at.col - Fragment16x8::col(lane) + lane % kQuad * 8;
#pragma unroll
        for (int32_t half = 0; half < 2; ++half) {
            Stored* const line = row_of(at.row + half * Fragment16x8::kHalfRows, at.m_end);
#pragma unroll
            for (int32_t along = 0; along < c.held_cols(); along += kSentCols) {
                uint32_t words[kQuad];
#pragma unroll
                for (int32_t i = 0; i < kQuad; ++i) {
                    const int32_t low = Fragment16x8::pair(along / Fragment16x8::kCols + i, half);
                    words[i] = Pack<c.output>::pack(total[low], total[low + 1]);
                }
                exchange_in_quad(words);
                if (line != nullptr && first_col + along < at.n_end)
                    *reinterpret_cast<uint4*>(line + first_col + along) =
                        make_uint4(words[0], words[1], words[2], words[3]);
            }
        }
    }

    /// A thread has two of every eight tokens, and of each two columns, eight apart.
    DG_DEVICE void send_columns(const Results<c>& total, const Fragment<c>& at) const {
#pragma unroll
        for (int32_t j = 0; j < c.held_cols() / Fragment16x8::kCols; ++j)
#pragma unroll
            for (int32_t token = 0; token < 2; ++token) {
                Stored* const line = row_of(at.row + j * Fragment16x8::kCols + token, at.m_end);
                if (line == nullptr) continue;
#pragma unroll
                for (int32_t half = 0; half < 2; ++half) {
                    const int32_t col = at.col + half * Fragment16x8::kHalfRows;
                    if (col < at.n_end) from_register<c.output>(line[col], total[Fragment16x8::pair(j, half) + token]);
                }
            }
    }
};

}  // namespace deep_gemm
