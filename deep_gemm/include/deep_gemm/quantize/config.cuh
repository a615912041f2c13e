// Configs and the argument of the kernels that quantise, and the launch numbers that host and device share.
#pragma once

#include <deep_gemm/fast_divisor.cuh>
#include <deep_gemm/format.cuh>
#include <deep_gemm/gate.cuh>

namespace deep_gemm {

inline constexpr int32_t kQuantizeWarps = 4, kQuantizeThreads = kQuantizeWarps * 32;
inline constexpr int32_t kPieceK = 8;            // neighbours that a thread reads, and quantises, at once
inline constexpr int32_t kWarpK = 32 * kPieceK;  // of K that a warp has
inline constexpr int32_t kMaxTileRows = 8;       // rows that a warp has, of which alignments are multiples
inline constexpr int32_t kBlockThreads = 256;    // where a block of rows and columns shares a scale
inline constexpr int32_t kBlockRows = 128, kBlockK = 128;

/// What shares a scale.
enum class ScaleShare : int32_t { k_group, row, block };

/// What becomes of a scale: FP32, rounded up to a power of two or not, a byte that is its exponent, or one of E4M3
/// beside a scale of the whole tensor.
enum class ScaleForm : int32_t { fp32, ue8m0, exponents, e4m3 };

/// How it is known which rows exist.
enum class RowLayout : int32_t { all, contiguous, psum, masked };

struct QuantizeConfig {
    Element input = Element::bf16;
    Element output = Element::e4m3;
    ScaleShare share = ScaleShare::k_group;
    int32_t group = 128;  // of K, where groups of K share
    int32_t rows = 1;     // of a warp's tile; 1, 2, 4 or 8
    int32_t threads = kQuantizeThreads;
    ScaleForm scales = ScaleForm::fp32;
    GateKind gate = GateKind::none;  // what is made of gate and up before it is quantised
    bool gate_numbers = false;       // its limit, alpha and up_shift may be any
    bool interleaved = false;        // gate, up, gate, up; else all gates before all ups
    bool row_scale = false;
    bool zeros = false;  // values are scale * (code - zero)
    bool sums = false;   // of each row's codes
    bool wide = true;    // rows of x and q lie so that 8 elements are read and written at once
    RowLayout layout = RowLayout::all;

    constexpr bool operator==(const QuantizeConfig&) const = default;
    constexpr int32_t group_lanes() const { return group / kPieceK; }
    constexpr bool powers_of_two() const { return scales == ScaleForm::ue8m0 || scales == ScaleForm::exponents; }
    /// Pieces that a thread keeps where a whole row shares a scale: registers hold twice as much of a gate.
    constexpr int32_t row_pieces() const { return 4 / gates(); }
    constexpr int32_t gates() const { return gate == GateKind::none ? 1 : 2; }
};

/// x [groups][rows][k], or twice k where it has gates, -> codes and scales. Strides are of elements, q's of bytes.
struct QuantizeParams {
    const uint8_t* x;
    uint8_t* q;
    uint8_t* s;
    int32_t* zeros;          // [groups][rows], or null
    int32_t* sums;           // likewise
    const float* row_scale;  // or null
    const int32_t* layout;   // of rows; or null
    const float* whole;      // the scale of the whole tensor, or null
    int64_t x_group_stride, x_row_stride, q_group_stride, q_row_stride;
    int64_t s_group_stride, s_row_stride, s_k_stride;  // of words where exponents are packed, four a word
    int64_t row_scale_group_stride, row_scale_stride;
    GateNumbers gate;
    int32_t rows, k;
    FastDivisor k_units;    // a warp's width of K, or blocks, along K
    FastDivisor row_tiles;  // tiles of rows that are launched; masked rows beyond them are walked to
    int32_t tiles;          // all that are launched
    int32_t num_experts;    // of psum
    int32_t alignment;      // that experts of psum begin at multiples of

#if defined(__CUDACC__)
    /// Which tile a warp or block has: of which matrix, row tile and unit of K.
    DG_DEVICE void find_tile(int32_t tile, int32_t& matrix, int32_t& row_tile, int32_t& unit) const {
        const int32_t above = k_units.quotient(tile);
        matrix = row_tiles.quotient(above);
        row_tile = above - matrix * static_cast<int32_t>(row_tiles.divisor);
        unit = tile - above * static_cast<int32_t>(k_units.divisor);
    }
#endif
};

#if defined(__CUDACC__)
/// A place in memory, of an index that is not negative: not as many instructions as of one that may be.
DG_DEVICE int64_t distance(int32_t index, int64_t stride) { return static_cast<uint32_t>(index) * stride; }
#endif

}  // namespace deep_gemm
