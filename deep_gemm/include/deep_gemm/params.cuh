// The one argument of a GEMM kernel.
#pragma once

#include <deep_gemm/config.cuh>
#include <deep_gemm/epilogue/steps.cuh>
#include <deep_gemm/fast_divisor.cuh>

namespace deep_gemm {

/// A tensor map as the driver encodes it. Opaque; the copy engine wants it 64-byte aligned in parameter or global
/// memory.
struct alignas(64) TensorMap {
    uint64_t words[16];
};

/// The same where there is no copy engine: what a map says, for threads that copy by themselves. It lies in the map's
/// place.
struct PlainMap {
    const uint8_t* address;
    int64_t strides_bytes[2];  // between lines, and groups of lines
    int32_t sizes[2];          // elements of a line, and lines
};
static_assert(sizeof(PlainMap) <= sizeof(TensorMap));

#if defined(__CUDACC__)
DG_DEVICE const PlainMap& plain(const TensorMap& map) { return reinterpret_cast<const PlainMap&>(map); }
#endif

/// Group sizes along K, on the device. What they say of K or blocks past the ends is cut, whatever the host was told.
struct KGroupLayout {
    const int32_t* values;  // sizes one by one; or, where psum_alignment is not 0, where each group ends
    int32_t num_groups;
    int32_t psum_alignment;  // a group starts at the preceding one's end rounded up to this; 0: right behind it
    int32_t k_end;           // K of the operands
    int32_t block_end;       // K blocks that have scales
};

inline constexpr int32_t kMaxClusters = 96;  // that run at once

struct GemmParams {
    TensorMap rows, cols;              // operands: [groups,] extent, K
    TensorMap last_rows, last_cols;    // the same in smaller boxes, for tiles at the end: has_last_rows, has_last_cols
    TensorMap row_scales, col_scales;  // per-row scales only: [groups,] ceil(K / 128), extent
    TensorMap zeros;                   // the rows' (Operand::zeros_k): the same

    TensorMap d;  // where D is staged

    void* d_data;
    const void* c_data;
    int64_t d_stride, c_stride;              // elements between rows of D, of C
    int64_t d_group_stride, c_group_stride;  // elements between groups

    const float* block_scales;  // of the side that has them; with wgmma_products, the columns' scales per row
    int64_t block_scale_stride, block_scale_k_stride, block_scale_group_stride;  // elements

    const int32_t* grouped_layout;  // meaning depends on GemmConfig::grouping; K groups have k_groups instead
    KGroupLayout k_groups;
    int32_t first_group;  // K-grouped: this launch computes num_groups groups from here
    int32_t m, n, k;
    int32_t num_groups;
    FastDivisor raster_group_blocks;  // rasterisation: this many blocks of M are walked together, so that L2 holds them
    FastDivisor raster_group_tiles;   // and so many tiles that is, with all of N
    int32_t first_shared;             // tile from which on pairs share them (SplitK::last_tiles)
    uint8_t cta_order[kMaxClusters];  // has_cta_order: of each cluster, the place in the walk
    int32_t likely_blocks;            // blocks of M that a group has, as far as the host knows: likely_first_tile
    int32_t m_alignment;              // psum layout: groups start at multiples of it
    uint16_t zero_padding;            // contiguous layouts: rows of padding are written as zeros
    uint8_t fetched_ahead;            // the L2 is asked for a D that is added to, so many shares of a tile before
    FastDivisor group_tiles;          // batches: of one matrix D
    FastDivisor matrix_blocks;        // a sum over a batch: K blocks of one matrix of the operands
};

/// Operands of one K group: its K, extent.
struct GroupMaps {
    TensorMap rows, cols;
};

template <int32_t kGroups, typename Params>
struct GemmParamsWithMaps : Params {
    GroupMaps groups[kGroups];  // counted from first_group
};

/// The same where steps of the epilogue take some (has_step_params).
struct GemmParamsWithSteps : GemmParams {
    StepParams steps;
};

template <Constant<GemmConfig> c, bool = c.group_maps, bool = has_step_params(c)>
struct SelectParams {
    using Type = GemmParams;
};
template <Constant<GemmConfig> c>
struct SelectParams<c, true, false> {
    using Type = GemmParamsWithMaps<c.group_capacity, GemmParams>;
};
template <Constant<GemmConfig> c>
struct SelectParams<c, true, true> {
    using Type = GemmParamsWithMaps<c.group_capacity, GemmParamsWithSteps>;
};
template <Constant<GemmConfig> c>
struct SelectParams<c, false, true> {
    using Type = GemmParamsWithSteps;
};
template <Constant<GemmConfig> c>
using ParamsFor = typename SelectParams<c>::Type;

}  // namespace deep_gemm
