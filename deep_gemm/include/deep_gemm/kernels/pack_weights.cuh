// Pack weights of few bits: codes into the blocks that products convert in registers, scales into rows of groups.
//
// A block of threads reads 128 bytes of each of 64 rows in 16-byte loads and writes one block (two where a byte holds
// two codes) in 16-byte stores: both sides move whole lines, and shared memory between them is hit without conflicts.
//
//   thread t reads rows t / 8 and t / 8 + 32, the 16-byte chunk t % 8 of each
//   thread t writes 16 bytes at 16 t, for 64 of K (32, and then as many at 4096 + 16 t, where codes have 8 bits), of
//   its warp's 16 rows r and r + 8, r = t % 32 / 4: deep_gemm/weights/codes.py and words.py draw which K these bytes
//   are for
#pragma once

#include <deep_gemm/convert/pack.cuh>
#include <deep_gemm/kernels/pack_weights_params.cuh>
#include <deep_gemm/load/bytes.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/scale/exponents.cuh>

namespace deep_gemm {

/// Byte of the tile that holds one of a row. Chunks of 16 bytes are permuted so that eight rows of a column of words
/// lie in different banks.
DG_DEVICE int32_t packing_tile_byte(int32_t row, int32_t byte) {
    return row * kPackLineBytes + ((byte / 16 ^ row % 8) * 16 | byte % 16);
}

/// `fill` in the bytes behind `valid` ones, which are 0.
DG_DEVICE void fill_behind(uint32_t (&words)[4], int32_t valid, uint32_t fill) {
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
        const int32_t kept = min(max(valid - 4 * i, 0), 4);
        if (kept < 4) words[i] |= fill << 8 * kept;
    }
}

/// What is subtracted from unsigned codes, which turns one bit over.
template <Constant<PackCodesConfig> kConfig>
constexpr uint32_t pack_offset() {
    return kConfig.offset ? static_cast<uint32_t>(unsigned_offset(kConfig.element)) : 0;
}

/// Not 0 where a byte holds no code, or NaN.
template <Constant<PackCodesConfig> kConfig>
DG_DEVICE uint32_t out_of_range(uint32_t codes) {
    constexpr uint32_t kUpper = 0xf0f0f0f0, kMagnitudes = 0x7f7f7f7f, kOnes = 0x01010101;
    if constexpr (kConfig.element == Element::e4m3p) return ((codes & kMagnitudes) + kOnes) & ~kMagnitudes;
    if constexpr (bits(kConfig.element) == 8) return 0;
    return (kConfig.is_signed ? codes ^ codes << 1 : codes) & kUpper;
}

/// Four neighbours along K; of four bits in two's complement in the lower halves of their bytes.
template <Constant<PackCodesConfig> kConfig>
DG_DEVICE uint32_t load_codes(const uint8_t* tile, int32_t row, int32_t k) {
    constexpr uint32_t kLower = 0x0f0f0f0f, kOffset = pack_offset<kConfig>() * 0x01010101u;
    if constexpr (bits(kConfig.element) == 8) {
        return *reinterpret_cast<const uint32_t*>(tile + packing_tile_byte(row, k)) ^ kOffset;
    } else if constexpr (kConfig.pairs) {
        const uint32_t pairs = *reinterpret_cast<const uint16_t*>(tile + packing_tile_byte(row, k / 2));
        const uint32_t apart = __byte_perm(pairs, 0, 0x4140);
        return ((apart | apart << 4) & kLower) ^ kOffset;
    } else {
        return (*reinterpret_cast<const uint32_t*>(tile + packing_tile_byte(row, k)) & kLower) ^ kOffset;
    }
}

/// Sums of a row and K block that have a NaN become NaN. (Their scales lie as those of 128 of K.)
DG_DEVICE void mark_nan(const PackCodesParams& params, int32_t group, int32_t row, int32_t k_block) {
    const int32_t padded_rows = params.row_blocks * kPackedRows;
    const int64_t place = static_cast<int64_t>(group) * params.k_blocks + k_block;
    params.nan_scales[place * padded_rows + row] = __uint_as_float(0x7fffffff);
}

/// Reads a tile. Returns what is not 0 where a byte of it holds no code.
template <Constant<PackCodesConfig> kConfig>
DG_DEVICE uint32_t read_codes(const PackCodesParams& params, uint8_t* tile, int32_t group, int32_t first_row,
                              int32_t first_byte) {
    constexpr uint32_t kFill = pack_offset<kConfig>() * (kConfig.pairs ? 0x11111111u : 0x01010101u);  // becomes code 0
    constexpr int32_t kChunks = kPackLineBytes / 16, kLoads = kPackedRows * kChunks / kPackThreads;
    const int32_t thread = static_cast<int32_t>(threadIdx.x), byte = thread % kChunks * 16;
    const auto valid_of = [&](int32_t row) {
        return first_row + row < params.rows ? params.row_bytes - first_byte - byte : 0;
    };
    uint4 loaded[kLoads];
#pragma unroll
    for (int32_t i = 0; i < kLoads; ++i) {
        const int32_t row = thread / kChunks + i * kPackThreads / kChunks;
        const uint8_t* source = params.source + group * params.group_stride + (first_row + row) * params.row_stride;
        loaded[i] = load_bytes<kConfig.aligned>(source + first_byte + byte, valid_of(row));
    }
    uint32_t outside = 0;
#pragma unroll
    for (int32_t i = 0; i < kLoads; ++i) {
        const int32_t row = thread / kChunks + i * kPackThreads / kChunks;
        uint32_t words[4] = {loaded[i].x, loaded[i].y, loaded[i].z, loaded[i].w};
        if (kFill != 0 && valid_of(row) < 16) fill_behind(words, valid_of(row), kFill);
        *reinterpret_cast<uint4*>(tile + packing_tile_byte(row, byte)) =
            make_uint4(words[0], words[1], words[2], words[3]);
        if constexpr (!kConfig.pairs) {
            uint32_t wrong = 0;
#pragma unroll
            for (const uint32_t word : words) wrong |= out_of_range<kConfig>(word);
            if (bits(kConfig.element) == 8 && wrong != 0 && params.nan_scales != nullptr)
                mark_nan(params, group, first_row + row, first_byte / kPackedK);
            outside |= wrong;
        }
    }
    return outside;
}

template <Constant<PackCodesConfig> kConfig>
DG_DEVICE void run_pack_codes(const PackCodesParams& params) {
    constexpr int32_t kBlocks = kConfig.tile_blocks();
    constexpr bool kFindsMinusEight = kConfig.element == Element::s4m;
    __shared__ alignas(16) uint8_t tile[kPackedRows * kPackLineBytes];
    const int32_t block = static_cast<int32_t>(blockIdx.x), thread = static_cast<int32_t>(threadIdx.x);
    const int32_t k_tile = block % params.k_tiles, row_block = block / params.k_tiles % params.row_blocks,
                  group = block / params.k_tiles / params.row_blocks;
    ptx::wait_for_previous_grid();
    const uint32_t outside = read_codes<kConfig>(params, tile, group, row_block * kPackedRows, k_tile * kPackLineBytes);
    if constexpr (kConfig.pairs) {
        __syncthreads();
    } else {
        const bool any_outside = __syncthreads_or(outside != 0) != 0;
        if (any_outside && thread == 0 && params.found != nullptr) atomicOr(params.found, kFoundOutOfRange);
    }

    uint32_t eights = 0;
    const auto codes = [&](int32_t row, int32_t k) {
        const uint32_t found = load_codes<kConfig>(tile, row, k);
        if constexpr (kFindsMinusEight) eights |= minus_eights(found);
        return found;
    };
    constexpr int32_t kUnits = kConfig.block_units(), kUnitK = kPackedK / kUnits, kWordK = kUnitK / 4,
                      kUnitsAtOnce = kPackThreads * 16 / kPackUnitBytes;
    const int32_t row = thread % 128 / 32 * 16 + thread % 32 / 4;
#pragma unroll
    for (int32_t i = 0; i < kBlocks * kUnits / kUnitsAtOnce; ++i) {
        const int32_t unit = i * kUnitsAtOnce + thread / 128;  // of all blocks
        uint32_t words[4];
#pragma unroll
        for (int32_t j = 0; j < 4; ++j)
            words[j] = Pack<kConfig.element, kConfig.wide>::run(codes, row, unit * kUnitK + j * kWordK, thread % 4);
        const int32_t k_block = k_tile * kBlocks + unit / kUnits;
        const int64_t place = (static_cast<int64_t>(group) * params.row_blocks + row_block) * params.k_blocks + k_block;
        if (k_block < params.k_blocks)
            *reinterpret_cast<uint4*>(params.target + place * packed_block_bytes(kConfig.element) +
                                      unit % kUnits * kPackUnitBytes + thread % 128 * 16) =
                make_uint4(words[0], words[1], words[2], words[3]);
    }
    if constexpr (kFindsMinusEight) {
        const bool any = __syncthreads_or(eights != 0) != 0;
        if (any && thread == 0) atomicOr(params.found, kFoundMinusEight);
    }
}

/// `row` is where a row's scales begin.
template <Element kElement>
DG_DEVICE float load_scale_as_fp32(const void* source, int64_t row, int32_t scale, int64_t k_stride) {
    if constexpr (kElement == Element::fp32) {
        return static_cast<const float*>(source)[row + scale * k_stride];
    } else if constexpr (kElement == Element::ue8m0) {
        return __uint_as_float(from_ue8m0(static_cast<const uint8_t*>(source)[row + scale * k_stride]));
    } else {
        const uint32_t word = static_cast<const uint32_t*>(source)[row + scale / kScalesPerWord * k_stride];
        return __uint_as_float(from_ue8m0(word >> 8 * (scale % kScalesPerWord) & 0xff));
    }
}

template <Constant<PackScalesConfig> kConfig>
DG_DEVICE void run_pack_scales(const PackScalesParams& params) {
    constexpr int32_t kTile = kPackScalesTile;
    __shared__ float tile[kTile][kTile + 1];  // one more than a row: neighbours along K lie in different banks
    const int32_t row_tiles = params.padded_rows / kTile, k_tiles = ceil_div(params.k_groups, kTile);
    const int32_t block = static_cast<int32_t>(blockIdx.x), thread = static_cast<int32_t>(threadIdx.x);
    const int32_t first_k = block % k_tiles * kTile, first_row = block / k_tiles % row_tiles * kTile,
                  group = block / k_tiles / row_tiles;
    ptx::wait_for_previous_grid();
    for (int32_t i = thread; i < kTile * kTile; i += kPackThreads) {
        const int32_t tile_row = kConfig.rows_first ? i % kTile : i / kTile,
                      tile_k = kConfig.rows_first ? i / kTile : i % kTile;
        const int32_t row = first_row + tile_row, scale = (first_k + tile_k) / params.repeat;
        float value = 0;
        if (row < params.rows && scale < params.k_scales)
            value = params.factor * load_scale_as_fp32<kConfig.element>(params.source,
                                                                        group * params.group_stride +
                                                                            row / params.row_repeat * params.row_stride,
                                                                        scale, params.k_stride);
        tile[tile_k][tile_row] = value;
    }
    __syncthreads();
    for (int32_t i = thread; i < kTile * kTile; i += kPackThreads) {
        const int32_t k_group = first_k + i / kTile;
        if (k_group < params.k_groups)
            params.target[(static_cast<int64_t>(group) * params.k_groups + k_group) * params.padded_rows + first_row +
                          i % kTile] = tile[i / kTile][i % kTile];
    }
}

}  // namespace deep_gemm
