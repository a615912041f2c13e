#include "checks.hpp"

#include <algorithm>
#include <ostream>
#include <span>
#include <vector>

#include "../config/products_text.hpp"
#include "call_settings.hpp"
#include "checks_fp4.hpp"
#include "checks_integer.hpp"
#include "checks_packed.hpp"
#include "dtypes.hpp"
#include "overlap.hpp"

namespace deep_gemm {
namespace {

void require_k(int64_t k, Element type) {
    const int64_t step = elements_in(type, kTmaAlignment);
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

/// How scales are shared, for errors: "one float32 per row and 128 of K".
struct ScalingText {
    Element element;  // as they lie
    int64_t rows, k;
    Element in_words = Element::ue8m0;
};

std::ostream& operator<<(std::ostream& out, const ScalingText& text) {
    out << "one " << dtype_name(text.element);
    if (text.element == Element::s32)
        out << " of " << kExponentsPerWord << (text.in_words == Element::ue8m0 ? " exponents" : " scales");
    out << " per ";
    if (text.rows != 1) out << text.rows << " rows";
    return out << (text.rows == 1 ? "row" : "") << " and " << text.k << " of K";
}

ScalingText text_of(const Scaling& scaling) { return {scaling.type, scaling.rows, scaling.k}; }

/// The scales that an operand wants, for errors.
struct ScalesText {
    Axes axes;
    int64_t groups, rows, k_scales;
    ScalingText scaling;
    const char* operand;
};

std::ostream& operator<<(std::ostream& out, const ScalesText& text) {
    for (int i = 0; i < text.axes.count(); ++i)
        out << (i == 0 ? "[" : ", ")
            << (i == text.axes.group ? text.groups
                : i == text.axes.row ? text.rows
                                     : text.k_scales);
    return out << "] (" << text.scaling << " of " << text.operand << ")";
}

/// Elements of a list without its unused places, for errors: "bfloat16, float32 or float16".
struct ElementsText {
    std::vector<Element> elements;
};

std::ostream& operator<<(std::ostream& out, ElementsText text) {
    std::erase(text.elements, Element::none);
    for (size_t i = 0; i < text.elements.size(); ++i)
        out << (i == 0 ? "" : i + 1 < text.elements.size() ? ", " : " or ") << dtype_name(text.elements[i]);
    return out;
}

/// Elements in one place of the pairs that are wanted, each once.
template <typename Wanted>
ElementsText elements_of(Element Pair::* member, const Wanted& wanted) {
    ElementsText text;
    for (const Pair& pair : kPairs)
        if (wanted(pair) && !lists<Element>(text.elements, pair.*member)) text.elements.push_back(pair.*member);
    return text;
}

/// An operand's, of a pair that lists these. Those in instructions are repeated for each row on the way to the kernel.
Scaling scaling_of(std::span<const Scaling> listed, const Granularity& given, const char* operand) {
    const auto same_k = std::ranges::find(listed, static_cast<int32_t>(given.k), &Scaling::k);
    const Scaling& like = same_k == listed.end() ? listed[0] : *same_k;
    const Scaling scaling{like.type, like.in_instruction() ? 1 : static_cast<int32_t>(given.rows),
                          static_cast<int32_t>(given.k)};
    require(lists(listed, scaling), operand, "'s scales must be ", text_of(listed[0]), ", not ", text_of(scaling),
            ": see recipe");
    return scaling;
}

/// What scales may lie as.
void check_scale_dtype(Element element, DLDataType type, const Scaling& scaling, const char* name, Arch arch) {
    if (scaling.type == Element::e4m3) {
        require_type(element == Element::e4m3 || element == Element::s32, name,
                     " must be float8_e4m3fn, or int32 of four of them each, but is ", describe(type));
        return;
    }
    if (scaling.in_instruction()) {
        require_type(element == Element::s32 || element == Element::ue8m0 || element == Element::fp32, name,
                     " must be int32 (packed UE8M0 exponents), float8_e8m0fnu or float32, but is ", describe(type));
        return;
    }
    require_type(element != Element::s32 || arch != Arch::sm100, name,
                 " holds packed UE8M0 exponents (int32), but disable_ue8m0_cast=True asks for float32 scales");
    require_type(element != Element::s32, name,
                 " holds packed UE8M0 exponents (int32), which only SM100 takes; others want float32 scales");
    require_type(element == scaling.type || element == Element::ue8m0, name, " must be ", dtype_name(scaling.type),
                 " or float8_e8m0fnu, but is ", describe(type));
}

/// Whether set_fp32_scales decides for FP32 scales. Words of exponents are none.
bool prefers_fp32_scales(DeviceId device, const OperandArgument& a, const OperandArgument& b) {
    const auto words = [](const OperandArgument& operand) {
        return operand.scales && element_of(operand.scales->dtype()) == Element::s32;
    };
    return CallSettings::of(device).prefers_fp32_scales() && !words(a) && !words(b);
}

/// Columns of a D that is written in heads.
int64_t columns_of_d(int64_t n, const HeadSplits& heads) {
    if (heads.written() == 0) return n;
    require(n % heads.written() == 0, "b must have N a multiple of the columns of a head, ", heads.left, " + ",
            heads.right, " of head_splits, but has N=", n);
    return n + n / heads.written() * int64_t{heads.skipped};
}

/// Which the kernel reads K-major: any K-major lines, or MN-major ones, which are transposed on the way and take any K.
/// So do rows that start at multiples of 16 bytes.
void check_transposable(Matrix& matrix, Element type, const char* name, const char* mn) {
    if (matrix.cols == 1 && matrix.row_stride == 1 && matrix.rows > 1) matrix.col_stride = matrix.rows;
    require_lines(matrix, name, mn);
    if (is_k_major(matrix) && bytes_of(type, matrix.row_stride) % kTmaAlignment != 0) require_k(matrix.cols, type);
}

/// Which the kernel reads as it lies.
void check_either_major(Matrix& matrix, Element type, const char* name, const char* mn) {
    const int64_t step = elements_in(type, kTmaAlignment);
    if (matrix.cols == 1 && matrix.row_stride == 1 && matrix.rows > 1)  // a single line along M or N
        matrix.col_stride = round_up(matrix.rows, step);
    const bool k_major = is_k_major(matrix);
    if (k_major && matrix.rows == 1) matrix.row_stride = round_up(matrix.cols, step);  // a single line along K
    require_lines(matrix, name, mn);
    if (matrix.groups == 1)
        matrix.group_stride = k_major ? matrix.rows * matrix.row_stride : matrix.cols * matrix.col_stride;
}

}  // namespace

uint64_t line_distances(const Matrix& matrix, const Operand& lying) {
    const bool mn_major = lying.mn_major();
    const int64_t line = mn_major ? matrix.col_stride : matrix.row_stride, lines = mn_major ? matrix.cols : matrix.rows;
    return bytes_of(lying.element, static_cast<uint64_t>(lines > 1 ? line : 0) |
                                       static_cast<uint64_t>(matrix.groups > 1 ? matrix.group_stride : 0));
}

bool is_aligned(const Matrix& matrix, const Operand& lying) {
    return (reinterpret_cast<uintptr_t>(matrix.data) | line_distances(matrix, lying)) % kTmaAlignment == 0;
}

void check_layout(Matrix& matrix, Operand& operand, MnMajor mn_major, const char* name, const char* mn) {
    if (mn_major == MnMajor::transposed) return check_transposable(matrix, operand.element, name, mn);
    check_either_major(matrix, operand.element, name, mn);
    operand.major = is_k_major(matrix) ? Major::k : Major::mn;
    require(mn_major != MnMajor::refused || operand.major == Major::k, name, " must have K contiguous, not ", mn,
            ", beside packed weights");
}

int32_t row_alignment(const Matrix& matrix, const Operand& wanted) {
    if (is_transposed(matrix, wanted)) return kBestAlignment;
    return alignment_as_read(line_distances(matrix, wanted));
}

Matrix matrix_of_a(const OperandArgument& a, bool grouped, const Printed& shape, bool transposed) {
    if (a.fp4) return a.either_way ? fp4_pair(a, grouped, transposed, "M") : rows_of_fp4(a, grouped);
    return matrix_of(a.data, "a", grouped, shape, transposed);
}

Matrix matrix_of(const OperandArgument& operand, Element element, bool grouped, const Printed& shape, bool transposed) {
    if (operand.fp4) return rows_of_fp4(operand, grouped);
    if (operand.packed == nullptr) return matrix_of(operand.data, operand.name, grouped, shape, transposed);
    if (element == Element::e2m1r) return fp4_rows(operand, operand.name, grouped, transposed);
    require(!transposed, operand.name,
            " must have N before K, as functions whose names end with nt take it, where "
            "this GPU packs FP4 weights");
    return packed_matrix(operand, operand.name, grouped);
}

GemmCall start_call(const OperandArgument& a, const OperandArgument& b, Grouping grouping, bool fp32_scales) {
    GemmCall call{.device = device_id_of(a.data, "a")};
    Problem& p = call.problem;
    p.grouping = grouping;
    call.runs_on = &Device::get(call.device);
    const DeviceFacts& facts = call.runs_on->facts();
    p.arch = arch_of(facts);
    const bool integers = takes_integers(a, b), scaled = a.scaled() || b.packed != nullptr;
    if (integers)
        require(a.scaled() == b.scaled(), scaled ? b.name : "a", " must have scales, as ", scaled ? "a" : b.name,
                " has");
    else
        require_type(b.scales.has_value() == scaled, "a and b must both have scales, or neither of them");
    const DLDataType type_a = a.data.dtype(), type_b = b.data.dtype();
    const auto takes_fp4_a = [&](const Pair& pair) { return pair.is_of(p.arch) && pair.a == Element::e2m1r; };
    const bool fp4_a = std::ranges::any_of(kPairs, takes_fp4_a);
    require_type(!b.fp4 || fp4_a, "FP4 is multiplied by FP4 on Blackwell's SM100 only, but this is ", facts.target,
                 ": fp8_fp4 and bf16_fp4 functions multiply FP8 or BF16 by FP4 weights there");
    const Element element_a = fp4_a ? element_of(a, type_a) : element_of(type_a),
                  element_b = b.packed != nullptr ? weights_element(p.arch, element_a, b) : element_of(b, type_b);
    const Element sum = integers ? Element::s32 : b.packed != nullptr ? sum_of(element_a) : Element::fp32;
    require_type(find_target(facts, sum) != nullptr, kNoIntegers, facts.target);
    const auto fits = [&](const Pair& pair) {
        return pair.is_of(p.arch) && pair.sum == sum && pair.takes(scaled) && pair.serves(grouping) &&
               pair.of_packed_weights() == (b.packed != nullptr);
    };
    require_type(std::ranges::any_of(kPairs, fits), "there are no kernels for ", facts.target, " that add up in ",
                 dtype_name(sum), ", as this product of ", describe(type_a), " does; there are those of ",
                 products_text(p.arch));
    const auto fits_a = [&](const Pair& pair) { return fits(pair) && pair.a == element_a; };
    require_type(std::ranges::any_of(kPairs, fits_a), "a must be ", elements_of(&Pair::a, fits), ", but is ",
                 describe(type_a));
    const auto* pair =
        std::ranges::find_if(kPairs, [&](const Pair& each) { return fits_a(each) && each.b == element_b; });
    require_type(pair != std::end(kPairs), b.name, " must be ", elements_of(&Pair::b, fits_a), ", but is ",
                 describe(type_b));
    require_device(b.data, b.name, call.device, "a");
    if (scaled && (fp32_scales || prefers_fp32_scales(call.device, a, b))) {
        const Pair* const exact = find_pair(p.arch, element_a, element_b, Element::fp32);
        require(
            exact != nullptr || !fp32_scales,
            "disable_ue8m0_cast=True asks for a kernel that multiplies float32 scales as they are, of which there is "
            "none for ",
            name(element_a), " by ", name(element_b), " on ", facts.target,
            ": leave it out, and give scales that are powers of two, as the casts of deep_gemm.utils make them "
            "with use_ue8m0=True");
        if (exact != nullptr) pair = exact;
    }
    p.a = {.element = pair->a, .scaling = scaled ? pair->scalings_a[0] : kUnscaled};
    p.b = {.element = pair->b, .scaling = scaled ? pair->scalings_b[0] : kUnscaled};
    return call;
}

const Pair& pair_of(const Problem& problem) {
    const Pair* const pair = find_pair(problem.arch, problem.a.element, problem.b.element, problem.a.scaling.type);
    require_runtime(pair != nullptr, "a call of no pair of formats (a bug: please report it)");
    return *pair;
}

void check_output(GemmCall& call, const TensorView& d, const OptionalTensor& c, const Axes& axes, const char* shape) {
    Problem& p = call.problem;
    p.output = element_of(d.dtype());
    const std::span<const Element> outputs = pair_of(p).outputs;
    require_type(p.output != Element::none && lists(outputs, p.output), "d must be ",
                 ElementsText{{outputs.begin(), outputs.end()}}, ", but is ", describe(d.dtype()));
    require_sums_or_scales(p, d);
    require_device(d, "d", call.device, "a");
    call.d = matrix_of(d, "d", axes, shape);
    require(call.d.col_stride == 1, "d must have N contiguous, but its strides are ", describe_strides(d));
    require(call.d.row_stride >= call.d.cols || call.d.rows <= 1, "d's rows overlap: row stride ", call.d.row_stride,
            " is less than N=", call.d.cols);
    const int64_t size = bytes_of(p.output, 1);
    require(reinterpret_cast<uintptr_t>(call.d.data) % size == 0, "d must be aligned to its element size");
    p.aligned_store =
        reinterpret_cast<uintptr_t>(call.d.data) % kTmaAlignment == 0 &&
        call.d.row_stride * size % kTmaAlignment == 0 && call.d.group_stride * size % kTmaAlignment == 0 &&
        call.d.cols * size % kTmaAlignment == 0;  // seen on the H200: the engine clips stores at multiples of 16 bytes
    if (!c) return;
    require_type(c->dtype().code == d.dtype().code && c->dtype().bits == d.dtype().bits, "c must have d's dtype ",
                 describe(d.dtype()), ", but is ", describe(c->dtype()));
    require_device(*c, "c", call.device, "a");
    call.c = matrix_of(*c, "c", axes, shape);
    require(call.c.groups == call.d.groups && call.c.rows == call.d.rows && call.c.cols == call.d.cols,
            "c must have d's shape ", describe_shape(d), ", but has ", describe_shape(*c));
    require(call.c.col_stride == 1, "c must have N contiguous, but its strides are ", describe_strides(*c));
    p.add_c = 1;
    require_apart_or_same(d, *c);
    p.in_place = call.c.data == call.d.data;
}

void require_operands_apart(const TensorView& d, const OperandArgument& a, const OperandArgument& b) {
    require_apart(d, a.data, "a");
    require_apart(d, b.data, b.name);
    if (a.scales) require_apart(d, *a.scales, "a's scales");
    if (b.scales) require_apart(d, *b.scales, b.scales_name);
    if (b.sums() != nullptr) require_apart(d, *b.sums(), b.sums_name);
}

int64_t entry_k(Element lying, const Scaling& scaling) {
    return lying == Element::s32 && scaling.in_instruction() ? word_k(scaling) : scaling.k;
}

Scales check_scales(const TensorView& sf, const ScaledOperand& operand, const GemmCall& call, const Axes& axes) {
    const char* const name = operand.scales_name;
    const Element element = element_of(sf.dtype());
    check_scale_dtype(element, sf.dtype(), operand.scaling, name, call.problem.arch);
    require_device(sf, name, call.device, "a");
    const int64_t granularity = operand.row_granularity, k = entry_k(element, operand.scaling);
    require(element != Element::s32 || granularity == 1, "packed scales must be per row, but the recipe says one per ",
            granularity, " rows of ", operand.name);
    const int64_t scale_rows = (operand.rows + granularity - 1) / granularity, k_scales = (operand.k + k - 1) / k;
    const ScalesText wanted{
        axes, operand.groups, scale_rows, k_scales, {element, granularity, k, operand.scaling.type}, operand.name};
    const Matrix m = matrix_of(sf, name, axes, wanted);
    require(m.groups == operand.groups && m.rows == scale_rows && m.cols == k_scales, name, " must be ", wanted,
            ", but has shape ", describe_shape(sf));
    require(m.row_stride >= 0 && m.col_stride >= 0, name, " must not have negative strides, but has ",
            describe_strides(sf));
    return {.data = m.data,
            .element = element,
            .scaling = operand.scaling,
            .operand_rows = operand.rows,
            .row_granularity = static_cast<int32_t>(granularity),
            .groups = operand.groups,
            .rows = scale_rows,
            .k_scales = k_scales,
            .group_stride = axes.group < 0 ? 0 : sf.stride(axes.group),
            .row_stride = m.row_stride,
            .k_stride = m.col_stride,
            .bytes = m.bytes};
}

void check_lines(GemmCall& call, const char* name_b) {
    Problem& p = call.problem;
    const Pair& pair = pair_of(p);
    const bool spread = comes_spread(p.a.element, p.b.element);  // a copy is made where it must be: require_readable
    if (!spread) check_layout(call.a, p.a, pair.mn_major, "a", "M");
    check_layout(call.b, p.b, pair.mn_major, name_b, "N");
    p.row_alignment_a = spread ? kBestAlignment : row_alignment(call.a, p.a);
    p.row_alignment_b = row_alignment(call.b, p.b);
}

void set_scalings(Problem& problem, const Granularities& given) {
    const Pair& pair = pair_of(problem);
    problem.a.scaling = scaling_of(pair.scalings_a, given.a, "a");
    problem.b.scaling = scaling_of(pair.scalings_b, given.b, "b");
}

void check_scales(GemmCall& call, const OperandArgument& a, const OperandArgument& b, const Granularities& given,
                  const Axes& axes_a, const Axes& axes_b) {
    Problem& p = call.problem;
    Granularities shared = given;
    const bool words = element_of(b.scales->dtype()) == Element::s32 && p.b.scaling.in_instruction();
    if (shared.b.rows == kRowsByDefault) shared.b.rows = words ? 1 : kScaleBlockRows;
    set_scalings(p, shared);
    call.scales_a =
        check_scales(*a.scales, {"a", "a's scales", call.a.groups, p.m, p.k, p.a.scaling, shared.a.rows}, call, axes_a);
    call.scales_b =
        check_scales(*b.scales, {"b", "b's scales", call.b.groups, p.n, p.k, p.b.scaling, shared.b.rows}, call, axes_b);
    const auto packed = [](const Scales& s) { return s.scaling.in_instruction() && s.element != Element::s32; };
    p.packs_scales_a = packed(call.scales_a), p.packs_scales_b = packed(call.scales_b);
}

void check_operands(GemmCall& call, const OperandArgument& a, const OperandArgument& b, const Granularities& given,
                    const OperandLayout& layout) {
    if (b.packed != nullptr && call.problem.b.element == Element::e2m1r) return check_fp4_operands(call, a, b, layout);
    if (b.packed != nullptr) return check_packed_operands(call, a, b);
    Problem& p = call.problem;
    check_lines(call, b.name);
    if (takes_integers(a, b)) return check_integer_scales(call, a, b, given);
    if (!pair_of(p).scaled()) return;
    const auto axes = [](const OperandArgument& operand, const Matrix& matrix, bool transposed) {
        return last_axes(matrix.groups > 1 || operand.scales->ndim() == 3, transposed);
    };
    check_scales(call, a, b, given, axes(a, call.a, layout.a_transposed), axes(b, call.b, layout.b_transposed));
}

HeadSplits check_head_splits(std::span<const int64_t> splits) {
    require(splits.size() == 3, "head_splits must be three numbers of columns (left, mid, right), but are ",
            splits.size());
    for (const int64_t columns : splits)
        require(columns >= 0, "head_splits must not be negative, but one is ", columns);
    require(splits[0] < INT32_MAX / 4 && splits[2] < INT32_MAX / 4, "head_splits are too large");
    require(splits[0] + splits[2] > 0, "head_splits must leave columns to write, but left and right are 0");
    return {.left = to_int32(splits[0], "head_splits' left"),
            .skipped = to_int32(splits[1], "head_splits' mid"),
            .right = to_int32(splits[2], "head_splits' right")};
}

void check_dense_shapes(GemmCall& call, const OperandArgument& a, const OperandArgument& b, const TensorView& d,
                        const OptionalTensor& c, int64_t layout, const HeadSplits& heads) {
    const OperandLayout lying = operand_layout(layout);
    call.a = matrix_of_a(a, false, lying.a_transposed ? "[K, M]" : "[M, K]", lying.a_transposed);
    call.b = matrix_of(b, call.problem.b.element, false, lying.b_transposed ? "[K, N]" : "[N, K]", lying.b_transposed);
    const int64_t k = k_of(call.a, a);
    require(call.b.cols == k, b.name, " has K=", call.b.cols, " but a has K=", k);
    Problem& p = call.problem;
    p.m = to_int32(call.a.rows, "M"), p.n = to_int32(call.b.rows, "N"), p.k = to_int32(k, "K");
    check_output(call, d, c, last_axes(false), "[M, N]");
    const int32_t columns = to_int32(columns_of_d(p.n, heads), "d's number of columns");
    require(call.d.rows == p.m && call.d.cols == columns, "d must be [M, ", heads.any() ? "columns of all heads" : "N",
            "] = [", p.m, ", ", columns, "], but has shape ", describe_shape(d));
    if (heads.any()) p.heads = heads;
}

GemmCall check_dense(const OperandArgument& a, const OperandArgument& b, const TensorView& d, const OptionalTensor& c,
                     const Granularities& given, int64_t layout, const HeadSplits& heads) {
    GemmCall call = start_call(a, b, Grouping::dense, operand_layout(layout).fp32_scales);
    check_dense_shapes(call, a, b, d, c, layout, heads);
    Problem& p = call.problem;
    if (p.m == 0 || p.n == 0 || p.k == 0) return call;
    check_operands(call, a, b, given, operand_layout(layout));
    require_operands_apart(d, a, b);
    p.compiled = compiled_shape(p, layout);
    return call;
}

}  // namespace deep_gemm
