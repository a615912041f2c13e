#include "checks.hpp"

#include <ostream>
#include <utility>

#include "overlap.hpp"

namespace deep_gemm {
namespace {

/// The pairs of operands that there are kernels for.
struct Pair {
    ElementType a, b;
    bool scaled;
};
constexpr Pair kPairs[] = {{ElementType::e4m3, ElementType::e4m3, true}, {ElementType::bf16, ElementType::bf16, false}};

/// Elements that an operand may be of, for errors: those of pairs with or without scales, and of one A where it is
/// known.
struct ElementsText {
    bool scaled;
    const ElementType* a = nullptr;
};

std::ostream& operator<<(std::ostream& out, const ElementsText& text) {
    const char* separator = "";
    for (const Pair& pair : kPairs) {
        if (pair.scaled != text.scaled || (text.a != nullptr && pair.a != *text.a)) continue;
        out << separator << describe(dtype_of(text.a == nullptr ? pair.a : pair.b));
        separator = " or ";
    }
    return out;
}

/// Every pair serves every grouping.
const Pair& require_pair(const OperandArgument& a, const OperandArgument& b, Grouping /*grouping*/) {
    const bool scaled = a.scales.has_value();
    require_type(b.scales.has_value() == scaled, "a and b must both have scales, or neither of them");
    const Pair* of_a = nullptr;
    for (const Pair& pair : kPairs) {
        if (pair.scaled != scaled || !is_of(a.data.dtype(), pair.a)) continue;
        if (is_of(b.data.dtype(), pair.b)) return pair;
        of_a = &pair;
    }
    require_type(of_a != nullptr, "a must be ", ElementsText{scaled}, ", but is ", describe(a.data.dtype()));
    fail(ErrorKind::type, "b must be ", ElementsText{scaled, &of_a->a}, ", but is ", describe(b.data.dtype()));
}

void require_k(int64_t k, int64_t step) {
    require(k % step == 0, "K must be a multiple of ", step, ", but is ", k,
            ": pad A and B with zeros to K=", round_up(k, step));
}

/// K or `mn` contiguous, in lines that do not overlap.
void require_lines(const Matrix& matrix, const char* name, const char* mn) {
    if (is_k_major(matrix)) {
        require(matrix.row_stride >= matrix.cols || matrix.rows <= 1, name, "'s rows overlap: row stride ",
                matrix.row_stride, " is less than K=", matrix.cols);
        return;
    }
    require(matrix.row_stride == 1 || matrix.rows == 1, name, " must have K or ", mn,
            " contiguous, but its strides along ", mn, " and K are (", matrix.row_stride, ", ", matrix.col_stride, ")");
    require(matrix.col_stride >= matrix.rows, name, "'s lines along ", mn, " overlap: they are ", matrix.col_stride,
            " elements apart, less than ", mn, "=", matrix.rows);
}

/// The scales that an operand wants, for errors.
struct ScalesText {
    int64_t groups, first, second, granularity;  // groups 0: no such dimension
    const char* operand;
};

std::ostream& operator<<(std::ostream& out, const ScalesText& text) {
    out << "[";
    if (text.groups) out << text.groups << ", ";
    return out << text.first << ", " << text.second << "] (one float32 per " << text.granularity
               << (text.granularity == 1 ? " row" : " rows") << " and 128 of K of " << text.operand << ")";
}

}  // namespace

uint64_t line_distances(const Matrix& matrix, ElementType type) {
    const bool mn_major = !is_k_major(matrix);
    const int64_t line = mn_major ? matrix.col_stride : matrix.row_stride, lines = mn_major ? matrix.cols : matrix.rows;
    return (static_cast<uint64_t>(lines > 1 ? line : 0) |
            static_cast<uint64_t>(matrix.groups > 1 ? matrix.group_stride : 0)) *
           element_bytes(type);
}

bool is_aligned(const Matrix& matrix, ElementType type) {
    return (reinterpret_cast<uintptr_t>(matrix.data) | line_distances(matrix, type)) % kTmaAlignment == 0;
}

bool reads_mn_major(ElementType type) { return type == ElementType::bf16; }

void require_operand(Matrix& matrix, ElementType type, const char* name, const char* mn) {
    const int64_t step = kTmaAlignment / element_bytes(type);
    const bool as_it_lies = reads_mn_major(type);
    if (matrix.cols == 1 && matrix.row_stride == 1 && matrix.rows > 1)  // a single line along M or N
        matrix.col_stride = as_it_lies ? round_up(matrix.rows, step) : matrix.rows;
    const bool k_major = is_k_major(matrix), any_k = type == ElementType::bf16;
    if (k_major && any_k && matrix.rows == 1) matrix.row_stride = round_up(matrix.cols, step);  // a single line along K
    require_lines(matrix, name, mn);
    if (k_major && !any_k && matrix.row_stride % step != 0) require_k(matrix.cols, step);
    if (matrix.groups == 1)
        matrix.group_stride = k_major ? matrix.rows * matrix.row_stride : matrix.cols * matrix.col_stride;
}

int32_t row_alignment(const Matrix& matrix, ElementType type) {
    if (!is_k_major(matrix) && !reads_mn_major(type)) return kBestAlignment;
    return alignment_as_read(line_distances(matrix, type));
}

void require_operand_types(GemmCall& call, const OperandArgument& a, const OperandArgument& b, Grouping grouping) {
    const Pair& pair = require_pair(a, b, grouping);
    require_device(b.data, "b", call.device, "a");
    call.problem.operand = pair.a;
    if (!pair.scaled) call.problem.scales_a = call.problem.scales_b = ScaleKind::none;
}

void check_output(GemmCall& call, const TensorView& d, const OptionalTensor& c, bool grouped, const char* shape) {
    require_type(is_bf16(d.dtype()) || is_fp32(d.dtype()), "d must be bfloat16 or float32, but is ",
                 describe(d.dtype()));
    require_device(d, "d", call.device, "a");
    call.d = matrix_of(d, "d", grouped, shape);
    require(call.d.col_stride == 1, "d must have N contiguous, but its strides are ", describe_strides(d));
    require(call.d.row_stride >= call.d.cols || call.d.rows <= 1, "d's rows overlap: row stride ", call.d.row_stride,
            " is less than N=", call.d.cols);
    Problem& p = call.problem;
    p.output = is_fp32(d.dtype()) ? ElementType::fp32 : ElementType::bf16;
    const int64_t size = element_bytes(p.output);
    require(reinterpret_cast<uintptr_t>(call.d.data) % size == 0, "d must be aligned to its element size");
    p.aligned_store =
        reinterpret_cast<uintptr_t>(call.d.data) % kTmaAlignment == 0 &&
        call.d.row_stride * size % kTmaAlignment == 0 && call.d.group_stride * size % kTmaAlignment == 0 &&
        call.d.cols * size % kTmaAlignment == 0;  // seen on the H200: the engine clips stores at multiples of 16 bytes
    if (!c) return;
    require_type(c->dtype().code == d.dtype().code && c->dtype().bits == d.dtype().bits, "c must have d's dtype ",
                 describe(d.dtype()), ", but is ", describe(c->dtype()));
    require_device(*c, "c", call.device, "a");
    call.c = matrix_of(*c, "c", grouped, shape);
    require(call.c.groups == call.d.groups && call.c.rows == call.d.rows && call.c.cols == call.d.cols,
            "c must have d's shape ", describe_shape(d), ", but has ", describe_shape(*c));
    require(call.c.col_stride == 1, "c must have N contiguous, but its strides are ", describe_strides(*c));
    p.add_c = 1;
    require_apart_or_same(d, *c);
    p.in_place = call.c.data == call.d.data;
}

void require_operands_apart(const TensorView& d, const OperandArgument& a, const OperandArgument& b) {
    require_apart(d, a.data, "a");
    require_apart(d, b.data, "b");
    if (a.scales) require_apart(d, *a.scales, "a's scales");
    if (b.scales) require_apart(d, *b.scales, "b's scales");
}

Scales check_scales(const TensorView& sf, const char* name, const char* operand, const GemmCall& call, int64_t groups,
                    int64_t rows, int64_t k, int64_t granularity, bool transposed) {
    require_type(!is_int32(sf.dtype()), name,
                 " holds packed UE8M0 exponents (int32), which only SM100 takes; SM90 wants float32 scales");
    const bool exponents = is_e8m0(sf.dtype());
    require_type(exponents || is_fp32(sf.dtype()), name, " must be float32 or float8_e8m0fnu, but is ",
                 describe(sf.dtype()));
    require_device(sf, name, call.device, "a");
    const int64_t scale_rows = (rows + granularity - 1) / granularity,
                  k_scales = (k + kScaleGranularity - 1) / kScaleGranularity;
    const bool grouped = groups > 1 || sf.ndim() == 3;
    const ScalesText wanted{grouped ? groups : 0, transposed ? k_scales : scale_rows,
                            transposed ? scale_rows : k_scales, granularity, operand};
    const Matrix m = matrix_of(sf, name, grouped, wanted, transposed);
    require(m.groups == groups && m.rows == scale_rows && m.cols == k_scales, name, " must be ", wanted,
            ", but has shape ", describe_shape(sf));
    require(m.row_stride >= 0 && m.col_stride >= 0, name, " must not have negative strides, but has ",
            describe_strides(sf));
    return {.data = reinterpret_cast<const float*>(m.data),
            .exponents = exponents,
            .kind = granularity == 1 ? ScaleKind::per_row : ScaleKind::per_block,
            .groups = groups,
            .rows = scale_rows,
            .k_scales = k_scales,
            .group_stride = grouped ? sf.stride(0) : 0,
            .row_stride = m.row_stride,
            .k_stride = m.col_stride,
            .bytes = m.bytes};
}

void check_operands(GemmCall& call, const OperandArgument& a, const OperandArgument& b, const Granularities& rows,
                    const OperandLayout& layout) {
    Problem& p = call.problem;
    require_operand(call.a, p.operand, "a", "M");
    require_operand(call.b, p.operand, "b", "N");
    p.row_alignment_a = row_alignment(call.a, p.operand), p.row_alignment_b = row_alignment(call.b, p.operand);
    if (reads_mn_major(p.operand)) p.mn_major_a = !is_k_major(call.a), p.mn_major_b = !is_k_major(call.b);
    if (!a.scales) return;
    call.scales_a =
        check_scales(*a.scales, "a's scales", "a", call, call.a.groups, p.m, p.k, rows.a, layout.a_transposed);
    call.scales_b =
        check_scales(*b.scales, "b's scales", "b", call, p.num_groups, p.n, p.k, rows.b, layout.b_transposed);
    require(call.scales_a.kind == ScaleKind::per_row,
            "a's scales must be per row on SM90: recipe (1, 128, 128) or (1, 1, 128)");
    p.scales_a = call.scales_a.kind, p.scales_b = call.scales_b.kind;
}

GemmCall check_dense(const OperandArgument& a, const OperandArgument& b, const TensorView& d, const OptionalTensor& c,
                     const Granularities& rows, int64_t layout) {
    GemmCall call{.device = device_id_of(a.data, "a")};
    require_operand_types(call, a, b, Grouping::dense);
    const auto [a_transposed, b_transposed] = operand_layout(layout);
    call.a = matrix_of(a.data, "a", false, a_transposed ? "[K, M]" : "[M, K]", a_transposed);
    call.b = matrix_of(b.data, "b", false, b_transposed ? "[K, N]" : "[N, K]", b_transposed);
    require(call.b.cols == call.a.cols, "b has K=", call.b.cols, " but a has K=", call.a.cols);
    Problem& p = call.problem;
    p.m = to_int32(call.a.rows, "M"), p.n = to_int32(call.b.rows, "N"), p.k = to_int32(call.a.cols, "K");
    check_output(call, d, c, false, "[M, N]");
    require(call.d.rows == p.m && call.d.cols == p.n, "d must be [M, N] = [", p.m, ", ", p.n, "], but has shape ",
            describe_shape(d));
    if (p.m == 0 || p.n == 0 || p.k == 0) return call;
    check_operands(call, a, b, rows, operand_layout(layout));
    require_operands_apart(d, a, b);
    p.compiled = compiled_shape(p, layout);
    return call;
}

}  // namespace deep_gemm
