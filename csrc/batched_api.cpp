// What deep_gemm/batched.py calls: products of batches of matrices. Bindings only. Each returns false where K is 0: the
// caller makes D C or zero.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/string.h>

#include <iterator>

#include "api/batch_sum.hpp"
#include "api/checks_batched.hpp"
#include "api/gemm.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

using tvm::ffi::Array;
using tvm::ffi::Optional;
using tvm::ffi::String;

/// Expressions of batched products in the order of their numbers.
Array<String> batched_forms() {
    Array<String> expressions;
    for (const BatchedForm& form : kBatchedForms) expressions.push_back(String(form.expression));
    expressions.push_back(String(kBatchSum));
    return expressions;
}

const BatchedForm& form_of(int64_t number) {
    require(number >= 0 && number < std::ssize(kBatchedForms), "no expression has the number ", number);
    return kBatchedForms[number];
}

bool bf16_einsum(int64_t form, TensorView a, TensorView b, TensorView d, Optional<TensorView> c) {
    const std::optional<TensorView> added = ffi::to_optional(c);
    if (form == std::ssize(kBatchedForms)) {
        begin_cold_call();
        return run_batch_sum(check_batch_sum({a}, {b}, d, added));
    }
    const CallKey key(Grouping::batched, form, a, b, d, added);
    return run_gemm(key, [&] { return check_batched(form_of(form), {a}, {b}, d, added, {}); });
}

bool fp8_einsum(int64_t form, TensorView a, TensorView sfa, TensorView b, TensorView sfb, TensorView d,
                Optional<TensorView> c, Recipe recipe) {
    const std::optional<TensorView> added = ffi::to_optional(c);
    const Granularities rows = granularities_of(recipe, {}, {});
    const CallKey key(Grouping::batched, form, a, sfa, b, sfb, d, added, rows.a, rows.b);
    return run_gemm(key, [&] { return check_batched(form_of(form), {a, &sfa}, {b, &sfb}, d, added, rows); });
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(bf16_einsum, deep_gemm::bf16_einsum);
DEEP_GEMM_EXPORT(fp8_einsum, deep_gemm::fp8_einsum);
DEEP_GEMM_EXPORT(batched_forms, deep_gemm::batched_forms);
