// Packed weights to rows of what tensor cores multiply, ahead of a product with many tokens.
//
// Threads hold and convert what the product's would (mma/packed_rows.cuh). Of two steps of K, a row's registers in four
// neighbours are 64 bytes that follow each other: they exchange words, so that each writes 16 of them.
#pragma once

#include <deep_gemm/kernels/unpack_weights_params.cuh>
#include <deep_gemm/mma/packed_rows.cuh>
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

/// A product whose rows are the packed weights, and are converted to this target.
constexpr GemmConfig product_of(const UnpackWeightsConfig& config) {
    const Scaling scaling = config.scales_k > 0               ? Scaling{Element::ue5m3, 1, config.scales_k}
                            : folds_exponents(config.element) ? kRowScales
                                                              : kUnscaled;
    return {{.a = {.element = config.target, .scaling = kUnscaled},
             .b = {.element = config.element, .scaling = scaling, .zeros_k = config.zeros_k}},
            {},
            {.swap_ab = true, .tile = {kPackedRows, 8, kPackedK}}};
}
template <Constant<UnpackWeightsConfig> kConfig>
struct UnpackProduct {
    static constexpr GemmConfig kProduct = product_of(kConfig);
};

/// Words of a row in a block, beside codes.
constexpr int32_t unpacked_words(const UnpackWeightsConfig& config) {
    if (config.zeros_k != 0) return block_words(product_of(config), config.zeros_k);
    if (config.scales_k > 0) return block_words(product_of(config), kScalesPerWord * config.scales_k);
    return folds_exponents(config.element) ? 1 : 0;
}

/// Those of a CTA's blocks, in shared memory, as conversion reads a stage's.
template <Constant<UnpackWeightsConfig> kConfig>
struct BlockWords {
    static constexpr int32_t kOfBlock = unpacked_words(kConfig) * kPackedRows,
                             kCount = unpacked_blocks(kConfig.element) * kOfBlock;
    uint32_t words;

    DG_DEVICE uint32_t zeros(int32_t block) const { return words + block * kOfBlock * 4; }
    DG_DEVICE uint32_t row_scales(int32_t block) const { return words + block * kOfBlock * 4; }
    static DG_DEVICE uint32_t thread_row_word(uint32_t words, int32_t first_row) {
        return Fragment16x8::thread_word(words, first_row);
    }

    DG_DEVICE void fill(const UnpackWeightsParams& params, uint32_t first_row, int32_t first_block) const {
#pragma unroll
        for (int32_t first = 0; first < kCount; first += kUnpackWeightsThreads) {
            const auto at = first + static_cast<int32_t>(threadIdx.x), block = at / kOfBlock;
            if (at >= kCount || first_block + block >= params.k_blocks) break;
            // All of K may share a word.
            const int32_t group =
                kConfig.zeros_k == kAll ? 0 : first_block * (kOfBlock / kPackedRows) + at / kPackedRows;
            const int64_t from = group * params.padded_rows + first_row + at % kPackedRows;
            const uint32_t word = params.words[from];
            ptx::store_shared_int(words + at * 4, static_cast<int32_t>(word));
            if constexpr (folds_exponents(kConfig.element)) params.target_scales[from] = word & kScaleWithoutFields;
        }
        __syncthreads();
    }
};

/// Two steps of a thread's two rows, each 64 bytes that four lanes share.
DG_DEVICE void write_steps(uint8_t* row, uint8_t* next_row, const uint32_t (&steps)[2][4]) {
    uint32_t first[4] = {steps[0][0], steps[0][2], steps[1][0], steps[1][2]},
             second[4] = {steps[0][1], steps[0][3], steps[1][1], steps[1][3]};
    exchange_words(first);
    exchange_words(second);
    *reinterpret_cast<uint4*>(row) = make_uint4(first[0], first[1], first[2], first[3]);
    *reinterpret_cast<uint4*>(next_row) = make_uint4(second[0], second[1], second[2], second[3]);
}

template <Constant<UnpackWeightsConfig> kConfig>
DG_DEVICE void run_unpack_weights(const UnpackWeightsParams& params) {
    constexpr Constant<GemmConfig> c = UnpackProduct<kConfig>::kProduct;
    using Units = PackedUnits<c>;
    using Words = BlockWords<kConfig>;
    constexpr int32_t kBlocks = unpacked_blocks(kConfig.element), kStepBytes = 32;
    static_assert(Units::kBytes == kUnpackWeightsThreads * Units::kThreadBytes && Units::kSteps % 2 == 0);
    __shared__ uint32_t shared_words[Words::kCount > 0 ? Words::kCount : 1];
    const Words words{ptx::shared_address(shared_words)};
    const uint32_t row_block = blockIdx.x / params.k_parts, first_row = row_block * kPackedRows;
    const int32_t first_block = static_cast<int32_t>(blockIdx.x - row_block * params.k_parts) * kBlocks;
    ptx::wait_for_previous_grid();
    const uint8_t* const codes =
        params.codes + (int64_t{row_block} * params.k_blocks + first_block) * (Units::kCount * Units::kBytes) +
        threadIdx.x * Units::kThreadBytes;
    int4 units[kBlocks * Units::kCount];
#pragma unroll
    for (int32_t i = 0; i < kBlocks * Units::kCount; ++i)
        if (first_block + i / Units::kCount < params.k_blocks)
            units[i] = *reinterpret_cast<const int4*>(codes + i * Units::kBytes);
    if constexpr (Words::kCount > 0) words.fill(params, first_row, first_block);
    uint8_t* const row = params.target + (first_row + Fragment16x8::thread_row(0)) * params.target_stride +
                         first_block * (block_steps(c) * kStepBytes) + threadIdx.x % 4 * sizeof(uint4);
    Conversion<c> conversion;
#pragma unroll
    for (int32_t i = 0; i < kBlocks * Units::kCount; ++i) {
        if (first_block + i / Units::kCount >= params.k_blocks) return;
        if (i % Units::kCount == 0) conversion = Conversion<c>(words, i / Units::kCount, 0);
        const int32_t unit[4] = {units[i].x, units[i].y, units[i].z, units[i].w};
#pragma unroll
        for (int32_t step = 0; step < Units::kSteps; step += 2) {
            uint32_t steps[2][4];
#pragma unroll
            for (int32_t j = 0; j < 2; ++j)
                conversion.run(unit + (step + j) * Units::kStepWords, i % Units::kCount * Units::kSteps + step + j,
                               steps[j]);
            uint8_t* const target = row + (i * Units::kSteps + step) * kStepBytes;
            write_steps(target, target + Fragment16x8::kHalfRows * params.target_stride, steps);
        }
    }
}

}  // namespace deep_gemm
