// Products: one export, which takes a call's record by named fields (api/call/product_record.hpp), and what Python
// needs to know of it. Bindings only.
#include <string>

#include "api/call/call_cache.hpp"
#include "api/call/product_record.hpp"
#include "api/check/checks_batched.hpp"
#include "api/check/checks_integer.hpp"
#include "api/check/recipe.hpp"
#include "api/prepare/row_sums.hpp"
#include "api/run/product.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

bool product(const ffi::Given& given) { return run_product(named<ProductRecord>(given)); }

/// What the call would be known by: for tests.
ffi::Bytes product_key(const ffi::Given& given) {
    const CallKey key(named<ProductRecord>(given));
    require(key.complete(), "nothing knows this call again: it says too much, or something of another kind");
    const auto bytes = std::as_bytes(key.words());
    return {std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
}

/// Sums of the rows of [N, K] or [G, N, K], which callers keep: int32, or float32 times scales of groups of K.
void int8_row_sums(const TensorView& b, const OptionalTensor& scales, const TensorView& sums, const Recipe& recipe) {
    const RowsToSum rows = check_rows_to_sum(b, scales, granularities_of(recipe));
    make_row_sums(Device::get(rows.device), rows.b, rows.scales ? &*rows.scales : nullptr, sums.data(),
                  current_stream(rows.device));
}

/// Expressions of batched products in the order of their numbers, one a word.
std::string batched_forms() {
    std::string expressions;
    for (const BatchedForm& form : kBatchedForms) expressions += std::string(form.expression) + " ";
    return expressions + kBatchSum;
}

/// The element table's names in the order of their numbers, one a word.
std::string element_names() {
    std::string names;
    for (int32_t i = 0; i < kElementCount; ++i) names += std::string(facts(static_cast<Element>(i)).name) + " ";
    return names;
}

/// Kinds of gated activations, likewise.
std::string gate_kinds() {
    std::string names;
    for (const std::string_view kind : kGateKinds) names += std::string(kind) + " ";
    return names;
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(product, deep_gemm::product);
DEEP_GEMM_EXPORT(product_key, deep_gemm::product_key);
DEEP_GEMM_EXPORT(product_fields, deep_gemm::names_of<deep_gemm::ProductRecord>);
DEEP_GEMM_EXPORT(batched_forms, deep_gemm::batched_forms);
DEEP_GEMM_EXPORT(int8_row_sums, deep_gemm::int8_row_sums);
DEEP_GEMM_EXPORT(element_names, deep_gemm::element_names);
DEEP_GEMM_EXPORT(gate_kinds, deep_gemm::gate_kinds);
