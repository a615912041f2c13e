#include "checks_packed.hpp"

#include "../call/dtypes.hpp"
#include "checks_lines.hpp"

namespace deep_gemm {
namespace {

int64_t padded_rows(int64_t rows) { return round_up(rows, kPackedRowsPadded); }

/// A value for each row, which sums are multiplied by, of the groups.
Scales check_second_scales(const OptionalTensor& second, const GemmCall& call, const PackedArgument& packed) {
    const int64_t rows = padded_rows(packed.rows);
    require(second.has_value(), "w's scales are multiplied into weights, but there are no second ones for sums");
    require_type(element_of(second->dtype()) == Element::fp32, "w's second scales must be float32, got ",
                 describe(second->dtype()));
    require_device(*second, "w's second scales", call.device, "a");
    require(second->ndim() == 2 && second->size(0) == call.b.groups && second->size(1) == rows &&
                extent_bytes(*second) == static_cast<size_t>(call.b.groups * rows) * 4,
            "w's second scales must be contiguous [", call.b.groups, ", ", rows, "], got shape ",
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

/// Scales as packing writes them, [groups, K groups, padded rows]; of which memory, is not said.
Scales packed_scales(const GemmCall& call, const PackedArgument& packed, const Scaling& scaling) {
    const int64_t rows = padded_rows(packed.rows),
                  k_scales = scaling.per_channel() ? 1 : round_up(packed.k, kPackedK) / entry_k(scaling);
    return {.element = bits(scaling.type) == 32 ? scaling.type : Element::s32,
            .scaling = scaling,
            .operand_rows = packed.rows,
            .groups = call.b.groups,
            .rows = packed.rows,
            .k_scales = k_scales,
            .group_stride = k_scales * rows,
            .row_stride = 1,
            .k_stride = rows,
            .bytes = static_cast<size_t>(call.b.groups * k_scales * rows) * sizeof(float)};
}

}  // namespace

Scales check_packed_scales(const TensorView& scales, const char* name, const GemmCall& call,
                           const PackedArgument& packed, const Scaling& scaling) {
    Scales found = packed_scales(call, packed, scaling);
    require_type(element_of(scales.dtype()) == found.element, name, " must be ", dtype_name(found.element), ", got ",
                 describe(scales.dtype()));
    require_device(scales, name, call.device, "a");
    require(scales.ndim() == 3 && scales.size(0) == found.groups && scales.size(1) == found.k_scales &&
                scales.size(2) == found.k_stride && extent_bytes(scales) == found.bytes,
            name, " must be contiguous [", found.groups, ", ", found.k_scales, ", ", found.k_stride, "], got shape ",
            describe_shape(scales));
    found.data = scales.data();
    return found;
}

namespace {

Matrix unpacked_matrix(const OperandArgument& b, const char* name, bool grouped) {
    if (is_fp4_pairs(b.data)) return matrix_of(b.data, name, grouped, grouped ? "[G, N, K / 2]" : "[N, K / 2]");
    return matrix_of(b.data, name, grouped, grouped ? "[G, N, K]" : "[N, K]");
}

/// Blocks of so many matrices; of which memory, is not said.
Matrix matrix_of_blocks(Element element, int64_t groups, int64_t rows, int64_t k) {
    const int64_t row_blocks = packed_blocks(to_int32(rows, "N")), k_blocks = (k + kPackedK - 1) / kPackedK,
                  stride = k_blocks * kPackedK;
    return {.groups = groups,
            .rows = rows,
            .cols = k,
            .group_stride = row_blocks * kPackedRows * stride,
            .row_stride = stride,
            .bytes = static_cast<size_t>(groups * row_blocks * k_blocks * packed_block_bytes(element))};
}

/// Which scales such weights have: of FP4 for each row and some K, of E4M3 for blocks.
Granularity unpacked_granularity(const OperandArgument& b) {
    const int64_t k = b.packed->group_k;
    const bool words = element_of(b.scales->dtype()) == Element::s32;
    if (!is_fp4_pairs(b.data)) return {.rows = words ? 1 : kScaleBlockRows, .k = kScaleGroupK};
    require(k >= kRowScales32.k && k % kRowScales32.k == 0, b.scales_name,
            " must be for 32 of K, or a multiple of it, got ", k);
    return {.rows = 1, .k = k};
}

void check_unpacked(GemmCall& call, const OperandArgument& b, bool grouped) {
    Problem& p = call.problem;
    const PackedArgument& packed = *b.packed;
    const Matrix codes = unpacked_matrix(b, b.name, grouped);
    require(codes.col_stride == 1, b.name, " must have K contiguous, got strides ", describe_strides(b.data));
    const auto [rows, k] = unpacked_granularity(b);
    const bool fp4 = is_fp4_pairs(b.data);
    const Scaling given{fp4 ? Element::ue8m0 : Element::fp32, static_cast<int32_t>(rows),
                        to_int32(k, "the K that shares a scale")};
    const Scales scales =
        check_scales(*b.scales, {b.name, b.scales_name, codes.groups, codes.rows, packed.k, given, rows}, call,
                     last_axes(grouped));
    call.unpacked = {codes, scales};
    p.b.scaling = fp4 ? kRowScales32 : kRowScales;
    call.scales_b = packed_scales(call, packed, p.b.scaling);
}

/// Of weights that have them: how much of K shares a word, and the words.
void check_packed_zeros(GemmCall& call, const PackedArgument& packed) {
    Operand& b = call.problem.b;
    const bool wanted = subtracts_zeros(b.element);
    require(packed.zeros.has_value() == wanted, "w's zeros must be ", wanted ? "there" : "None",
            " where its codes are ", facts(b.element).name);
    if (!wanted) return;
    b.zeros_k = packed.zeros_k == 0 ? kAll : static_cast<int32_t>(packed.zeros_k);
    require(lists<int32_t>(pair_of(call.problem).zeros_k, b.zeros_k), "w has a zero point for each ", packed.zeros_k,
            " of K, which no kernel subtracts");
    call.zeros_b = check_packed_scales(*packed.zeros, "w's zeros", call, packed, {Element::s32, 1, b.zeros_k});
}

/// [groups, padded rows], likewise: s32, or FP32 where groups along K have scales.
RowSums check_packed_sums(const GemmCall& call, const PackedArgument& packed) {
    require(packed.sums != nullptr && packed.sums->has_value(),
            "w has no sums of its rows, which zero points of a are multiplied by: pack it anew");
    const TensorView& sums = **packed.sums;
    const Element element = scales_blocks(call.problem) ? Element::fp32 : Element::s32;
    const int64_t rows = padded_rows(packed.rows);
    require_type(element_of(sums.dtype()) == element, "w's sums must be ", dtype_name(element), ", got ",
                 describe(sums.dtype()));
    require_device(sums, "w's sums", call.device, "a");
    require(sums.ndim() == 2 && sums.size(0) == call.b.groups && sums.size(1) == rows &&
                extent_bytes(sums) == static_cast<size_t>(call.b.groups * rows) * 4,
            "w's sums must be contiguous [", call.b.groups, ", ", rows, "], got shape ", describe_shape(sums));
    return {.data = sums.data(), .group_stride = rows, .bytes = extent_bytes(sums)};
}

}  // namespace

void require_codes(const TensorView& codes, const char* name, int64_t bytes) {
    int64_t behind = 1;
    bool gaps = false;
    for (int i = codes.ndim() - 1; i >= 0; --i) {
        gaps = gaps || (codes.size(i) > 1 && codes.stride(i) != behind);
        if (i > 0) behind *= codes.size(i);
    }
    require(codes.ndim() >= 2 && behind == bytes && !gaps, name, "'s codes must be [groups, ", bytes,
            "] bytes without gaps, got shape ", describe_shape(codes));
}

Matrix packed_matrix(const OperandArgument& operand, const char* name, bool grouped) {
    const PackedArgument& packed = *operand.packed;
    const TensorView& codes = operand.data;
    if (is_unpacked(operand.data)) {
        const Matrix given = unpacked_matrix(operand, name, grouped);
        const int64_t k = given.cols * (is_fp4_pairs(codes) ? 2 : 1);
        return matrix_of_blocks(packed.element, given.groups, given.rows, k);
    }
    require(packed.rows > 0 && packed.k > 0, name, " must not be empty");
    require(packed.grouped == grouped, name,
            grouped ? " must be a stack of matrices, one an expert, got a single one"
                    : " must be a single matrix, got a stack of them");
    const int64_t groups = codes.ndim() >= 2 ? codes.size(0) : 1;
    Matrix blocks = matrix_of_blocks(packed.element, groups, packed.rows, packed.k);
    const int64_t bytes = groups == 0 ? 0 : static_cast<int64_t>(blocks.bytes) / groups;
    require_codes(codes, name, bytes);
    require(reinterpret_cast<uintptr_t>(codes.data()) % kTmaAlignment == 0, name,
            "'s codes must start at a multiple of 16 bytes");
    blocks.data = codes.data();
    return blocks;
}

void check_packed_operands(GemmCall& call, const OperandArgument& a, const OperandArgument& b) {
    Problem& p = call.problem;
    const PackedArgument& packed = *b.packed;
    p.int4_a = a.whole != nullptr && a.whole->int4;
    require(packed.tokens_k == 0 || packed.tokens_k == kScaleGroupK,
            "with FP4 weights scales of a must be for one row and ", kScaleGroupK,
            " of K except on Blackwell (SM100), the recipe says ", packed.tokens_k);
    if (p.int4_a) {
        require(call.a.col_stride == 1, "a must have K contiguous, two integers a byte, got strides ",
                describe_strides(a.data));
        p.row_alignment_a = kBestAlignment;
    } else {
        check_layout(call.a, p.a, pair_of(p).mn_major, "a", "M");
        p.row_alignment_a = row_alignment(call.a, p.a);
    }
    p.row_alignment_b = kBestAlignment;
    if (!p.a.scaling.any()) {
        require(
            packed.group_k == 0,
            "w must have one scale a channel (group_size None) where d is int32, which is sums of codes, got groups of ",
            packed.group_k);
        require(p.k <= most_exact_k(p), "K must be at most ", most_exact_k(p), " where d is int32, got ", p.k);
        check_packed_zeros(call, packed);
        return;
    }
    if (is_unpacked(b.data)) {
        check_unpacked(call, b, packed.grouped);
    } else {
        const bool words = element_of(b.scales->dtype()) == Element::s32;
        p.b.scaling = {words ? Element::ue5m3 : Element::fp32, 1,
                       packed.group_k == 0 ? kAll : static_cast<int32_t>(packed.group_k)};
        require(lists<Scaling>(pair_of(p).scalings_b, p.b.scaling), "w has a scale for each ", packed.group_k,
                " of K, which no kernel multiplies");
        call.scales_b = check_packed_scales(*b.scales, "w's scales", call, packed, p.b.scaling);
        p.b.near_scales = packed.near_scales ? 1 : 0;
        if (words) call.second_scales_b = check_second_scales(*packed.second_scales, call, packed);
        check_packed_zeros(call, packed);
    }
    check_token_scales(call, a);
    check_zero_points(call, a);
    if (p.asymmetric_a) call.sums_b = check_packed_sums(call, packed);
    require(!exceeds_exact_k(p), "K must be at most ", most_exact_k(p), " where all of it shares its scales, got ", p.k,
            ": pack with a group_size");
}

}  // namespace deep_gemm
