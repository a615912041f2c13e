#include "prenorm.hpp"

#include <deep_gemm/kernels/tf32_hc_prenorm_gemm_params.cuh>

#include <algorithm>
#include <atomic>
#include <bit>

#include "../api/call/call_settings.hpp"
#include "../api/call/dtypes.hpp"
#include "../api/call/kernel_cache.hpp"
#include "../api/call/lender.hpp"
#include "../api/call/tensors.hpp"
#include "../config/host_facts.hpp"

namespace deep_gemm {
namespace {

constexpr int32_t kMaxRows = 128, kMinRows = 16, kMaxCluster = 8, kMaxStages = 8;
constexpr int64_t kAlignment = 16;

/// A row of B, so that the copy engine's and the vectors' alignment holds.
void check_operand(const TensorView& operand, const char* name, Element element, const TensorView& a) {
    require_type(element_of(operand.dtype()) == element, name, " must be ", dtype_name(element), ", got ",
                 describe(operand.dtype()));
    require_device(operand, name, device_id_of(a, "a"), "a");
    const int64_t stride_bytes = operand.ndim() == 2 ? bytes_of(element, operand.stride(0)) : 0;
    require(operand.ndim() == 2 && operand.stride(1) == 1 && (operand.size(0) <= 1 || stride_bytes % kAlignment == 0) &&
                reinterpret_cast<uintptr_t>(operand.data()) % kAlignment == 0,
            name, " must be [rows, K] with K contiguous and rows at multiples of 16 bytes, got shape ",
            describe_shape(operand), " and strides ", describe_strides(operand));
}

void check_operands(const TensorView& a, const TensorView& b) {
    check_operand(a, "a", Element::bf16, a), check_operand(b, "b", Element::fp32, a);
    require(a.size(1) == b.size(1), "b has K=", b.size(1), " but a has K=", a.size(1));
    require(a.size(1) % kPrenormBlockK == 0, "K must be a multiple of 64, got ", a.size(1));
    require(b.size(0) <= kPrenormMaxN, "N must be at most 128, got ", b.size(0));
}

/// FP32 of the shape that is wanted, splits in front where there are some.
void check_result(const TensorView& result, const char* name, int64_t splits, std::initializer_list<int64_t> sizes,
                  DeviceId device) {
    require_type(element_of(result.dtype()) == Element::fp32, name, " must be float32, got ", describe(result.dtype()));
    require_device(result, name, device, "a");
    const int first = splits > 0 ? 1 : 0;
    bool right = result.ndim() == first + static_cast<int>(sizes.size()) && (first == 0 || result.size(0) == splits);
    for (int i = 0; right && i < static_cast<int>(sizes.size()); ++i)
        right = result.size(first + i) == sizes.begin()[i];
    require(right && (result.size(result.ndim() - 1) <= 1 || result.stride(result.ndim() - 1) == 1), name, " must be ",
            splits > 0 ? "[splits, M" : "[M", sizes.size() > 1 ? ", N]" : "]", " of M=", sizes.begin()[0],
            " with its last dimension contiguous, got shape ", describe_shape(result), " and strides ",
            describe_strides(result));
}

struct PrenormPlan {
    PrenormConfig config;
    int32_t row_blocks = 1, col_blocks = 1;
};

bool has_clusters(Arch arch) { return facts(arch).clusters; }

/// Rows whose sums stay in registers (no more than 16 columns do of 128 rows), and whose rings have room.
int32_t max_rows(int32_t cols, int32_t smem_bytes) {
    constexpr int32_t kRoom = 2 * kPrenormWarps * kMaxRows * kPrenormChunkK * 2;
    return smem_bytes > kRoom && cols <= 16 ? kMaxRows : kMaxRows / 2;
}

int32_t warps_of(Arch arch, int32_t rows, int32_t cols, int32_t cluster) {
    const bool few_of_many = rows == kMinRows && cols == 24 && cluster == kMaxCluster;
    return few_of_many && host_facts(arch).doubles_prenorm_warps ? 2 * kPrenormWarps : kPrenormWarps;
}

/// Thousandths of a GPU's SMs that clusters of so many CTAs find room on: GPCs are no multiples of them.
constexpr int32_t room_of_clusters(int32_t cluster) {
    return cluster == 1 ? 1000 : cluster == 2 ? 970 : cluster == 4 ? 850 : 960;
}

/// Cycles, roughly: of waves of CTAs that read their rows of A and all of B, and of warps and a cluster that add up.
double cycles_of(const PrenormConfig& c, int64_t tiles, int64_t k, int32_t sms) {
    constexpr double kOfB = 1;  // which comes from the L2, but is split into halves
    const bool many_warps = c.warps > kPrenormWarps;
    const double bytes_per_cycle = many_warps ? 34 : 20, of_warps = many_warps ? 2000 : 0;
    const int64_t room = std::max<int64_t>(int64_t{sms} * room_of_clusters(c.cluster) / 1000 / c.cluster, 1);
    const auto waves = static_cast<double>((tiles + room - 1) / room);
    const double bytes = static_cast<double>(k) / c.cluster * (c.rows * 2 + c.cols * 4 * kOfB);
    return waves * (bytes / bytes_per_cycle + of_warps +
                    (c.cluster == 1 ? 0 : 500 + 500 * std::bit_width(unsigned(c.cluster))));
}

/// Stages of a ring. Few rows: B goes through it too, where that leaves stages enough to wait for memory rarely.
PrenormConfig with_stages(PrenormConfig c, int32_t smem_bytes) {
    constexpr int32_t kFewRows = 32, kEnoughStages = 4;
    const auto fill = [&](bool b_in_ring) {
        c.b_in_ring = b_in_ring, c.stages = kMaxStages;
        while (c.stages > 2 && c.smem_bytes() > smem_bytes) --c.stages;
    };
    fill(c.rows <= kFewRows);
    if (c.b_in_ring && c.stages < kEnoughStages) fill(false);
    return c;
}

/// Numbers of force_prenorm_plan; 0 where plans have their own.
std::atomic<int32_t> forced_rows = 0, forced_cols = 0, forced_cluster = 0;

/// The cheapest numbers of rows and columns of a CTA, and of CTAs that divide K among themselves.
PrenormPlan plan(int32_t m, int32_t n, int64_t k, int32_t splits, int32_t sms, Arch arch, int32_t smem_bytes) {
    PrenormConfig best;
    double best_cycles = 0;
    const auto allowed = [](int32_t number, const std::atomic<int32_t>& forced) {
        const int32_t wanted = forced.load(std::memory_order_relaxed);
        return wanted == 0 || number == wanted;
    };
    const int32_t max_cols = std::min(align_up(n, 8), kPrenormMaxCols);
    // Where no cluster divides K, splits do, and fill the GPU: dividing columns would only read A more often.
    for (int32_t cols = max_cols; cols >= (has_clusters(arch) ? 8 : max_cols); cols -= 8)
        for (int32_t rows = max_rows(cols, smem_bytes); rows >= kMinRows; rows /= 2)
            for (int32_t cluster = 1; cluster <= (has_clusters(arch) ? kMaxCluster : 1); cluster *= 2) {
                if (!allowed(cols, forced_cols) || !allowed(rows, forced_rows) || !allowed(cluster, forced_cluster))
                    continue;
                const PrenormConfig c{
                    .rows = rows, .cols = cols, .cluster = cluster, .warps = warps_of(arch, rows, cols, cluster)};
                const int64_t tiles = int64_t{ceil_div(m, rows)} * ceil_div(n, cols) * splits;
                const double cycles = cycles_of(c, tiles, k / splits, sms);
                if (best_cycles == 0 || cycles < best_cycles) best = c, best_cycles = cycles;
            }
    require(best_cycles > 0, "no kernel for K = ", k,
            " has the rows, columns and cluster that were forced: ", forced_rows.load(), ", ", forced_cols.load(),
            " and ", forced_cluster.load());
    best = with_stages(best, smem_bytes);
    return {best, ceil_div(m, best.rows), ceil_div(n, best.cols)};
}

jit::KernelSource render(const PrenormConfig& c) {
    const std::string entry = concat("tf32_hc_prenorm_gemm_", c.rows, "x", c.cols,
                                     c.cluster > 1 ? concat("_cluster", c.cluster) : std::string(),
                                     c.warps > kPrenormWarps ? concat("_warps", c.warps) : std::string());
    return {.name = entry,
            .text = concat("#include <deep_gemm/kernels/tf32_hc_prenorm_gemm.cuh>\n\nusing namespace deep_gemm;\n\n",
                           "constexpr PrenormConfig kConfig{.rows = ", c.rows, ", .cols = ", c.cols,
                           ", .cluster = ", c.cluster, ", .warps = ", c.warps, ", .stages = ", c.stages,
                           ", .b_in_ring = ", c.b_in_ring ? "true" : "false", "};\n\n",
                           "extern \"C\" __global__ void __launch_bounds__(", c.threads(), ", 1)\n", entry,
                           "(const __grid_constant__ PrenormParams params) {\n",
                           "    run_tf32_hc_prenorm_gemm<kConfig>(params);\n}\n")};
}

}  // namespace

void prenorm_gemm(const TensorView& a, const TensorView& b, const TensorView& d, const TensorView& squares) {
    check_operands(a, b);
    const DeviceId id = device_id_of(a, "a");
    const int64_t m = a.size(0), n = b.size(0), splits = d.ndim() == 3 ? d.size(0) : 0;
    require(d.ndim() != 3 || splits > 0, "d must have at least one split, got shape ", describe_shape(d));
    check_result(d, "d", splits, {m, n}, id), check_result(squares, "sqr_sum", splits, {m}, id);
    if (m == 0) return;
    require(n > 0, "b must have rows, got shape ", describe_shape(b));
    Device& device = Device::get(id);
    const auto parts = static_cast<int32_t>(std::max<int64_t>(splits, 1));
    const PrenormPlan p =
        plan(to_int32(m, "M"), to_int32(n, "N"), a.size(1), parts, CallSettings::of(id).allowed_sms(device.facts()),
             arch_of(device.facts()), device.facts().max_smem_bytes);
    const int first = splits > 0 ? 1 : 0;
    const PrenormParams params{.a = reinterpret_cast<const uint8_t*>(a.data()),
                               .b = reinterpret_cast<const float*>(b.data()),
                               .d = reinterpret_cast<float*>(d.data()),
                               .squares = reinterpret_cast<float*>(squares.data()),
                               .a_stride_bytes = a.stride(0) * 2,
                               .b_stride = b.stride(0),
                               .d_stride = d.stride(first),
                               .d_split_stride = splits > 0 ? d.stride(0) : 0,
                               .squares_split_stride = splits > 0 ? squares.stride(0) : 0,
                               .m = to_int32(m, "M"),
                               .n = to_int32(n, "N"),
                               .k = to_int32(a.size(1), "K"),
                               .splits = parts,
                               .col_blocks = p.col_blocks};
    const Extent extents[] = {{a.data(), extent_bytes(a), "a", false},
                              {b.data(), extent_bytes(b), "b", false},
                              {d.data(), extent_bytes(d), "d", true},
                              {squares.data(), extent_bytes(squares), "sqr_sum", true}};
    const PrenormConfig& c = p.config;
    const int64_t ctas = int64_t{p.row_blocks} * p.col_blocks * parts * c.cluster;
    require(ctas < (int64_t{1} << 31), "the product needs ", ctas, " blocks, more than a grid holds");
    const LaunchShape shape{.grid = static_cast<uint32_t>(ctas),
                            .block = static_cast<uint32_t>(c.threads()),
                            .cluster = static_cast<uint32_t>(c.cluster),
                            .smem_bytes = static_cast<uint32_t>(c.smem_bytes())};
    const Kernel& kernel = cached_kernel(device, c, shape.smem_bytes, [&] { return render(c); });
    device.launch(kernel, may_start_early(shape, device), &params, sizeof(params), current_stream(id), extents);
}

void force_prenorm_plan(int64_t rows, int64_t cols, int64_t cluster) {
    forced_rows = to_int32(rows, "rows"), forced_cols = to_int32(cols, "columns");
    forced_cluster = to_int32(cluster, "cluster");
}

int64_t prenorm_splits(const TensorView& a, const TensorView& b) {
    check_operands(a, b);
    const DeviceId id = device_id_of(a, "a");
    const DeviceFacts& facts = Device::get(id).facts();
    if (has_clusters(arch_of(facts)) || a.size(0) == 0 || b.size(0) == 0) return 1;
    const PrenormPlan p = plan(to_int32(a.size(0), "M"), to_int32(b.size(0), "N"), a.size(1), 1,
                               CallSettings::of(id).allowed_sms(facts), arch_of(facts), facts.max_smem_bytes);
    const int64_t blocks = a.size(1) / kPrenormBlockK,
                  idle = CallSettings::of(id).allowed_sms(facts) / (int64_t{p.row_blocks} * p.col_blocks);
    // A split of fewer blocks than its warps take at once is not worth its sums.
    const int64_t kMinBlocks = int64_t{p.config.warps} * kPrenormChunkK / kPrenormBlockK;
    return std::max<int64_t>(1, std::min(idle, blocks / kMinBlocks));
}

}  // namespace deep_gemm
