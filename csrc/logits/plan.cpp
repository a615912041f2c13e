#include "plan.hpp"

#include <deep_gemm/arch/sm100_logits_memory.cuh>
#include <deep_gemm/arch/sm80_logits_memory.cuh>
#include <deep_gemm/arch/sm90_logits_memory.cuh>

#include <algorithm>
#include <atomic>
#include <bit>

#include "../api/call/call.hpp"
#include "../config/sm80/tiles.hpp"
#include "../util/require.hpp"

namespace deep_gemm {
namespace {

constexpr int32_t kMaxColumns = 256;  // of a product

/// Whether Hopper's product has so many columns.
bool is_width(int32_t columns) { return columns % (columns > 64 ? 16 : 8) == 0; }

std::atomic<int32_t> forced_products = 0, forced_groups = 0;

/// Columns of a math group that has so many warpgroups beside it: registers hold no more sums and weights.
int32_t max_columns(int32_t math_groups) { return math_groups == 2 ? 256 : math_groups == 3 ? 128 : 64; }

/// Query rows of a product: as many as are wanted, or as there is room for.
int32_t rows_of_product(int32_t padded_heads, int32_t wanted, int32_t max_columns) {
    const int32_t room = max_columns / padded_heads;
    // Few different kernels: powers of two, but for what a request has of rows in speculative decoding.
    constexpr int32_t kExactly = 4;
    int32_t rows = wanted <= kExactly ? wanted : static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(wanted)));
    rows = std::min(rows, room);
    while (!is_width(rows * padded_heads)) --rows;
    return rows;
}

/// Query rows that shared memory holds beside the rest: no more than keep the tensor cores busy while 32 keys are read.
/// sm_120a multiplies codes with exponents as they are.
LogitsPlan plan_sm80(LogitsConfig c, int32_t wanted, const TargetRow& target) {
    constexpr int32_t kMaxSmemBytes = 99 * kKiB, kEnoughColumns = 256;
    const bool scales_blocks = target.arch == Arch::sm120 && c.exponents;
    c.multiplied = scales_blocks                                ? c.element
                   : c.exponents                                ? Element::bf16
                   : sm80::multiplies_e4m3(target.facts.number) ? Element::e4m3
                                                                : Element::fp16;
    c.rows = std::min(rows_of_product(c.padded_heads, wanted, kEnoughColumns), wanted);
    while (sm80::plan_logits_smem(c).bytes > kMaxSmemBytes) --c.rows;
    return {.arch = scales_blocks ? Arch::sm120 : Arch::sm80,
            .config = c,
            .threads = static_cast<uint32_t>(sm80::logits_threads(c)),
            .smem_bytes = static_cast<uint32_t>(sm80::plan_logits_smem(c).bytes)};
}

/// Many rows: math groups have rows of their own and share each tile of keys. Few: they take tiles in turn, as many as
/// there are registers for. Two products of a tile are under way side by side where a row has few heads: measured on an
/// H100 (32 heads: 483 us against 520; 64 heads: 930 against 896).
LogitsPlan plan_sm90(LogitsConfig c, int32_t wanted) {
    constexpr int32_t kFewHeads = 32;
    const int32_t products = forced_products.load(std::memory_order_relaxed),
                  groups = forced_groups.load(std::memory_order_relaxed);
    const int32_t columns = std::min(wanted * c.padded_heads, max_columns(2));
    c.math_groups = groups > 0 ? groups : columns <= max_columns(4) ? 4 : columns <= max_columns(3) ? 3 : 2;
    while (c.math_groups > 2 && c.padded_heads > max_columns(c.math_groups)) --c.math_groups;
    const int32_t room = max_columns(c.math_groups);
    c.products = products > 0 ? products : c.padded_heads <= kFewHeads && wanted * c.padded_heads > room ? 2 : 1;
    if (c.padded_heads * c.products > room || wanted < c.products) c.products = 1;
    c.rows = rows_of_product(c.padded_heads, ceil_div(std::min(wanted, room / c.padded_heads), c.products),
                             room / c.products);
    c.shares_keys = wanted > c.group_rows();
    c.query_stages = 2;
    c.stages = sm90::logits_stages(c);
    return {.arch = Arch::sm90,
            .config = c,
            .threads = static_cast<uint32_t>(sm90::logits_threads(c)),
            .smem_bytes = static_cast<uint32_t>(sm90::plan_logits_smem(c).bytes)};
}

/// Keys and queries with exponents become BF16. Two warpgroups, or three where they have few columns, take tiles in
/// turn: one converts or finishes while the other's products run.
LogitsPlan plan_sm90_converted(LogitsConfig c, int32_t wanted) {
    constexpr int32_t kMaxConvertedColumns = 128, kFewColumns = 64;
    c.multiplied = Element::bf16;
    c.rows = rows_of_product(c.padded_heads, wanted, kMaxConvertedColumns);
    c.math_groups = c.columns() <= kFewColumns ? 3 : 2;
    c.query_stages = 2;
    c.stages = sm90::logits_stages(c);
    return {.arch = Arch::sm90,
            .config = c,
            .threads = static_cast<uint32_t>(sm90::logits_threads(c)),
            .smem_bytes = static_cast<uint32_t>(sm90::plan_logits_smem(c).bytes)};
}

/// Heads are padded to what an instruction of 128 rows counts its columns in.
LogitsPlan plan_sm100(LogitsConfig c, int32_t wanted) {
    constexpr int32_t kColumnStep = 16;
    c.multiplied = c.element;
    c.padded_heads = align_up(c.heads, kColumnStep);
    c.rows = rows_of_product(c.padded_heads, wanted, sm100::max_logits_columns(c.exponents));
    c.math_groups = sm100::kLogitsAccumulators;
    c.query_stages = 2;
    c.stages = sm100::logits_stages(c);
    return {.arch = Arch::sm100,
            .config = c,
            .threads = sm100::kLogitsThreads,
            .smem_bytes = static_cast<uint32_t>(sm100::plan_logits_smem(c).bytes)};
}

const char* truth(bool value) { return value ? "true" : "false"; }

}  // namespace

LogitsPlan plan_logits(const LogitsCall& call, const TargetRow& target) {
    const LogitsConfig config{.paged = call.paged,
                              .exponents = call.exponents,
                              .element = call.element,
                              .weights = call.weights,
                              .logits = call.logits,
                              .heads = call.heads,
                              .padded_heads = padded_logit_heads(call.heads),
                              .d = call.d,
                              .block_keys = call.block_keys};
    const int32_t wanted = call.paged ? call.rows_per_request : call.rows;
    // The copy engine reads scales where they start at a multiple of 16 bytes, which a part of a tensor may not do.
    const bool copied = call.paged || reinterpret_cast<uintptr_t>(call.key_scales.data) % kTmaAlignment == 0;
    if (target.arch == Arch::sm90 && copied)
        return call.exponents ? plan_sm90_converted(config, wanted) : plan_sm90(config, wanted);
    if (target.arch == Arch::sm100 && copied) return plan_sm100(config, wanted);
    return plan_sm80(config, wanted, target);
}

void force_logits_plan(int64_t products, int64_t math_groups) {
    require(products >= 0 && products <= 2, "products of a tile must be 1 or 2, or 0 for the plan's, got ", products);
    require(math_groups == 0 || (math_groups >= 2 && math_groups <= 4),
            "warpgroups that multiply must be 2 to 4, or 0 for the plan's, got ", math_groups);
    forced_products = static_cast<int32_t>(products), forced_groups = static_cast<int32_t>(math_groups);
}

jit::KernelSource render_logits(const LogitsPlan& plan) {
    const LogitsConfig& c = plan.config;
    const std::string_view arch = facts(plan.arch).name;
    const std::string run = concat("mqa_logits_", arch);
    const std::string entry =
        concat(c.element == Element::e4m3 ? "fp8" : "fp4", c.exponents ? "_mx" : "", c.paged ? "_paged" : "", "_", run,
               "_h", c.heads, "_d", c.d, "_rows", c.rows, c.products > 1 ? "x2" : "",
               plan.arch == Arch::sm90 ? concat("_groups", c.math_groups) : std::string(),
               c.shares_keys ? "_shared_keys" : "");
    const auto element = [](Element value) { return concat("Element::", facts(value).name); };
    std::string text = concat("#include <deep_gemm/kernels/", run, ".cuh>\n\nusing namespace deep_gemm;\n\n");
    text +=
        concat("constexpr LogitsConfig kConfig{\n    .paged = ", truth(c.paged), ", .exponents = ", truth(c.exponents),
               ", .element = ", element(c.element), ", .multiplied = ", element(c.multiplied));
    text +=
        concat(",\n    .weights = ", element(c.weights), ", .logits = ", element(c.logits), ",\n    .heads = ", c.heads,
               ", .padded_heads = ", c.padded_heads, ", .d = ", c.d, ", .rows = ", c.rows, ", .products = ", c.products,
               ", .math_groups = ", c.math_groups, ", .shares_keys = ", truth(c.shares_keys));
    text +=
        concat(",\n    .block_keys = ", c.block_keys, ", .stages = ", c.stages, ", .query_stages = ", c.query_stages,
               "};\n\nextern \"C\" __global__ void __launch_bounds__(", plan.threads, ", 1)\n", entry,
               "(const __grid_constant__ LogitsParams params) {\n    run_", run, "<kConfig>(params);\n}\n");
    return {.name = entry, .text = text};
}

}  // namespace deep_gemm
