#include "checks_packed.hpp"

#include "dtypes.hpp"

namespace deep_gemm {
namespace {

int64_t padded_rows(int64_t rows) { return round_up(rows, kPackedRowsPadded); }

/// [groups, K groups, padded rows], as packing has written them.
Scales check_packed_scales(const TensorView& scales, const GemmCall& call, const PackedArgument& packed,
                           const Scaling& scaling) {
    const int64_t rows = padded_rows(packed.rows),
                  k_scales = scaling.whole_k() ? 1 : round_up(packed.k, kPackedK) / scaling.k;
    require_type(element_of(scales.dtype()) == Element::fp32, "w's scales must be float32, but are ",
                 describe(scales.dtype()));
    require_device(scales, "w's scales", call.device, "a");
    require(scales.ndim() == 3 && scales.size(0) == call.b.groups && scales.size(1) == k_scales &&
                scales.size(2) == rows &&
                extent_bytes(scales) == static_cast<size_t>(call.b.groups * k_scales * rows) * 4,
            "w's scales must be contiguous [", call.b.groups, ", ", k_scales, ", ", rows, "], but have shape ",
            describe_shape(scales));
    return {.data = scales.data(),
            .element = Element::fp32,
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

/// [groups, padded rows], likewise: s32, or FP32 where groups along K have scales.
RowSums check_packed_sums(const GemmCall& call, const PackedArgument& packed) {
    require(packed.sums != nullptr && packed.sums->has_value(),
            "w has no sums of its rows, which zero points of a are multiplied by: pack it anew");
    const TensorView& sums = **packed.sums;
    const Element element = scales_blocks(call.problem) ? Element::fp32 : Element::s32;
    const int64_t rows = padded_rows(packed.rows);
    require_type(element_of(sums.dtype()) == element, "w's sums must be ", dtype_name(element), ", but are ",
                 describe(sums.dtype()));
    require_device(sums, "w's sums", call.device, "a");
    require(sums.ndim() == 2 && sums.size(0) == call.b.groups && sums.size(1) == rows &&
                extent_bytes(sums) == static_cast<size_t>(call.b.groups * rows) * 4,
            "w's sums must be contiguous [", call.b.groups, ", ", rows, "], but have shape ", describe_shape(sums));
    return {.data = sums.data(), .group_stride = rows, .bytes = extent_bytes(sums)};
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
                  k_blocks = (packed.k + kPackedK - 1) / kPackedK, bytes = row_blocks * k_blocks * kPackedBlockBytes;
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
    call.int4_a = a.whole != nullptr && a.whole->int4;
    if (call.int4_a) {
        require(call.a.col_stride == 1, "a must have K contiguous, two integers a byte, but its strides are ",
                describe_strides(a.data));
        p.row_alignment_a = kBestAlignment;
    } else {
        check_layout(call.a, p.a, pair_of(p).mn_major, "a", "M");
        p.row_alignment_a = row_alignment(call.a, p.a);
    }
    p.row_alignment_b = kBestAlignment;
    p.b.scaling = {Element::fp32, 1, packed.group_k == 0 ? kAll : static_cast<int32_t>(packed.group_k)};
    require(lists<Scaling>(pair_of(p).scalings_b, p.b.scaling), "w has a scale for each ", packed.group_k,
            " of K, which no kernel multiplies");
    call.scales_b = check_packed_scales(*b.scales, call, packed, p.b.scaling);
    check_token_scales(call, a);
    check_zero_points(call, a);
    if (p.asymmetric_a) call.sums_b = check_packed_sums(call, packed);
    require(!exceeds_exact_k(p), "K must be at most ", most_exact_k(p), " where all of it shares its scales, but is ",
            p.k, ": pack with a group_size");
}

}  // namespace deep_gemm
