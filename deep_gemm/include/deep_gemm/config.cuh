// The vocabulary of host and device: everything that makes one GEMM kernel different from another.
//
// A kernel is `run_gemm_sm90<kConfig>(params)`. Selection (csrc/config) fills a GemmConfig in, rendering prints it as
// designated initialisers, and the device code branches on it with `if constexpr`. Nothing else distinguishes kernels.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

enum class Arch : int32_t { sm90, sm100 };
enum class ElementType : int32_t { e4m3, bf16, fp32 };

/// Granularity of an operand's FP32 scales; along K always 128.
enum class ScaleKind : int32_t {
    none,       // BF16 operands
    per_row,    // one scale per row, held MN-major: [ceil(K / 128)][rows]
    per_block,  // one scale per 128 rows
};

/// How rows belong to experts.
enum class Grouping : int32_t {
    dense,
    m_contiguous,  // one index per row of A: its expert, or -1 on padding
    m_psum,        // one value per expert: where its rows end; the next expert starts aligned up
    masked,        // A is [groups, max_m, K], with a device-side count of valid rows for each group
    k_contiguous,  // groups share M and N and split K: D is [groups, M, N]
};

enum class StoreKind : int32_t {
    tma,         // staged in shared memory, written by the copy engine, clipped at D's edges
    tma_add,     // the same, FP32 added to what D holds, by the L2: C is D, and nobody waits for it
    direct,      // registers to global memory: a D whose rows do not start at multiples of 16 bytes, and some FP32
    direct_add,  // the same, FP32 added to what D holds
};
constexpr bool is_staged(StoreKind store) { return store == StoreKind::tma || store == StoreKind::tma_add; }
constexpr bool adds_to_memory(StoreKind store) { return store == StoreKind::tma_add || store == StoreKind::direct_add; }

/// Extents of one CTA's tile in the frame of the matrix instruction: `rows` lie on its M side (64 a warpgroup), `cols`
/// on its N side.
struct TileShape {
    int32_t rows, cols, k;
    constexpr bool operator==(const TileShape&) const = default;
};

/// CTAs of a cluster. Those that differ in `rows` share the cols operand, those that differ in `cols` share the rows
/// operand (both multicast), those that differ in `k` split K and add up through distributed shared memory: of every
/// tile, or of the last ones (GemmConfig::shares_last).
struct ClusterShape {
    int32_t rows = 1, cols = 1, k = 1;
    constexpr bool operator==(const ClusterShape&) const = default;
    constexpr int32_t size() const { return rows * cols * k; }
};

/// Problem extents known when the kernel is compiled; 0 means that GemmParams carries it.
struct CompiledShape {
    int32_t m = 0, n = 0, k = 0;
    constexpr bool operator==(const CompiledShape&) const = default;
};

struct GemmConfig {
    Arch arch = Arch::sm90;
    Grouping grouping = Grouping::dense;
    ElementType operand = ElementType::e4m3;
    ElementType output = ElementType::bf16;
    ScaleKind scales_a = ScaleKind::per_row;
    ScaleKind scales_b = ScaleKind::per_block;
    bool mn_major_a = false,
         mn_major_b = false;  // BF16 operands of which M or N is contiguous, not K: [K, M], [K, N]
    bool swap_ab =
        false;  // false: rows are A's (tokens), cols are B's (weights). true: the other way round, D stored transposed
    TileShape tile = {128, 128, 128};
    ClusterShape cluster = {};
    bool shares_last = false;  // CTAs that differ in cluster.k take tiles by themselves, and split K only of those that
                               // would leave most of a last wave idle
    int32_t math_warpgroups = 2;
    int32_t k_warpgroups = 1;  // math warpgroups that take the K blocks of the same rows in turn, and add up at the end
    bool parts_in_ring = false;  // parts of a sum, and D, go where stages were, which leaves room for more stages
    bool look_ahead = false;     // a warpgroup finds its next stage while its wgmma run, not after promoting them
    bool wgmma_products =
        false;  // of row and column scales: one TF32 wgmma a K block, not each thread's multiplications
    bool skips_padding = false;  // 64 rows of a tile that hold nothing but padding are neither copied nor multiplied
    int32_t stages = 4;
    bool add_c = false;
    StoreKind store = StoreKind::tma;
    int32_t store_buffers = 1;  // staged chunks of D that a warp may have under way
    bool stream_b =
        false;  // B's lines leave the L2 first and A's last: no CTA comes back for B when the tiles under way are done
    int32_t tensor_core_percent = 100;  // below 100 the load role paces the tensor cores
    int32_t group_capacity = 0;         // most groups whose sizes only the device knows
    bool group_maps = false;  // K groups are matrices of their own, each with its tensor maps in the kernel's argument
    CompiledShape shape = {};

    constexpr bool operator==(const GemmConfig&) const = default;

    constexpr ScaleKind row_scales() const { return swap_ab ? scales_b : scales_a; }
    constexpr ScaleKind col_scales() const { return swap_ab ? scales_a : scales_b; }
    constexpr bool mn_major_rows() const { return swap_ab ? mn_major_b : mn_major_a; }
    constexpr bool mn_major_cols() const { return swap_ab ? mn_major_a : mn_major_b; }
    constexpr bool has_block_scales() const {
        return scales_a == ScaleKind::per_block || scales_b == ScaleKind::per_block;
    }
    /// Whether the copy engine brings the columns' scales: not where a warp writes them as operands of wgmma.
    constexpr bool copies_col_scales() const { return col_scales() == ScaleKind::per_row && !wgmma_products; }
    constexpr bool scaled() const { return scales_a != ScaleKind::none; }
    /// Rows of one warpgroup: it walks them 64 at a time.
    constexpr int32_t warpgroup_rows() const { return tile.rows / row_warpgroups(); }
    constexpr int32_t row_warpgroups() const { return math_warpgroups / k_warpgroups; }
    /// Whether copies go to other CTAs of the cluster too.
    constexpr bool multicasts() const { return cluster.rows * cluster.cols > 1; }
    /// CTAs that split K of every tile, and those of a cluster that walk the same tiles.
    constexpr int32_t k_ctas() const { return shares_last ? 1 : cluster.k; }
    constexpr int32_t tile_ctas() const { return cluster.rows * cluster.cols * k_ctas(); }
    /// Partial sums that make up an element before it is stored.
    constexpr int32_t k_parts() const { return k_ctas() * k_warpgroups; }
    /// Along M and N: a CTA's tile, CTAs of its cluster, and what they cover together.
    constexpr int32_t tile_m() const { return swap_ab ? tile.cols : tile.rows; }
    constexpr int32_t tile_n() const { return swap_ab ? tile.rows : tile.cols; }
    constexpr int32_t cluster_m() const { return swap_ab ? cluster.cols : cluster.rows; }
    constexpr int32_t cluster_n() const { return swap_ab ? cluster.rows : cluster.cols; }
    constexpr int32_t super_tile_m() const { return tile_m() * cluster_m(); }
    constexpr int32_t super_tile_n() const { return tile_n() * cluster_n(); }
    constexpr int32_t threads() const { return (math_warpgroups + 1) * 128; }
};

constexpr int32_t element_bytes(ElementType type) {
    return type == ElementType::e4m3 ? 1 : type == ElementType::bf16 ? 2 : 4;
}

inline constexpr int32_t kScaleGranularity = 128;
inline constexpr int32_t kWgmmaRows = 64;
inline constexpr int32_t kSwizzleBytes = 128;
inline constexpr int32_t kMaxSmemBytes = 232448;  // a block's limit on both SM90 and SM100

/// K of a block: a row of a swizzled stage.
constexpr int32_t block_k(ElementType operand) { return kSwizzleBytes / element_bytes(operand); }

/// Neighbours along M or N that lie together where an operand is MN-major: a stage holds blocks of so many, each with
/// all of the K block. Either way it has 128 bytes for each row.
inline constexpr int32_t kMnBlock = 64;

constexpr int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }
constexpr int32_t align_up(int32_t a, int32_t b) { return ceil_div(a, b) * b; }
constexpr int32_t gcd(int32_t a, int32_t b) { return b == 0 ? a : gcd(b, a % b); }

}  // namespace deep_gemm
