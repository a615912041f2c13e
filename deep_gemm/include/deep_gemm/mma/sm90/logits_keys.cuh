// Keys with exponents: a warp's 16 of a tile, converted to BF16 in registers, by an atom's converted queries.
#pragma once

#include <deep_gemm/arch/sm90_logits_smem.cuh>
#include <deep_gemm/logits/quarter.cuh>
#include <deep_gemm/ptx/wgmma_from_registers.cuh>

namespace deep_gemm::sm90 {

/// A lane has a quarter of D of two keys, 8 apart.
template <Constant<LogitsConfig> c>
class ConvertedKeys {
public:
    using Lane = Quarter<c>;

    /// Out of shared memory, of the warp's keys from `first` on.
    DG_DEVICE void load(uint32_t keys, uint32_t words, int32_t first, int32_t lane) {
#pragma unroll
        for (int32_t half = 0; half < 2; ++half) {
            const int32_t key = first + half * 8 + lane / 4;
            load_codes(codes_[half], keys, key, lane % 4);
            exponents_[half] = static_cast<uint32_t>(ptx::load_shared_int(words + key * 4));
        }
    }

    DG_DEVICE void convert(int32_t lane) {
        uint32_t nan = 0;
#pragma unroll
        for (int32_t half = 0; half < 2; ++half) {
            uint32_t converted[Lane::kConverted];
            nan |= static_cast<uint32_t>(Lane::Conversion::run(codes_[half], converted,
                                                               Lane::exponent(exponents_[half], lane % 4)))
                   << half;
#pragma unroll
            for (int32_t i = 0; i < Lane::kConverted; ++i) rows_[i / 2][i % 2 * 2 + half] = converted[i];
        }
        if constexpr (c.element == Element::e4m3) {
            nan |= __shfl_xor_sync(0xffffffff, nan, 1), nan |= __shfl_xor_sync(0xffffffff, nan, 2);
            scale_ = nan >> (lane & 1) & 1 ? __int_as_float(0x7fffffff) : 1.0f;
        }
    }

    /// Of the key that the lane finishes (QuadSums): 1, or NaN where the key has a code that is.
    DG_DEVICE float scale() const { return scale_; }

    /// The products of all columns, put under way.
    DG_DEVICE void multiply(float* sums, uint32_t queries) {
        constexpr int32_t kSpanSteps = kConvertedSpanBytes / 32;
        ptx::wgmma_fence();
#pragma unroll
        for (int32_t step = 0; step < kSteps; ++step) {
            const uint64_t cols =
                ptx::wgmma_descriptor_of_rows<kConvertedSpanBytes>(queries + step / kSpanSteps * c.columns() *
                                                                                 kConvertedSpanBytes);
            ptx::WgmmaFromRegisters<c.columns()>::template bf16<false>(sums, rows_[step],
                                                                       cols + step % kSpanSteps * (32 >> 4), step > 0);
        }
        ptx::wgmma_commit();
    }

    /// Before and behind products: registers stay where they are.
    DG_DEVICE void pin() {
#pragma unroll
        for (int32_t i = 0; i < kSteps * 4; ++i) ptx::pin(rows_[i / 4][i % 4]);
    }

private:
    static constexpr int32_t kSteps = Lane::kConverted / 2;

    /// A quarter of a key, whose 16-byte chunks the copy engine has swizzled.
    static DG_DEVICE void load_codes(uint32_t (&codes)[Lane::kWords], uint32_t keys, int32_t key, int32_t part) {
        constexpr int32_t kChunks = c.key_bytes() / 16;
        const int32_t swizzle = key * c.key_bytes() / 128 % kChunks;
        const auto address = [&](int32_t byte) {
            return keys + key * c.key_bytes() + ((byte / 16 ^ swizzle) * 16) + byte % 16;
        };
        if constexpr (Lane::kWords % 4 == 0) {
#pragma unroll
            for (int32_t i = 0; i < Lane::kWords; i += 4) {
                const int4 four = ptx::load_shared_int_x4(address(part * Lane::kBytes + i * 4));
                codes[i] = four.x, codes[i + 1] = four.y, codes[i + 2] = four.z, codes[i + 3] = four.w;
            }
        } else {
#pragma unroll
            for (int32_t i = 0; i < Lane::kWords; ++i)
                codes[i] = static_cast<uint32_t>(ptx::load_shared_int(address(part * Lane::kBytes + i * 4)));
        }
    }

    uint32_t codes_[2][Lane::kWords], exponents_[2];
    uint32_t rows_[kSteps][4];
    float scale_ = 1.0f;
};

}  // namespace deep_gemm::sm90
