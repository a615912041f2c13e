#include "checks.hpp"

#include <algorithm>
#include <ostream>
#include <span>
#include <vector>

#include "../../config/products_text.hpp"
#include "../call/call_settings.hpp"
#include "../call/dtypes.hpp"
#include "../call/overlap.hpp"
#include "checks_fp4.hpp"
#include "checks_integer.hpp"
#include "checks_lines.hpp"
#include "checks_packed.hpp"
#include "checks_quantised.hpp"

namespace deep_gemm {
namespace {

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

bool have_scales_of(Element element, const OperandArgument& operand) {
    return operand.scales && element_of(operand.scales->dtype()) == element;
}

/// Whether all scales come as words of exponents: there is nothing to cast then, and nothing that a kernel of FP32
/// scales would multiply otherwise.
bool all_in_words(const OperandArgument& a, const OperandArgument& b) {
    return have_scales_of(Element::s32, a) && have_scales_of(Element::s32, b);
}

/// Whether scales of both operands are exponents, in words or bytes. Where FP32 ones are multiplied as they are, these
/// still enter the instruction.
bool have_exponents(const OperandArgument& a, const OperandArgument& b) {
    const auto has = [](const OperandArgument& each) {
        return have_scales_of(Element::s32, each) || have_scales_of(Element::ue8m0, each);
    };
    return has(a) && has(b);
}

/// Columns of a D that is written in heads.
int64_t columns_of_d(int64_t n, const HeadSplits& heads) {
    if (heads.written() == 0) return n;
    require(n % heads.written() == 0, "b must have N a multiple of the columns of a head, ", heads.left, " + ",
            heads.right, " of head_splits, got N=", n);
    return n + n / heads.written() * int64_t{heads.skipped};
}

}  // namespace

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
    require_type(!b.fp4 || fp4_a, "FP4 is multiplied by FP4 on Blackwell (SM100, SM120) only, but this is ",
                 facts.target, ": fp8_fp4 and bf16_fp4 functions multiply FP8 or BF16 by FP4 weights there");
    const bool casts_none = fp32_scales || CallSettings::of(call.device).prefers_fp32_scales();
    const bool exponents = scaled && have_exponents(a, b) && (!casts_none || all_in_words(a, b));
    const Element element_a = fp4_a ? element_of(a, type_a) : element_of(type_a),
                  element_b =
                      b.packed != nullptr ? weights_element(p.arch, element_a, b, exponents) : element_of(b, type_b);
    const Element sum = integers ? Element::s32 : b.packed != nullptr ? sum_of(element_a) : Element::fp32;
    require_type(find_target(facts, sum) != nullptr, kNoIntegers, facts.target);
    const auto fits = [&](const Pair& pair) {
        return pair.is_of(p.arch) && pair.sum == sum && pair.takes(scaled) && pair.serves(grouping) &&
               pair.of_packed_weights() == (b.packed != nullptr);
    };
    require_type(std::ranges::any_of(kPairs, fits), "there are no kernels for ", facts.target, " that add up in ",
                 dtype_name(sum), ", as this product of ", describe(type_a), " does; there are those of ",
                 Later{[&] { return products_text(p.arch); }});
    const auto fits_a = [&](const Pair& pair) { return fits(pair) && pair.a == element_a; };
    require_type(std::ranges::any_of(kPairs, fits_a), "a must be ", Later{[&] { return elements_of(&Pair::a, fits); }},
                 ", got ", describe(type_a));
    const auto* pair =
        std::ranges::find_if(kPairs, [&](const Pair& each) { return fits_a(each) && each.b == element_b; });
    require_type(pair != std::end(kPairs), b.name, " must be ", Later{[&] { return elements_of(&Pair::b, fits_a); }},
                 ", got ", describe(type_b));
    require_device(b.data, b.name, call.device, "a");
    if (const Pair* const by_exponents = find_pair(p.arch, element_a, element_b, Element::ue8m0);
        exponents && by_exponents != nullptr)
        pair = by_exponents;
    if (scaled && !all_in_words(a, b) && casts_none) {
        const Pair* const exact = find_pair(p.arch, element_a, element_b, Element::fp32);
        require(
            exact != nullptr || !fp32_scales || !(have_scales_of(Element::fp32, a) || have_scales_of(Element::fp32, b)),
            "disable_ue8m0_cast=True asks for a kernel that multiplies float32 scales as they are, of which there is "
            "none for ",
            name(element_a), " by ", name(element_b), " on ", facts.target,
            ": leave it out, and give scales that are powers of two, as the casts of deep_gemm.utils make them "
            "with use_ue8m0=True");
        if (exact != nullptr) pair = exact;
    }
    // Packed weights always have scales; tokens that have none say that exact sums of codes are wanted.
    const bool codes_only = sum == Element::s32 && !a.scaled();
    p.a = {.element = pair->a, .scaling = scaled && !codes_only ? pair->scalings_a[0] : kUnscaled};
    p.b = {.element = pair->b, .scaling = scaled && !codes_only ? pair->scalings_b[0] : kUnscaled};
    return call;
}

const Pair& pair_of(const Problem& problem) {
    const Pair* const pair = find_pair(problem.arch, problem.a.element, problem.b.element, problem.a.scaling.type);
    require_runtime(pair != nullptr, "a call of no pair of formats (a bug: please report it)");
    return *pair;
}

void check_output(GemmCall& call, const OutputArgument& d, const OptionalTensor& c, const Axes& axes,
                  const char* shape) {
    Problem& p = call.problem;
    const TensorView& data = d.data;
    p.output = element_of(data.dtype());
    const std::span<const Element> outputs = pair_of(p).outputs;
    if (d.scales)
        require_type(p.output == Element::e4m3 || p.output == Element::s8,
                     "d must be float8_e4m3fn or int8 where it has scales, got ", describe(data.dtype()));
    else
        require_type(p.output != Element::none && lists(outputs, p.output), "d must be ",
                     ElementsText{{outputs.begin(), outputs.end()}}, ", got ", describe(data.dtype()),
                     p.output == Element::e4m3 ? ": give its scales too, d=(q, s)" : "");
    require_sums_or_scales(p, data);
    require_device(data, "d", call.device, "a");
    call.d = matrix_of(data, "d", axes, shape);
    require(call.d.col_stride == 1, "d must have N contiguous, got strides ", describe_strides(data));
    require(call.d.row_stride >= call.d.cols || call.d.rows <= 1, "d's rows overlap: row stride ", call.d.row_stride,
            " is less than N=", call.d.cols);
    const int64_t size = bytes_of(p.output, 1);
    require(reinterpret_cast<uintptr_t>(call.d.data) % size == 0, "d must be aligned to its element size");
    p.aligned_store =
        reinterpret_cast<uintptr_t>(call.d.data) % kTmaAlignment == 0 &&
        call.d.row_stride * size % kTmaAlignment == 0 && call.d.group_stride * size % kTmaAlignment == 0 &&
        call.d.cols * size % kTmaAlignment == 0;  // seen on the H200: the engine clips stores at multiples of 16 bytes
    check_output_scales(call, d, axes);
    if (!c) return;
    require(!d.scales, "c must be None where d has scales");
    require_type(c->dtype().code == data.dtype().code && c->dtype().bits == data.dtype().bits, "c must have d's dtype ",
                 describe(data.dtype()), ", got ", describe(c->dtype()));
    require_device(*c, "c", call.device, "a");
    call.c = matrix_of(*c, "c", axes, shape);
    const bool gated = p.gate.any();
    require(!gated || (call.c.groups == call.d.groups && call.c.rows == call.d.rows && call.c.cols == p.n),
            "c must be ", shape, " with N=", p.n, ", which a gated activation's d has half of, got shape ",
            describe_shape(*c));
    require(gated || (call.c.groups == call.d.groups && call.c.rows == call.d.rows && call.c.cols == call.d.cols),
            "c must have d's shape ", describe_shape(data), ", got ", describe_shape(*c));
    require(call.c.col_stride == 1, "c must have N contiguous, got strides ", describe_strides(*c));
    p.add_c = 1;
    if (gated) return require_apart(data, *c, "c");
    require_apart_or_same(data, *c);
    p.in_place = call.c.data == call.d.data;
}

void require_operands_apart(const OutputArgument& d, const OperandArgument& a, const OperandArgument& b) {
    const auto require_each_apart = [&](const TensorView& written) {
        require_apart(written, a.data, "a");
        require_apart(written, b.data, b.name);
        if (a.scales) require_apart(written, *a.scales, "a's scales");
        if (b.scales) require_apart(written, *b.scales, b.scales_name);
        if (b.sums() != nullptr) require_apart(written, *b.sums(), b.sums_name);
    };
    require_each_apart(d.data);
    if (d.scales) require_each_apart(*d.scales);
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
    require(splits.size() == 3, "head_splits must be three numbers of columns (left, mid, right), got ", splits.size());
    for (const int64_t columns : splits)
        require(columns >= 0, "head_splits must not be negative, but one is ", columns);
    require(splits[0] < INT32_MAX / 4 && splits[2] < INT32_MAX / 4, "head_splits are too large");
    require(splits[0] + splits[2] > 0, "head_splits must leave columns to write, but left and right are 0");
    return {.left = to_int32(splits[0], "head_splits' left"),
            .skipped = to_int32(splits[1], "head_splits' mid"),
            .right = to_int32(splits[2], "head_splits' right")};
}

void check_dense_shapes(GemmCall& call, const OperandArgument& a, const OperandArgument& b, const OutputArgument& d,
                        const OptionalTensor& c, int64_t layout, const HeadSplits& heads, const GateRecord& gate) {
    const OperandLayout lying = operand_layout(layout);
    call.a = matrix_of_a(a, false, lying.a_transposed ? "[K, M]" : "[M, K]", lying.a_transposed);
    call.b = matrix_of(b, call.problem.b.element, false, lying.b_transposed ? "[K, N]" : "[N, K]", lying.b_transposed);
    const int64_t k = k_of(call.a, a);
    require(call.b.cols == k, b.name, " has K=", call.b.cols, " but a has K=", k);
    Problem& p = call.problem;
    p.m = to_int32(call.a.rows, "M"), p.n = to_int32(call.b.rows, "N"), p.k = to_int32(k, "K");
    check_gate(call, gate);
    check_output(call, d, c, last_axes(false), "[M, N]");
    const int32_t columns = to_int32(columns_of_d(p.gate.columns(p.n), heads), "d's number of columns");
    require(call.d.rows == p.m && call.d.cols == columns, "d must be [M, ",
            heads.any() ? "columns of all heads" : columns_name(p), "] = [", p.m, ", ", columns, "], got shape ",
            describe_shape(d.data));
    if (heads.any()) p.heads = heads;
}

GemmCall check_dense(const OperandArgument& a, const OperandArgument& b, const OutputArgument& d,
                     const OptionalTensor& c, const Granularities& given, int64_t layout, const HeadSplits& heads,
                     const GateRecord& gate) {
    GemmCall call = start_call(a, b, Grouping::dense, operand_layout(layout).fp32_scales);
    check_dense_shapes(call, a, b, d, c, layout, heads, gate);
    Problem& p = call.problem;
    if (p.m == 0 || p.n == 0 || p.k == 0) return call;
    check_operands(call, a, b, given, operand_layout(layout));
    require_gate_is_served(p);
    require_operands_apart(d, a, b);
    p.compiled = compiled_shape(p, layout);
    return call;
}

}  // namespace deep_gemm
