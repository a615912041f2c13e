// Packed weights of four bits to E4M3 in rows, ahead of a product of FP8 with many tokens.
//
// Threads hold what the product's would (mma/packed_rows.cuh), so the same functions convert it. Four neighbours, which
// have four times four of a row's K between them, first exchange words: each then writes 16 bytes of two rows.
#pragma once

#include <deep_gemm/convert/exponents.cuh>
#include <deep_gemm/convert/weights.cuh>
#include <deep_gemm/convert/zeros.cuh>
#include <deep_gemm/kernels/unpack_weights_params.cuh>
#include <deep_gemm/mma/fragment_16x8.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

/// Lane i's word j becomes lane j's word i, of every four lanes.
DG_DEVICE void exchange_words(uint32_t (&words)[4]) {
#pragma unroll
    for (int32_t distance = 1; distance <= 2; distance *= 2) {
        const bool upper = (threadIdx.x & distance) != 0;
#pragma unroll
        for (int32_t i = 0; i < 2; ++i) {
            uint32_t &lower_word = words[i * (3 - distance)], &upper_word = words[i * (3 - distance) + distance];
            const uint32_t got = __shfl_xor_sync(0xffffffff, upper ? lower_word : upper_word, distance);
            (upper ? lower_word : upper_word) = got;
        }
    }
}

/// What a thread's two rows have beside codes, for 16 of K from `k` on.
template <Element kElement>
struct RowWords {
    DG_DEVICE RowWords(const UnpackWeightsParams&, uint32_t, int32_t) {}
    DG_DEVICE void convert(uint32_t word, uint32_t& first, uint32_t& second) const {
        Convert<kElement, Element::e4m3>::run(word, first, second);
    }
};

DG_DEVICE uint32_t row_word(const uint32_t* words, const UnpackWeightsParams& params, int32_t group, uint32_t row) {
    return words[group * params.padded_rows + row];
}

template <>
struct RowWords<Element::u4> {
    SubtractZero<Element::e4m3> first_row, second_row;

    DG_DEVICE RowWords(const UnpackWeightsParams& params, uint32_t row, int32_t k)
        : first_row(row_word(params.zeros, params, k / params.zeros_k, row)),
          second_row(row_word(params.zeros, params, k / params.zeros_k, row + Fragment16x8::kHalfRows)) {}
    DG_DEVICE void convert(uint32_t word, uint32_t& first, uint32_t& second) const {
        first = first_row.run(lower_codes(word)), second = second_row.run(lower_codes(word >> 4));
    }
};

template <>
struct RowWords<Element::e2m1x> {
    static constexpr int32_t kFieldK = 32;
    MagnitudeTable first_row, second_row;

    DG_DEVICE RowWords(const UnpackWeightsParams& params, uint32_t row, int32_t k)
        : first_row(row_word(params.scales, params, k / kPackedK, row), k % kPackedK / kFieldK),
          second_row(row_word(params.scales, params, k / kPackedK, row + Fragment16x8::kHalfRows),
                     k % kPackedK / kFieldK) {}
    DG_DEVICE void convert(uint32_t word, uint32_t& first, uint32_t& second) const {
        convert_with_exponents(word, first_row, second_row, first, second);
    }
};

template <UnpackWeightsConfig kConfig>
DG_DEVICE void run_unpack_weights(const UnpackWeightsParams& params) {
    constexpr int32_t kBlockBytes = packed_block_bytes(kConfig.element), kUnits = 2, kUnitK = kPackedK / kUnits;
    static_assert(kBlockBytes == kUnpackWeightsThreads * kUnits * static_cast<int32_t>(sizeof(uint4)));
    const uint32_t row_block = blockIdx.x / params.k_parts;
    const int32_t first_block = static_cast<int32_t>(blockIdx.x - row_block * params.k_parts) * kUnpackWeightsBlocks;
    const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), quad = lane % 4;
    const uint32_t row = row_block * kPackedRows + threadIdx.x / 32 * Fragment16x8::kRows + lane / 4;
    ptx::wait_for_previous_grid();
    const uint8_t* const codes =
        params.codes + (int64_t{row_block} * params.k_blocks + first_block) * kBlockBytes + threadIdx.x * sizeof(uint4);
    uint4 units[kUnpackWeightsBlocks * kUnits];
#pragma unroll
    for (int32_t i = 0; i < kUnpackWeightsBlocks * kUnits; ++i)
        if (first_block + i / kUnits < params.k_blocks)
            units[i] = *reinterpret_cast<const uint4*>(codes + i * (kBlockBytes / kUnits));
    uint8_t* const target = params.target + row * params.target_stride;
#pragma unroll
    for (int32_t i = 0; i < kUnpackWeightsBlocks * kUnits; ++i) {
        if (first_block + i / kUnits >= params.k_blocks) return;
        uint32_t words[4] = {units[i].x, units[i].y, units[i].z, units[i].w}, first[4], second[4];
        exchange_words(words);
        const int32_t k = first_block * kPackedK + i * kUnitK + quad * 16;
        const RowWords<kConfig.element> of_rows(params, row, k);
#pragma unroll
        for (int32_t j = 0; j < 4; ++j) of_rows.convert(words[j], first[j], second[j]);
        *reinterpret_cast<uint4*>(target + k) = make_uint4(first[0], first[1], first[2], first[3]);
        *reinterpret_cast<uint4*>(target + Fragment16x8::kHalfRows * params.target_stride + k) =
            make_uint4(second[0], second[1], second[2], second[3]);
        if constexpr (folds_exponents(kConfig.element)) {
            const uint32_t of_block = row_block * kPackedRows + threadIdx.x;
            if (i % kUnits == 0 && threadIdx.x < kPackedRows)
                params.target_scales[(first_block + i / kUnits) * params.padded_rows + of_block] =
                    row_word(params.scales, params, first_block + i / kUnits, of_block) & kScaleWithoutFields;
        }
    }
}

}  // namespace deep_gemm
