#include "plan.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "../api/call/tensors.hpp"
#include "../config/archs.hpp"
#include "../util/require.hpp"

namespace deep_gemm {
namespace {

constexpr int32_t kMaxWarpRows = 128;  // of a CTA whose warps copy for themselves

/// Numbers of force_prenorm_plan; 0 where plans have their own.
struct Forced {
    std::atomic<int32_t> rows = 0, cols = 0, cluster = 0, warpgroups = 0;
    std::atomic<int64_t> changes = 0;
} forced;

bool allowed(int32_t number, const std::atomic<int32_t>& wanted) {
    const int32_t forced_number = wanted.load(std::memory_order_relaxed);
    return forced_number == 0 || number == forced_number;
}

/// The cheapest of what `offer` is given.
template <typename Config>
struct Best {
    Config config;
    double cycles = 0;

    void offer(const Config& candidate, double its_cycles) {
        if (!allowed(candidate.rows, forced.rows) || !allowed(candidate.cols, forced.cols) ||
            !allowed(candidate.cluster, forced.cluster))
            return;
        if (cycles == 0 || its_cycles < cycles) config = candidate, cycles = its_cycles;
    }
};

template <typename Config>
PrenormPlan as_plan(const Best<Config>& best, int32_t smem_bytes, const PrenormProblem& problem) {
    require(best.cycles > 0, "no kernel for K = ", problem.k,
            " has the rows, columns, cluster and warpgroups that were forced: ", forced.rows.load(), ", ",
            forced.cols.load(), ", ", forced.cluster.load(), " and ", forced.warpgroups.load());
    const Config& c = best.config;
    return {.config = c,
            .rows = c.rows,
            .cols = c.cols,
            .cluster = c.cluster,
            .threads = c.threads(),
            .smem_bytes = smem_bytes,
            .row_blocks = ceil_div(problem.m, c.rows),
            .col_blocks = ceil_div(problem.n, c.cols)};
}

int64_t tiles_of(const PrenormProblem& problem, int32_t rows, int32_t cols) {
    return int64_t{ceil_div(problem.m, rows)} * ceil_div(problem.n, cols) * problem.splits;
}

/// Clusters of so many CTAs that run at once: GPCs' SMs are no multiples of them.
int64_t room_of_clusters(int32_t cluster, int32_t sms) {
    const int32_t thousandths = cluster == 1   ? 1000
                                : cluster == 2 ? 970
                                : cluster == 3 ? 890
                                : cluster == 4 ? 910
                                               : 960;
    return std::max<int64_t>(int64_t{sms} * thousandths / 1000 / cluster, 1);
}

double cycles_of_cluster(int32_t cluster) { return cluster == 1 ? 0 : 500 + 500 * std::bit_width(unsigned(cluster)); }

/// Rows whose sums stay in registers (no more than 16 columns do of 128 rows), and whose rings have room.
int32_t max_rows(int32_t cols, int32_t smem_bytes) {
    constexpr int32_t kRoom = 2 * kPrenormWarps * kMaxWarpRows * kPrenormChunkK * 2;
    return smem_bytes > kRoom && cols <= 16 ? kMaxWarpRows : kMaxWarpRows / 2;
}

/// Cycles, roughly: of waves of CTAs that read their rows of A and all of B, and of a cluster that adds up.
double cycles_of(const PrenormConfig& c, const PrenormProblem& problem, int32_t sms) {
    constexpr double kBytesPerCycle = 20;
    const int64_t room = room_of_clusters(c.cluster, sms);
    const auto waves = static_cast<double>((tiles_of(problem, c.rows, c.cols) + room - 1) / room);
    // B comes from the L2, but is split into halves.
    const double bytes = static_cast<double>(problem.k / problem.splits) / c.cluster * (c.rows * 2 + c.cols * 4);
    return waves * (bytes / kBytesPerCycle + cycles_of_cluster(c.cluster));
}

/// Stages of a ring. Few rows: B goes through it too, where that leaves stages enough to wait for memory rarely.
PrenormConfig with_stages(PrenormConfig c, int32_t smem_bytes) {
    constexpr int32_t kFewRows = 32, kEnoughStages = 4, kMaxStages = 8;
    const auto fill = [&](bool b_in_ring) {
        c.b_in_ring = b_in_ring, c.stages = kMaxStages;
        while (c.stages > 2 && c.smem_bytes() > smem_bytes) --c.stages;
    };
    fill(c.rows <= kFewRows);
    if (c.b_in_ring && c.stages < kEnoughStages) fill(false);
    return c;
}

/// With so many rows of a CTA at most.
Best<PrenormConfig> best_by_warps(const PrenormProblem& problem, int32_t rows_limit, int32_t sms,
                                  const DeviceFacts& device) {
    constexpr int32_t kMinRows = 16;
    const int32_t max_cols = std::min(align_up(problem.n, 8), kPrenormMaxCols), smem_bytes = device.max_smem_bytes;
    const bool clusters = facts(arch_of(device)).clusters;
    Best<PrenormConfig> best;
    // Where no cluster divides K, splits do, and fill the GPU: dividing columns would only read A more often.
    for (int32_t cols = max_cols; cols >= (clusters ? 8 : max_cols); cols -= 8)
        for (int32_t rows = std::min(max_rows(cols, smem_bytes), rows_limit); rows >= kMinRows; rows /= 2)
            for (int32_t cluster = 1; cluster <= (clusters ? 8 : 1); cluster *= 2) {
                const PrenormConfig c{.rows = rows, .cols = cols, .cluster = cluster};
                best.offer(c, cycles_of(c, problem, sms));
            }
    best.config = with_stages(best.config, smem_bytes);
    return best;
}

}  // namespace

namespace sm90 {
namespace {

/// Warpgroups whose sums, and two tiles' rows, stay in registers.
int32_t max_warpgroups(int32_t rows, int32_t cols) { return rows > 128 ? 2 : rows > 64 || cols > 24 ? 3 : 4; }

/// Clusters of 16 find room where one of Hopper's eight GPCs has as many SMs.
int32_t max_cluster(int32_t sms_of_gpu) {
    constexpr int32_t kGpcs = 8;
    return sms_of_gpu > kGpcs * 15 ? 16 : 8;
}

/// As many stages as fit, and as a CTA has blocks of K: of what is short, the next kernel's CTAs find room.
PrenormConfig with_stages(PrenormConfig c, int32_t blocks, int32_t smem_bytes) {
    constexpr int32_t kMaxStages = 32;
    c.stages = std::min(kMaxStages / c.warpgroups, ceil_div(blocks, c.warpgroups)) * c.warpgroups;
    while (c.stages > c.warpgroups && plan_prenorm_smem(c).bytes > smem_bytes) c.stages -= c.warpgroups;
    return c;
}

/// Cycles, roughly, fitted to those of an H200: of waves of CTAs that read their rows of A and all of B, by what an SM
/// takes, what memory gives to all, or what a warpgroup does for a block.
double cycles_of(const PrenormConfig& c, const PrenormProblem& problem, int32_t sms) {
    constexpr double kBytesPerCycle = 28.5, kBytesOfMemory = 2430, kOfBlock = 820, kOfWave = 6700, kOfCluster = 490;
    const int64_t tiles = tiles_of(problem, c.rows, c.cols), room = room_of_clusters(c.cluster, sms);
    const auto waves = static_cast<double>((tiles + room - 1) / room);
    const double k = static_cast<double>(problem.k / problem.splits) / c.cluster, of_a = k * c.rows * 2,
                 of_b = k * c.cols * 4;
    const double running = static_cast<double>(std::min(tiles, room)) * c.cluster;
    const double read = std::max((of_a + of_b) / kBytesPerCycle, of_a * running / kBytesOfMemory),
                 multiplied = kOfBlock * k / kPrenormBlockK / c.warpgroups;
    return waves * (std::max(read, multiplied) + kOfWave + kOfCluster * std::log2(c.cluster));
}

Best<PrenormConfig> best_of(const PrenormProblem& problem, int32_t sms, const DeviceFacts& device) {
    constexpr int32_t kMaxRows = 256, kRowStep = 16;
    Best<PrenormConfig> best;
    const int32_t wanted = forced.warpgroups.load(std::memory_order_relaxed);
    for (int32_t cols = std::min(align_up(problem.n, 8), kPrenormMaxCols); cols >= 8; cols -= 8)
        for (int32_t rows = kMaxRows; rows >= kRowStep; rows -= kRowStep)
            for (const int32_t cluster : {1, 2, 3, 4, 8, 16}) {
                if (cluster > max_cluster(device.num_sms)) continue;
                const PrenormConfig c{.rows = rows,
                                      .cols = cols,
                                      .cluster = cluster,
                                      .warpgroups = wanted > 0 ? wanted : max_warpgroups(rows, cols)};
                best.offer(c, cycles_of(c, problem, sms));
            }
    const int32_t blocks = ceil_div(problem.k / kPrenormBlockK, problem.splits * best.config.cluster);
    best.config = with_stages(best.config, std::max(blocks, 1), device.max_smem_bytes);
    return best;
}

/// Copies of the engine take longer to begin than those of threads: of few rows and a short part of K warps' own are
/// faster. (What warps take to begin and to end: cycles measured on an H200.)
PrenormPlan plan(const PrenormProblem& problem, int32_t sms, const DeviceFacts& device) {
    constexpr int32_t kFewRows = 32;
    constexpr double kOfWarps = 3700;
    const Best<PrenormConfig> best = best_of(problem, sms, device);
    const bool by_warps = forced.warpgroups.load(std::memory_order_relaxed) == 0;
    const auto warps = by_warps ? best_by_warps(problem, kFewRows, sms, device) : Best<deep_gemm::PrenormConfig>{};
    if (warps.cycles > 0 && (best.cycles == 0 || warps.cycles + kOfWarps < best.cycles))
        return as_plan(warps, warps.config.smem_bytes(), problem);
    return as_plan(best, plan_prenorm_smem(best.config).bytes, problem);
}

}  // namespace
}  // namespace sm90

PrenormPlan plan_prenorm(const PrenormProblem& problem, int32_t sms, const DeviceFacts& device) {
    if (arch_of(device) == Arch::sm90) return sm90::plan(problem, sms, device);
    const Best<PrenormConfig> best = best_by_warps(problem, kMaxWarpRows, sms, device);
    return as_plan(best, best.config.smem_bytes(), problem);
}

int64_t forced_prenorm_plans() { return forced.changes.load(std::memory_order_relaxed); }

jit::KernelSource render_prenorm(const PrenormConfig& c) {
    const std::string entry = concat("tf32_hc_prenorm_gemm_", c.rows, "x", c.cols,
                                     c.cluster > 1 ? concat("_cluster", c.cluster) : std::string());
    return {.name = entry,
            .text = concat("#include <deep_gemm/kernels/tf32_hc_prenorm_gemm.cuh>\n\nusing namespace deep_gemm;\n\n",
                           "constexpr PrenormConfig kConfig{.rows = ", c.rows, ", .cols = ", c.cols,
                           ", .cluster = ", c.cluster, ", .warps = ", c.warps, ", .stages = ", c.stages,
                           ", .b_in_ring = ", c.b_in_ring ? "true" : "false", "};\n\n",
                           "extern \"C\" __global__ void __launch_bounds__(", c.threads(), ", 1)\n", entry,
                           "(const __grid_constant__ PrenormParams params) {\n",
                           "    run_tf32_hc_prenorm_gemm<kConfig>(params);\n}\n")};
}

jit::KernelSource render_prenorm(const sm90::PrenormConfig& c) {
    const std::string entry =
        concat("tf32_hc_prenorm_gemm_sm90_", c.rows, "x", c.cols,
               c.cluster > 1 ? concat("_cluster", c.cluster) : std::string(), "_groups", c.warpgroups);
    return {
        .name = entry,
        .text = concat("#include <deep_gemm/kernels/tf32_hc_prenorm_gemm_sm90.cuh>\n\nusing namespace deep_gemm;\n\n",
                       "constexpr sm90::PrenormConfig kConfig{.rows = ", c.rows, ", .cols = ", c.cols,
                       ", .cluster = ", c.cluster, ", .warpgroups = ", c.warpgroups, ", .stages = ", c.stages,
                       "};\n\nextern \"C\" __global__ void __launch_bounds__(", c.threads(), ", 1)\n", entry,
                       "(const __grid_constant__ PrenormParams params) {\n",
                       "    run_tf32_hc_prenorm_gemm_sm90<kConfig>(params);\n}\n")};
}

void force_prenorm_plan(int64_t rows, int64_t cols, int64_t cluster, int64_t warpgroups) {
    forced.rows = to_int32(rows, "rows"), forced.cols = to_int32(cols, "columns");
    forced.cluster = to_int32(cluster, "cluster"), forced.warpgroups = to_int32(warpgroups, "warpgroups");
    ++forced.changes;
}

}  // namespace deep_gemm
