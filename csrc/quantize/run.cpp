#include <algorithm>
#include <string>

#include "../api/call/call_settings.hpp"
#include "../api/call/kernel_cache.hpp"
#include "../api/call/lender.hpp"
#include "call.hpp"

namespace deep_gemm {
namespace {

const char* text(bool value) { return value ? "true" : "false"; }

const char* name(ScaleForm form) {
    constexpr const char* kNames[] = {"fp32", "ue8m0", "exponents"};
    return kNames[static_cast<int>(form)];
}
const char* name(ScaleShare share) {
    constexpr const char* kNames[] = {"k_group", "row", "block"};
    return kNames[static_cast<int>(share)];
}
const char* name(Gate gate) {
    constexpr const char* kNames[] = {"none", "swiglu", "geglu"};
    return kNames[static_cast<int>(gate)];
}
const char* name(RowLayout layout) {
    constexpr const char* kNames[] = {"all", "contiguous", "psum", "masked"};
    return kNames[static_cast<int>(layout)];
}

jit::KernelSource render(const QuantizeConfig& c) {
    const std::string kernel = c.share == ScaleShare::k_group ? "quantize_groups" : "quantize_rows";
    const std::string gate = c.gate == Gate::none ? "" : concat(name(c.gate), "_");
    const std::string entry = concat(gate, kernel, "_", facts(c.output).name,
                                     c.share == ScaleShare::k_group ? concat(c.group) : std::string());
    return {.name = entry,
            .text = concat("#include <deep_gemm/kernels/", kernel, ".cuh>\n\nusing namespace deep_gemm;\n\n",
                           "constexpr QuantizeConfig kConfig{.input = Element::", facts(c.input).name,
                           ", .output = Element::", facts(c.output).name, ", .share = ScaleShare::", name(c.share),
                           ", .group = ", c.group, ", .rows = ", c.rows, ", .threads = ", c.threads,
                           ", .scales = ScaleForm::", name(c.scales), ", .gate = Gate::", name(c.gate),
                           ", .interleaved = ", text(c.interleaved), ", .row_scale = ", text(c.row_scale),
                           ", .zeros = ", text(c.zeros), ", .wide = ", text(c.wide), ", .layout = RowLayout::",
                           name(c.layout), "};\n\n", "extern \"C\" __global__ void __launch_bounds__(", c.threads,
                           ")\n", entry, "(const __grid_constant__ QuantizeParams params) {\n    run_", kernel,
                           "<kConfig>(params);\n}\n")};
}

int64_t divided(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Rows of a warp: as many as leave warps enough to every SM, for each of which fewer instructions are needed.
int32_t choose_rows(const QuantizeCall& call, int32_t sms) {
    constexpr int64_t kWarpsOfSm = 16;
    const int64_t of_rows = call.matrices * divided(call.params.k, kWarpK);
    for (int32_t rows = call.config.gate == Gate::none ? kMaxTileRows : kMaxTileRows / 2; rows > 1; rows /= 2)
        if (divided(call.likely_rows, rows) * of_rows >= kWarpsOfSm * sms) return rows;
    return 1;
}

}  // namespace

void run_quantize(QuantizeCall& call) {
    QuantizeConfig& c = call.config;
    QuantizeParams& p = call.params;
    if (call.matrices == 0 || p.rows == 0 || p.k == 0) return;
    Device& device = Device::get(call.device);
    c.rows = choose_rows(call, CallSettings::of(call.device).allowed_sms(device.facts()));
    p.k_units = static_cast<int32_t>(divided(p.k, kWarpK));
    const int64_t row_tiles = divided(std::max<int64_t>(call.likely_rows, 1), c.rows);
    const int64_t tiles = call.matrices * row_tiles * p.k_units;
    require(tiles < (int64_t{1} << 31), "x needs ", tiles, " warps, more than a launch counts");
    p.row_tiles = static_cast<int32_t>(row_tiles), p.tiles = static_cast<int32_t>(tiles);
    const LaunchShape shape{.grid = static_cast<uint32_t>(divided(tiles, kQuantizeWarps)),
                            .block = static_cast<uint32_t>(c.threads)};
    const Kernel& kernel = cached_kernel(device, c, 0, [&] { return render(c); });
    device.launch(kernel, may_start_early(shape, device), &p, sizeof(p), current_stream(call.device), call.extents);
}

}  // namespace deep_gemm
