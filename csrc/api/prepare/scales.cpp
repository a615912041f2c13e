#include "scales.hpp"

#include <utility>
#include <vector>

#include "scale_layout.hpp"

namespace deep_gemm {
namespace {

/// As the kernel reads them.
Element element_read(const Scales& s) {
    return s.scaling.in_instruction() || s.scaling.in_conversion() ? Element::s32 : s.scaling.type;
}

bool is_mn_major_aligned(const Scales& s) {
    return (s.row_stride == 1 || s.rows == 1) && (s.k_stride % 4 == 0 || s.k_scales == 1) &&
           (s.k_stride >= s.rows || s.k_scales == 1) && (s.groups == 1 || s.group_stride % 4 == 0) &&
           reinterpret_cast<uintptr_t>(s.data) % kTmaAlignment == 0;
}

ScaleEncoding encoding_of(const Scales& s) {
    if (s.element == element_read(s)) return ScaleEncoding::words;
    if (s.scaling.type == Element::fp32)
        return s.element == Element::s32 ? ScaleEncoding::exponent_words : ScaleEncoding::exponent_bytes;
    return bits(s.element) == 8 ? ScaleEncoding::packed_bytes : ScaleEncoding::exponents_exact;
}

/// Where a copy with so many scales or words along K lies in a workspace, which is allocated where it is empty.
Scales copy_of(const Device& device, const Scales& s, int64_t k_scales, bool in_blocks, Workspace& workspace) {
    Scales copy = s;
    copy.element = element_read(s), copy.row_granularity = s.scaling.rows, copy.in_blocks = in_blocks;
    copy.rows = (s.operand_rows + s.scaling.rows - 1) / s.scaling.rows, copy.k_scales = k_scales;
    copy.row_stride = 1, copy.k_stride = round_up(copy.rows, in_blocks ? kWordBlockRows : kTmaAlignment / 4);
    copy.group_stride = k_scales * copy.k_stride;
    copy.bytes = static_cast<size_t>(bytes_of(copy.element, s.groups * copy.group_stride));
    if (!workspace) workspace = allocate_bytes(device, static_cast<int64_t>(copy.bytes));
    copy.data = workspace.data();
    return copy;
}

/// What scales may come as (encoding_of).
std::vector<ScaleEncoding> encodings_of(const Scaling& scaling) {
    using enum ScaleEncoding;
    if (!scaling.any()) return {};
    if (scaling.in_instruction()) return {words, exponents_exact, packed_bytes};
    return scaling.per_row() ? std::vector{words, exponent_bytes, exponent_words} : std::vector{exponent_bytes};
}

}  // namespace

jit::KernelSources scale_sources(const Scaling& scaling, int32_t k, bool in_blocks) {
    const int32_t k_scales = scaling.per_channel() ? 1 : ceil_div(k, scaling.k);
    jit::KernelSources sources;
    for (const ScaleEncoding encoding : encodings_of(scaling))
        for (jit::KernelSource& source : scale_layout_sources(encoding, k_scales, in_blocks))
            sources.push_back(std::move(source));
    return sources;
}

void require_layout(Device& device, Scales& s, bool in_blocks, void* stream, Workspace& workspace) {
    const bool in_blocks_of_rows = s.scaling.per_row() && s.row_granularity > 1;
    const bool as_read = s.element == element_read(s) && !in_blocks_of_rows;
    if (as_read && !s.scaling.per_row()) return;
    if (as_read && !in_blocks && is_mn_major_aligned(s)) {
        // A single row or column carries an arbitrary stride; the tensor map wants a legal one.
        if (s.k_scales == 1) s.k_stride = round_up(s.rows, kTmaAlignment / 4);
        return;
    }
    const ScaleEncoding encoding = encoding_of(s);
    const bool made = static_cast<bool>(workspace);
    const int64_t k_scales = encoding == ScaleEncoding::exponent_words ? s.scales_of_row : s.k_scales,
                  k_words = packs(encoding) ? (k_scales + kScalesPerWord - 1) / kScalesPerWord : k_scales;
    const Scales copy = copy_of(device, s, k_words, in_blocks, workspace);
    if (!made) {
        const ScaleLayoutParams params{.source = static_cast<const uint32_t*>(s.data),
                                       .target = reinterpret_cast<uint32_t*>(workspace.data()),
                                       .group_stride = s.group_stride,
                                       .row_stride = s.row_stride,
                                       .k_stride = s.k_stride,
                                       .rows = to_int32(copy.rows, "the number of rows"),
                                       .padded_rows = to_int32(copy.k_stride, "the number of rows"),
                                       .k_scales = to_int32(k_scales, "the number of scales along K"),
                                       .k_words = static_cast<int32_t>(k_words),
                                       .num_groups = to_int32(s.groups, "the number of groups"),
                                       .row_granularity = s.row_granularity / s.scaling.rows};
        launch_scale_layout(device, params, encoding, in_blocks, stream);
    }
    s = copy;
}

void require_k_grouped_layout(Device& device, Scales& s, const KGroupLayout& groups, int64_t k_words, void* stream,
                              Workspace& workspace) {
    const ScaleEncoding encoding = encoding_of(s);
    const bool unpacks = encoding == ScaleEncoding::exponent_words;
    if (!packs(encoding) && !unpacks) return require_layout(device, s, false, stream, workspace);
    const int64_t k_scales = unpacks ? s.scales_of_row : s.k_scales;
    if (unpacks) k_words = s.k_scales;
    const Scales copy = copy_of(device, s, unpacks ? k_scales : k_words, false, workspace);
    const KGroupedScaleLayoutParams params{.source = static_cast<const uint32_t*>(s.data),
                                           .target = reinterpret_cast<uint32_t*>(workspace.data()),
                                           .row_stride = s.row_stride,
                                           .k_stride = s.k_stride,
                                           .grouped_layout = groups.values,
                                           .psum_alignment = groups.psum_alignment,
                                           .rows = to_int32(s.rows, "the number of rows"),
                                           .padded_rows = to_int32(copy.k_stride, "the number of rows"),
                                           .num_groups = groups.num_groups,
                                           .k_scales = to_int32(k_scales, "the number of scales along K"),
                                           .k_words = to_int32(k_words, "the number of words along K")};
    launch_k_grouped_scale_layout(device, params, s.scaling.k, encoding, stream);
    s = copy;
}

}  // namespace deep_gemm
