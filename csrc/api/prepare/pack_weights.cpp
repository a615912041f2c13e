#include "pack_weights.hpp"

#include <algorithm>
#include <array>

#include "../../config/pairs.hpp"
#include "../call/kernel_table.hpp"

namespace deep_gemm {
namespace {

/// What codes may lie as in blocks, beside 8 bits and beside 16.
constexpr size_t kOrders = 2 * kElementCount;
/// What scales may be before they are packed.
constexpr std::array<Element, 3> kScaleElements = {Element::fp32, Element::ue8m0, Element::s32};

size_t order_index(const PackCodesConfig& config) {
    const bool is_multiplied = std::ranges::any_of(kPairs, [&](const Pair& pair) {
        return pair.b == config.element && (bits(pair.a) == 16) == config.wide;
    });
    require(is_packed(config.element) && is_multiplied, "weights ", config.wide ? "beside 16 bits " : "", "of ",
            facts(config.element).name, " are not packed");
    return config.wide * kElementCount + static_cast<size_t>(config.element);
}

size_t scale_index(Element element) {
    const auto* const found = std::ranges::find(kScaleElements, element);
    require(found != kScaleElements.end(), "scales of ", facts(element).name, " are not packed");
    return found - kScaleElements.begin();
}

/// What the conversion of weights that calls pack leaves (convert/weights.cuh), as deep_gemm/weights/packings.py has
/// it.
constexpr float factor_of(Element element) { return element == Element::e4m3p ? 256 : 64; }

const char* text(bool value) { return value ? "true" : "false"; }

jit::KernelSource render(const std::string& entry, const std::string& config, const char* params,
                         const char* function) {
    return {
        .name = entry,
        .text = concat("#include <deep_gemm/kernels/pack_weights.cuh>\n\nusing namespace deep_gemm;\n\n", "constexpr ",
                       config, ";\n\n", "extern \"C\" __global__ void __launch_bounds__(kPackThreads)\n", entry,
                       "(const __grid_constant__ ", params, " params) {\n    ", function, "<kConfig>(params);\n}\n")};
}

jit::KernelSource render(const PackCodesConfig& config) {
    const char* const name = facts(config.element).name;
    return render(concat("pack_", name, config.wide ? "_for_16_bits" : "", "_from_",
                         config.is_signed ? "signed" : "unsigned", config.pairs ? "_pairs" : "_bytes",
                         config.offset ? "_offset" : "", config.aligned ? "" : "_unaligned"),
                  concat("PackCodesConfig kConfig{.element = Element::", name, ", .wide = ", text(config.wide),
                         ", .is_signed = ", text(config.is_signed), ", .offset = ", text(config.offset),
                         ", .pairs = ", text(config.pairs), ", .aligned = ", text(config.aligned), "}"),
                  "PackCodesParams", "run_pack_codes");
}

jit::KernelSource render(const PackScalesConfig& config) {
    const char* const name = facts(config.element).name;
    return render(concat("pack_scales_", name, config.rows_first ? "_rows_first" : "_k_first"),
                  concat("PackScalesConfig kConfig{.element = Element::", name,
                         ", .rows_first = ", text(config.rows_first), "}"),
                  "PackScalesParams", "run_pack_scales");
}

}  // namespace

void launch_pack_codes(Device& device, const Matrix& codes, char* blocks, const CodesNotes& notes,
                       PackCodesConfig config, void* stream) {
    const size_t order = order_index(config);
    const int64_t k = codes.cols * (config.pairs ? 2 : 1), k_blocks = round_up(k, kPackedK) / kPackedK;
    PackCodesParams params{.source = reinterpret_cast<const uint8_t*>(codes.data),
                           .target = reinterpret_cast<uint8_t*>(blocks),
                           .found = notes.found,
                           .nan_scales = notes.nan_scales,
                           .group_stride = codes.groups == 1 ? 0 : codes.group_stride,
                           .row_stride = codes.rows == 1 ? 0 : codes.row_stride,
                           .rows = to_int32(codes.rows, "N"),
                           .row_bytes = to_int32(codes.cols, "the bytes of a row"),
                           .row_blocks = packed_blocks(to_int32(codes.rows, "N")),
                           .k_blocks = to_int32(k_blocks, "the number of blocks along K"),
                           .k_tiles = static_cast<int32_t>((codes.cols + kPackLineBytes - 1) / kPackLineBytes)};
    config.aligned = (reinterpret_cast<uintptr_t>(codes.data) | static_cast<uintptr_t>(params.row_stride) |
                      static_cast<uintptr_t>(params.group_stride)) %
                         16 ==
                     0;
    const Blocks grid{int64_t{params.k_tiles} * params.row_blocks * codes.groups, kPackThreads, "weights to pack"};
    static KernelTable<16 * kOrders> table;
    const size_t variant =
        (((order * 2 + config.is_signed) * 2 + config.offset) * 2 + config.pairs) * 2 + config.aligned;
    const auto target_bytes =
        static_cast<size_t>(codes.groups * params.row_blocks * k_blocks * packed_block_bytes(config.element));
    const size_t scale_bytes = notes.nan_scales == nullptr ? 0
                                                           : static_cast<size_t>(codes.groups * k_blocks) *
                                                                 params.row_blocks * kPackedRows * sizeof(float);
    const Extent extents[] = {{codes.data, codes.bytes, "codes to pack", false},
                              {blocks, target_bytes, "packed codes", true},
                              {notes.found, sizeof(int32_t), "what was found", true},
                              {notes.nan_scales, scale_bytes, "packed scales", true}};
    table.launch(device, variant, [&] { return render(config); }, grid, params, extents, stream);
}

void launch_pack_scales(Device& device, const PackScalesParams& params, Element element, int64_t groups,
                        size_t source_bytes, void* stream) {
    const PackScalesConfig config{.element = element, .rows_first = params.row_stride < params.k_stride};
    const size_t variant = scale_index(element) * 2 + config.rows_first;
    const int64_t tiles = int64_t{ceil_div(params.k_groups, kPackScalesTile)} * (params.padded_rows / kPackScalesTile);
    const Blocks grid{tiles * groups, kPackThreads, "scales to pack"};
    static KernelTable<2 * kScaleElements.size()> table;
    const size_t target_bytes = static_cast<size_t>(groups * params.k_groups) * params.padded_rows * sizeof(float);
    const Extent extents[] = {{params.source, source_bytes, "scales to pack", false},
                              {params.target, target_bytes, "packed scales", true}};
    table.launch(device, variant, [&] { return render(config); }, grid, params, extents, stream);
}

void require_packed(Device& device, GemmCall& call, void* stream, Workspace& workspace) {
    const auto& [codes, scales] = call.unpacked;
    if (codes.data == nullptr) return;
    workspace = allocate_bytes(device, static_cast<int64_t>(call.b.bytes + call.scales_b.bytes));
    call.b.data = workspace.data(), call.scales_b.data = workspace.data() + call.b.bytes;
    auto* const target = reinterpret_cast<float*>(workspace.data() + call.b.bytes);
    const Scales& packed = call.scales_b;
    const Element element = call.problem.b.element;
    const int32_t given_k = scales.scaling.k;
    launch_pack_scales(device,
                       {.source = scales.data,
                        .target = target,
                        .group_stride = scales.groups == 1 ? 0 : scales.group_stride,
                        .row_stride = scales.row_stride,
                        .k_stride = scales.k_stride,
                        .rows = to_int32(packed.rows, "N"),
                        .padded_rows = to_int32(packed.k_stride, "N"),
                        .k_scales = ceil_div(call.problem.k, given_k),
                        .k_groups = to_int32(packed.k_scales, "the number of groups along K"),
                        .repeat = given_k / packed.scaling.k,
                        .row_repeat = scales.row_granularity,
                        .factor = factor_of(element)},
                       scales.element, packed.groups, scales.bytes, stream);
    const bool wide = bits(call.problem.a.element) == 16, bytes = bits(element) == 8;
    launch_pack_codes(device, codes, call.b.data, {.nan_scales = bytes ? target : nullptr},
                      {.element = element, .wide = wide, .is_signed = false, .pairs = !bytes}, stream);
}

}  // namespace deep_gemm
