#include "checks_packed.hpp"

#include "dtypes.hpp"

namespace deep_gemm {
namespace {

int64_t padded_rows(int64_t rows) { return round_up(rows, kPackedRowsPadded); }

/// A value for each row, which sums are multiplied by, of the groups.
Scales check_second_scales(const OptionalTensor& second, const GemmCall& call, const PackedArgument& packed) {
    const int64_t rows = padded_rows(packed.rows);
    require(second.has_value(), "w's scales are multiplied into weights, but there are no second ones for sums");
    require_type(element_of(second->dtype()) == Element::fp32, "w's second scales must be float32, but are ",
                 describe(second->dtype()));
    require_device(*second, "w's second scales", call.device, "a");
    require(second->ndim() == 2 && second->size(0) == call.b.groups && second->size(1) == rows &&
                extent_bytes(*second) == static_cast<size_t>(call.b.groups * rows) * 4,
            "w's second scales must be contiguous [", call.b.groups, ", ", rows, "], but have shape ",
            describe_shape(*second));
    return {.data = second->data(),
            .element = Element::fp32,
            .scaling = kWholeRowScales,
            .groups = call.b.groups,
            .rows = packed.rows,
            .k_scales = 1,
            .group_stride = rows,
            .row_stride = 1,
            .bytes = extent_bytes(*second)};
}

/// [groups, K groups, padded rows], as packing has written them.
Scales check_packed_scales(const TensorView& scales, const GemmCall& call, const PackedArgument& packed,
                           const Scaling& scaling) {
    const int64_t rows = padded_rows(packed.rows),
                  k_scales = scaling.whole_k() ? 1 : round_up(packed.k, kPackedK) / entry_k(scaling);
    const Element element = element_of(scales.dtype());
    require_type(element == (scaling.in_conversion() ? Element::s32 : Element::fp32),
                 "w's scales must be float32, or words of int32, but are ", describe(scales.dtype()));
    require_device(scales, "w's scales", call.device, "a");
    require(scales.ndim() == 3 && scales.size(0) == call.b.groups && scales.size(1) == k_scales &&
                scales.size(2) == rows &&
                extent_bytes(scales) == static_cast<size_t>(call.b.groups * k_scales * rows) * 4,
            "w's scales must be contiguous [", call.b.groups, ", ", k_scales, ", ", rows, "], but have shape ",
            describe_shape(scales));
    return {.data = scales.data(),
            .element = element,
            .scaling = scaling,
            .operand_rows = packed.rows,
            .groups = call.b.groups,
            .rows = packed.rows,
            .k_scales = k_scales,
            .group_stride = k_scales * rows,
            .row_stride = 1,
            .k_stride = rows,
            .bytes = extent_bytes(scales)};
}

/// Whether these are scales for each row and 128 of K, and not one for a row or for all.
bool has_k_groups(const OptionalTensor& scales, int64_t k, bool masked) {
    const int64_t groups = (k + kScaleGroupK - 1) / kScaleGroupK;
    return scales && scales->ndim() == (masked ? 3 : 2) && groups > 1 && scales->size(scales->ndim() - 1) == groups;
}

}  // namespace

Matrix packed_matrix(const OperandArgument& operand, const char* name, bool grouped) {
    const PackedArgument& packed = *operand.packed;
    const TensorView& codes = operand.data;
    require(packed.rows > 0 && packed.k > 0, name, " must not be empty");
    require(packed.grouped == grouped, name,
            grouped ? " must be a stack of matrices, one an expert, but is a single one"
                    : " must be a single matrix, but is a stack of them");
    const int64_t row_blocks = packed_blocks(to_int32(packed.rows, "N")),
                  k_blocks = (packed.k + kPackedK - 1) / kPackedK,
                  bytes = row_blocks * k_blocks * packed_block_bytes(packed.element);
    require(codes.ndim() == 2 && codes.size(1) == bytes && (codes.size(0) <= 1 || codes.stride(0) == bytes) &&
                codes.stride(1) == 1,
            name, "'s codes must be [groups, ", bytes, "] bytes without gaps, but have shape ", describe_shape(codes));
    require(reinterpret_cast<uintptr_t>(codes.data()) % kTmaAlignment == 0, name,
            "'s codes must start at a multiple of 16 bytes");
    const int64_t stride = k_blocks * kPackedK;
    return {.data = codes.data(),
            .groups = codes.size(0),
            .rows = packed.rows,
            .cols = packed.k,
            .group_stride = row_blocks * kPackedRows * stride,
            .row_stride = stride,
            .bytes = extent_bytes(codes)};
}

void check_packed_operands(GemmCall& call, const OperandArgument& a, const OperandArgument& b) {
    Problem& p = call.problem;
    const PackedArgument& packed = *b.packed;
    check_layout(call.a, p.a, pair_of(p).mn_major, "a", "M");
    p.row_alignment_a = row_alignment(call.a, p.a), p.row_alignment_b = kBestAlignment;
    const bool words = element_of(b.scales->dtype()) == Element::s32;
    p.b.scaling = {words ? Element::ue5m3 : Element::fp32, 1,
                   packed.group_k == 0 ? kAll : static_cast<int32_t>(packed.group_k)};
    require(lists<Scaling>(pair_of(p).scalings_b, p.b.scaling), "w has a scale for each ", packed.group_k,
            " of K, which no kernel multiplies");
    call.scales_b = check_packed_scales(*b.scales, call, packed, p.b.scaling);
    if (p.b.scaling.in_conversion()) call.second_scales_b = check_second_scales(*packed.second_scales, call, packed);
    if (!p.b.scaling.whole_k() && has_k_groups(a.scales, p.k, p.grouping == Grouping::masked)) {
        p.a.scaling = kRowScales;
        call.scales_a = check_scales(*a.scales, {"a", "a's scales", call.a.groups, p.m, p.k, p.a.scaling, 1}, call,
                                     last_axes(a.scales->ndim() == 3));
    } else {
        p.a.scaling = kWholeRowScales;
        call.scales_a = check_whole_scales(a.scales, packed.number, {"a's scales", "M", call.a.groups, p.m}, call);
    }
}

}  // namespace deep_gemm
