#include "checks_fp4.hpp"

#include <ostream>

#include "../call/dtypes.hpp"
#include "checks_lines.hpp"
#include "checks_packed.hpp"

namespace deep_gemm {
namespace {

/// The shapes of a public pair's codes: for errors.
struct PairShape {
    bool grouped, transposed;
    const char* mn;
};

std::ostream& operator<<(std::ostream& out, const PairShape& shape) {
    const char* const group = shape.grouped ? "[G, " : "[";
    const char* const mn = shape.mn;
    if (shape.transposed) return out << group << "K / 2, " << mn << "] or " << group << "K, " << mn << " / 2]";
    return out << group << mn << ", K / 2] or " << group << mn << " / 2, K]";
}

/// Bytes of two codes each -> codes.
Matrix in_codes(Matrix bytes) {
    const bool k_major = is_k_major(bytes);
    (k_major ? bytes.cols : bytes.rows) *= 2;
    (k_major ? bytes.row_stride : bytes.col_stride) *= 2;
    bytes.group_stride *= 2;
    return bytes;
}

/// Rows of PackedWeights: filled up to whole lines of the copy engine.
Matrix packed_rows(const OperandArgument& operand, const char* name, bool grouped) {
    const PackedArgument& packed = *operand.packed;
    const TensorView& codes = operand.data;
    require(packed.grouped == grouped, name,
            grouped ? " must be a stack of matrices, one an expert, got a single one"
                    : " must be a single matrix, got a stack of them");
    const int64_t stride = round_up(packed.k, kSpreadCodes), bytes = packed.rows * stride / 2;
    require_codes(codes, name, bytes);
    require(reinterpret_cast<uintptr_t>(codes.data()) % kUnpackedAlignment == 0, name,
            "'s codes must start at a multiple of ", kUnpackedAlignment, " bytes");
    return {.data = static_cast<char*>(codes.data()),
            .groups = codes.size(0),
            .rows = packed.rows,
            .cols = packed.k,
            .group_stride = packed.rows * stride,
            .row_stride = stride,
            .bytes = static_cast<size_t>(codes.size(0) * bytes)};
}

}  // namespace

Element element_of(const OperandArgument& operand, DLDataType type) {
    if (!operand.fp4) return element_of(type);
    require_type(is_dtype(type, kDLInt, 8), operand.name, " must be int8, of two E2M1 codes each, got ",
                 describe(type));
    return Element::e2m1r;
}

Matrix rows_of_fp4(const OperandArgument& operand, bool grouped) {
    Matrix codes = matrix_of(operand.data, operand.name, grouped, grouped ? "[G, rows, K / 2]" : "[rows, K / 2]");
    require(is_k_major(codes), operand.name, " must have K contiguous, two codes a byte, got strides ",
            describe_strides(operand.data));
    codes.cols *= 2, codes.row_stride *= 2, codes.group_stride *= 2;
    return codes;
}

Element weights_element(Arch arch, Element a, const OperandArgument& b, bool exponents) {
    const Element given = b.packed->element;
    const bool rows = find_pair(arch, a, Element::e2m1r) != nullptr;
    if (is_fp4_pairs(b.data)) return rows && (facts(arch).casts_scales || exponents) ? Element::e2m1r : given;
    require(rows || given != Element::e2m1r, b.name,
            " was packed in rows, which Blackwell (SM100) multiplies, but this GPU converts blocks of codes: pack it "
            "on the device, or for the target, that multiplies it");
    return given;
}

Matrix fp4_pair(const OperandArgument& operand, bool grouped, bool transposed, const char* mn) {
    const char* const name = operand.name;
    const Matrix bytes = matrix_of(operand.data, name, grouped, PairShape{grouped, transposed, mn}, transposed);
    const bool k_major = is_k_major(bytes);
    require(k_major || bytes.row_stride == 1 || bytes.rows == 1, name, " must have K or ", mn,
            " contiguous, two codes a byte, got strides ", describe_strides(operand.data));
    const int64_t line = k_major ? bytes.row_stride : bytes.col_stride, length = k_major ? bytes.cols : bytes.rows,
                  lines = k_major ? bytes.rows : bytes.cols;
    require(line >= length || lines <= 1, name, "'s lines overlap: they are ", line, " bytes apart, less than ",
            length);
    return in_codes(bytes);
}

Matrix fp4_rows(const OperandArgument& operand, const char* name, bool grouped, bool transposed) {
    if (is_fp4_pairs(operand.data)) return fp4_pair(operand, grouped, transposed, "N");
    return packed_rows(operand, name, grouped);
}

void check_fp4_operands(GemmCall& call, const OperandArgument& a, const OperandArgument& b,
                        const OperandLayout& layout) {
    Problem& p = call.problem;
    const PackedArgument& packed = *b.packed;
    check_layout(call.a, p.a, pair_of(p).mn_major, "a", "M");
    p.row_alignment_a = row_alignment(call.a, p.a), p.row_alignment_b = kBestAlignment;
    require(a.scales.has_value(),
            "a's scales must be a tensor, one for each row and 128 of K (or 32: recipe_a), beside FP4 weights on "
            "Blackwell (SM100), got a number");
    require(a.whole == nullptr || !a.whole->asymmetric(), "a must have no zeros where it is ", dtype_name(p.a.element),
            ": zero points are of integers");
    const Granularities given{.a = {.k = packed.tokens_k == 0 ? kScaleGroupK : packed.tokens_k},
                              .b = {.k = packed.group_k}};
    const auto axes = [](const OperandArgument& operand, const Matrix& matrix, bool transposed) {
        return last_axes(matrix.groups > 1 || operand.scales->ndim() == 3, transposed);
    };
    const Axes axes_a = axes(a, call.a, layout.a_transposed);
    if (is_fp4_pairs(b.data)) return check_scales(call, a, b, given, axes_a, axes(b, call.b, layout.b_transposed));
    set_scalings(p, given);
    call.scales_a = check_scales(*a.scales, {"a", "a's scales", call.a.groups, p.m, p.k, p.a.scaling, 1}, call, axes_a);
    call.scales_b = check_packed_scales(*b.scales, "w's scales", call, packed, p.b.scaling);
    p.packs_scales_a = call.scales_a.element != Element::s32;
}

}  // namespace deep_gemm
