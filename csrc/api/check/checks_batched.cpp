#include "checks_batched.hpp"

#include "../call/overlap.hpp"
#include "checks_grouped.hpp"
#include "checks_lines.hpp"

namespace deep_gemm {
namespace {

/// The letter of an expression's tensor, counted from its first one, that names a dimension.
char letter(const BatchedForm& form, size_t tensor, int axis) { return form.expression[tensor + axis]; }
constexpr size_t kLettersA = 0, kLettersB = 4, kLettersD = 9;

void require_same(const BatchedForm& form, int64_t first, const char* first_name, int64_t second,
                  const char* second_name, char dimension) {
    require(first == second, form.expression, ": ", second_name, " has ", dimension, "=", second, " but ", first_name,
            " has ", dimension, "=", first);
}

}  // namespace

GemmCall check_batched(const BatchedForm& form, const OperandArgument& a, const OperandArgument& b,
                       const OutputArgument& d, const OptionalTensor& c, const Granularities& given,
                       const GateRecord& gate) {
    GemmCall call = start_call(a, b, Grouping::batched);
    call.a = matrix_of(a.data, "a", form.a, form.shape_a);
    call.b = matrix_of(b.data, "b", form.b, form.shape_b);
    require_same(form, call.a.groups, "a", call.b.groups, "b", letter(form, kLettersA, form.a.group));
    require_same(form, call.a.cols, "a", call.b.cols, "b", letter(form, kLettersA, form.a.col));
    Problem& p = call.problem;
    p.m = to_int32(call.a.rows, "M"), p.n = to_int32(call.b.rows, "N"), p.k = to_int32(call.a.cols, "K");
    p.num_groups = to_int32(call.a.groups, "the number of matrices");
    check_gate(call, gate);
    check_output(call, d, c, form.d, form.shape_d);
    require_same(form, call.a.groups, "a", call.d.groups, "d", letter(form, kLettersD, form.d.group));
    require_same(form, call.a.rows, "a", call.d.rows, "d", letter(form, kLettersD, form.d.row));
    const char columns = letter(form, kLettersD, form.d.col);
    if (p.gate.any())
        require(call.d.cols == p.gate.columns(p.n), form.expression, ": d must have ", columns, "=",
                p.gate.columns(p.n), ", half of b's for a gated activation, got ", call.d.cols);
    else
        require_same(form, call.b.rows, "b", call.d.cols, "d", columns);
    require_disjoint_groups(call.d, "d");
    require_operands_apart(d, a, b);
    if (p.m == 0 || p.n == 0 || p.k == 0 || p.num_groups == 0) return call;
    check_lines(call);
    p.compiled = compiled_shape(p, form.compiled_dims);
    if (pair_of(p).scaled()) check_scales(call, a, b, given, form.a, form.b);
    require_gate_is_served(p);
    return call;
}

GemmCall check_batch_sum(const OperandArgument& a, const OperandArgument& b, const TensorView& d,
                         const OptionalTensor& c) {
    GemmCall call = start_call(a, b, Grouping::batch_sum);
    call.a = matrix_of(a.data, "a", true, "[b, m, k]");
    call.b = matrix_of(b.data, "b", true, "[b, n, k]");
    require(call.b.groups == call.a.groups, kBatchSum, ": b has b=", call.b.groups, " but a has b=", call.a.groups);
    require(call.b.cols == call.a.cols, kBatchSum, ": b has k=", call.b.cols, " but a has k=", call.a.cols);
    Problem& p = call.problem;
    p.m = to_int32(call.a.rows, "m"), p.n = to_int32(call.b.rows, "n");
    p.k = to_int32(call.a.groups * round_up(call.a.cols, kScaleGroupK), "k of all matrices");
    check_output(call, d, c, last_axes(false), "[m, n]");
    require(call.d.rows == p.m && call.d.cols == p.n, "d must be [m, n] = [", p.m, ", ", p.n, "], got shape ",
            describe_shape(d));
    require_operands_apart(d, a, b);
    if (p.m == 0 || p.n == 0 || p.k == 0) return call;
    check_lines(call);
    p.compiled = compiled_shape(p, kCompileM | kCompileN);
    return call;
}

}  // namespace deep_gemm
