// Bring scales into the layout that the GEMM kernels load: MN-major, padded to 16 bytes, or in blocks of rows; FP32 or
// packed UE8M0.
//
// A block of threads reads a tile of 32 rows, those of 32 neighbours in the target, by tile_k scales in the order that
// the source lies in memory, and writes it from shared memory in the order of the target: both sides move whole lines.
#pragma once

#include <deep_gemm/kernels/scale_layout_params.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/scale/exponents.cuh>

namespace deep_gemm {

/// A scale as it goes through the kernel: what becomes a word, or the exponent that becomes a part of one. It is the
/// `k`th of those of a row.
template <ScaleEncoding kEncoding>
DG_DEVICE uint32_t load_scale(const uint32_t* source, int64_t row_start, int32_t k, int64_t k_stride) {
    if constexpr (kEncoding == ScaleEncoding::exponent_words)
        return from_ue8m0(source[row_start + k / kScalesPerWord * k_stride] >> k % kScalesPerWord * 8 & 0xff);
    const int64_t index = row_start + k * k_stride;
    if constexpr (reads_bytes(kEncoding)) {
        const uint32_t exponent = reinterpret_cast<const uint8_t*>(source)[index];
        return packs(kEncoding) ? exponent : from_ue8m0(exponent);
    } else {
        return packs(kEncoding) ? to_ue8m0(source[index]) : source[index];
    }
}

/// The row whose word comes at this place of the target.
template <Constant<ScaleLayoutConfig> kConfig>
DG_DEVICE int32_t row_at(int32_t place) {
    if constexpr (!kConfig.in_blocks) return place;
    const int32_t in_block = place % kWordBlockRows;
    return place - in_block + in_block % 4 * 32 + in_block / 4;
}

template <Constant<ScaleLayoutConfig> kConfig>
DG_DEVICE int64_t target_index(const ScaleLayoutParams& params, int32_t group, int32_t word, int32_t place) {
    if constexpr (!kConfig.in_blocks)
        return (static_cast<int64_t>(group) * params.k_words + word) * params.padded_rows + place;
    const int32_t blocks = params.padded_rows / kWordBlockRows, block = place / kWordBlockRows;
    return ((static_cast<int64_t>(group) * blocks + block) * params.k_words + word) * kWordBlockRows +
           place % kWordBlockRows;
}

template <Constant<ScaleLayoutConfig> kConfig>
DG_DEVICE void run_scale_layout(const ScaleLayoutParams& params) {
    constexpr int32_t kTileK = kConfig.tile_k;
    // One word more than a row: neighbours along K then lie in different banks.
    __shared__ uint32_t tile[kTileK][kScaleTileRows + 1];

    const int32_t k_tiles = (params.k_scales + kTileK - 1) / kTileK;
    const int32_t row_tiles = (params.padded_rows + kScaleTileRows - 1) / kScaleTileRows;
    const int32_t block = static_cast<int32_t>(blockIdx.x);
    const int32_t k_tile = block % k_tiles;
    const int32_t row_tile = block / k_tiles % row_tiles;
    const int32_t group = block / k_tiles / row_tiles;
    const int32_t first_place = row_tile * kScaleTileRows;
    const int32_t first_k = k_tile * kTileK;

    ptx::wait_for_previous_grid();
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < kScaleTileRows * kTileK; i += kScaleLayoutThreads) {
        const int32_t tile_row = kConfig.rows_first ? i % kScaleTileRows : i / kTileK;
        const int32_t tile_column = kConfig.rows_first ? i / kScaleTileRows : i % kTileK;
        const int32_t row = row_at<kConfig>(first_place + tile_row);
        const int32_t k = first_k + tile_column;
        uint32_t word = 0;
        if (row < params.rows && k < params.k_scales)
            word = load_scale<kConfig.encoding>(params.source,
                                                group * params.group_stride +
                                                    row / params.row_granularity * params.row_stride,
                                                k, params.k_stride);
        tile[tile_column][tile_row] = word;
    }
    __syncthreads();

    constexpr int32_t kTileWords = kConfig.tile_words();
    const int32_t first_word = k_tile * kTileWords;
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < kScaleTileRows * kTileWords; i += kScaleLayoutThreads) {
        const int32_t tile_row = i % kScaleTileRows;
        const int32_t tile_word = i / kScaleTileRows;
        const int32_t place = first_place + tile_row;
        const int32_t word = first_word + tile_word;
        if (place >= params.padded_rows || word >= params.k_words) continue;
        uint32_t value = 0;
        if constexpr (kConfig.packs()) {
            for (int32_t part = 0; part < kScalesPerWord; ++part)
                value |= tile[tile_word * kScalesPerWord + part][tile_row] << (8 * part);
        } else {
            value = tile[tile_word][tile_row];
        }
        params.target[target_index<kConfig>(params, group, word, place)] = value;
    }
}

/// Where a group's scales and words begin, and how many scales it has.
struct KGroupOfScales {
    int32_t first_scale, num_scales, first_word;
};

/// The group that `word` belongs to; one without scales for a word past all groups. What grouped_layout holds is
/// trusted for nothing but where scales go: no group reaches past the source.
template <int32_t kGranK>
DG_DEVICE KGroupOfScales find_k_group(const KGroupedScaleLayoutParams& params, int32_t word) {
    KGroupOfScales found = {};
    uint32_t previous_end = 0;
    for (int32_t group = 0; group < params.num_groups; ++group) {
        uint32_t k = static_cast<uint32_t>(max(params.grouped_layout[group], 0));
        if (params.psum_alignment > 0) {
            const uint32_t alignment = static_cast<uint32_t>(params.psum_alignment);
            const uint32_t begin = (previous_end + alignment - 1) / alignment * alignment;
            previous_end = k;
            k = k > begin ? k - begin : 0;
        }
        const int32_t left = params.k_scales - found.first_scale;
        found.num_scales = min(static_cast<int32_t>((k + kGranK - 1) / kGranK), left);
        const int32_t words = (found.num_scales + kScalesPerWord - 1) / kScalesPerWord;
        if (word < found.first_word + words) return found;
        found.first_word += words;
        found.first_scale += found.num_scales;
    }
    return {};
}

/// One thread a word, which it makes or takes apart: rows are contiguous in source and target, so nothing needs
/// transposing.
template <int32_t kGranK, ScaleEncoding kEncoding = ScaleEncoding::exponents_exact>
DG_DEVICE void run_k_grouped_scale_layout(const KGroupedScaleLayoutParams& params) {
    const int32_t row_blocks = (params.padded_rows + kScaleLayoutThreads - 1) / kScaleLayoutThreads;
    const int32_t block = static_cast<int32_t>(blockIdx.x);
    const int32_t word = block / row_blocks;
    const int32_t row = block % row_blocks * kScaleLayoutThreads + static_cast<int32_t>(threadIdx.x);
    ptx::wait_for_previous_grid();
    if (row >= params.padded_rows) return;

    const KGroupOfScales group = find_k_group<kGranK>(params, word);
    const int32_t first = (word - group.first_word) * kScalesPerWord;
    if constexpr (kEncoding == ScaleEncoding::exponent_words) {
        const int64_t start = word * params.k_stride + row * params.row_stride;
        for (int32_t part = 0; part < kScalesPerWord && first + part < group.num_scales; ++part) {
            const int64_t scale = group.first_scale + first + part;
            params.target[scale * params.padded_rows + row] =
                row < params.rows ? load_scale<kEncoding>(params.source, start, part, 0) : 0;
        }
        return;
    }
    uint32_t value = 0;
    for (int32_t part = 0; part < kScalesPerWord; ++part) {
        if (row < params.rows && first + part < group.num_scales) {
            const int64_t scale = group.first_scale + first + part;
            value |= load_scale<kEncoding>(params.source, scale * params.k_stride + row * params.row_stride, 0, 0)
                     << (8 * part);
        }
    }
    params.target[static_cast<int64_t>(word) * params.padded_rows + row] = value;
}

}  // namespace deep_gemm
