#include <algorithm>
#include <string>

#include "../api/call/call_settings.hpp"
#include "../api/call/kernel_cache.hpp"
#include "../api/call/lender.hpp"
#include "../config/fields.hpp"
#include "call.hpp"

namespace deep_gemm {
namespace {

const char* text(bool value) { return value ? "true" : "false"; }

const char* name(ScaleForm form) {
    constexpr const char* kNames[] = {"fp32", "ue8m0", "exponents", "e4m3"};
    return kNames[static_cast<int>(form)];
}
const char* name(ScaleShare share) {
    constexpr const char* kNames[] = {"k_group", "row", "block"};
    return kNames[static_cast<int>(share)];
}
const char* name(RowLayout layout) {
    constexpr const char* kNames[] = {"all", "contiguous", "psum", "masked"};
    return kNames[static_cast<int>(layout)];
}

}  // namespace

std::string config_text(const QuantizeConfig& c) {
    return concat("{.input = Element::", facts(c.input).name, ", .output = Element::", facts(c.output).name,
                  ", .share = ScaleShare::", name(c.share), ", .group = ", c.group, ", .rows = ", c.rows,
                  ", .threads = ", c.threads, ", .scales = ScaleForm::", name(c.scales),
                  ", .gate = GateKind::", name(c.gate), ", .gate_numbers = ", text(c.gate_numbers),
                  ", .interleaved = ", text(c.interleaved), ", .row_scale = ", text(c.row_scale),
                  ", .zeros = ", text(c.zeros), ", .sums = ", text(c.sums), ", .wide = ", text(c.wide),
                  ", .layout = RowLayout::", name(c.layout), "}");
}

namespace {

jit::KernelSource render(const QuantizeConfig& c) {
    constexpr const char* kKernels[] = {"quantize_groups", "quantize_rows", "quantize_blocks"};
    const std::string kernel = kKernels[static_cast<int>(c.share)];
    const std::string entry =
        concat(c.gate == GateKind::none ? std::string() : concat(name(c.gate), "_"), kernel, "_", facts(c.output).name,
               c.share == ScaleShare::k_group ? concat("_of_", c.group) : std::string());
    return {.name = entry,
            .text = concat("#include <deep_gemm/kernels/", kernel, ".cuh>\n\nusing namespace deep_gemm;\n\n",
                           "constexpr QuantizeConfig kConfig", config_text(c), ";\n\n",
                           "extern \"C\" __global__ void __launch_bounds__(", c.threads, ")\n", entry,
                           "(const __grid_constant__ QuantizeParams params) {\n    run_", kernel,
                           "<kConfig>(params);\n}\n")};
}

int64_t divided(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Rows of a warp: as many as leave warps enough to every SM, for each of which fewer instructions are needed.
int32_t choose_rows(const QuantizeCall& call, int32_t sms) {
    constexpr int64_t kWarpsOfSm = 16;
    const int64_t of_rows = call.matrices * divided(call.params.k, kWarpK);
    for (int32_t rows = call.config.gate == GateKind::none ? kMaxTileRows : kMaxTileRows / 2; rows > 1; rows /= 2)
        if (divided(call.likely_rows, rows) * of_rows >= kWarpsOfSm * sms) return rows;
    return 1;
}

/// Threads that a row has where it shares a scale: one for each piece where rows are too few for all SMs; else so many
/// that registers hold the row.
int32_t choose_threads(const QuantizeCall& call, int32_t sms) {
    constexpr int64_t kBlocksOfSm = 2, kMost = 1024;
    const int64_t pieces = divided(call.params.k, kPieceK);
    const bool few = call.matrices * call.likely_rows < kBlocksOfSm * sms;
    int64_t threads = kQuantizeThreads;
    while (threads < kMost && threads * (few ? 1 : call.config.row_pieces()) < pieces) threads *= 2;
    return static_cast<int32_t>(threads);
}

}  // namespace

int64_t plan_quantize(QuantizeCall& call, int32_t sms) {
    QuantizeConfig& c = call.config;
    QuantizeParams& p = call.params;
    const int64_t rows = std::max<int64_t>(call.likely_rows, 1);
    int64_t of_rows = kBlockRows;
    int64_t k_units = 1;
    if (c.share == ScaleShare::k_group) {
        of_rows = c.rows = choose_rows(call, sms);
        k_units = divided(p.k, kWarpK);
    } else if (c.share == ScaleShare::row) {
        of_rows = 1, c.threads = choose_threads(call, sms);
    } else {
        k_units = divided(p.k, kBlockK), c.threads = kBlockThreads;
    }
    const int64_t row_tiles = divided(rows, of_rows), tiles = call.matrices * row_tiles * k_units;
    require(tiles < (int64_t{1} << 31), "x needs ", tiles, " warps or blocks, more than a launch counts");
    p.k_units = FastDivisor(static_cast<uint32_t>(k_units)),
    p.row_tiles = FastDivisor(static_cast<uint32_t>(row_tiles));
    p.tiles = static_cast<int32_t>(tiles);
    return c.share == ScaleShare::k_group ? divided(tiles, kQuantizeWarps) : tiles;
}

void run_quantize(QuantizeCall& call) {
    const QuantizeConfig& c = call.config;
    const QuantizeParams& p = call.params;
    // Rows of no K have a scale where all of a row shares one.
    if (call.matrices == 0 || p.rows == 0 || (p.k == 0 && c.share != ScaleShare::row)) return;
    Device& device = Device::get(call.device);
    const int64_t blocks = plan_quantize(call, CallSettings::of(call.device).allowed_sms(device.facts()));
    const LaunchShape shape{.grid = static_cast<uint32_t>(blocks), .block = static_cast<uint32_t>(c.threads)};
    const Kernel& kernel = cached_kernel(device, c, 0, [&] { return render(c); });
    device.launch(kernel, may_start_early(shape, device), &p, sizeof(p), current_stream(call.device), call.extents);
}

}  // namespace deep_gemm
