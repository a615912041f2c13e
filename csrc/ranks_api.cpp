// How a MoE layer's tokens travel between ranks, as deep_gemm/mega_moe_ranks.py calls it.
#include "ranks/call.hpp"

namespace deep_gemm {
namespace {

bool run_choices(const ffi::Given& given) { return exchange_choices(read<ChoicesRecord>(given)), true; }
bool run_pull(const ffi::Given& given) { return pull_rows(read<PullRecord>(given)), true; }
bool run_push(const ffi::Given& given) { return push_rows(read<PushRecord>(given)), true; }
bool run_results(const ffi::Given& given) { return combine_results(read<ResultsRecord>(given)), true; }

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(exchange_choices, deep_gemm::run_choices);
DEEP_GEMM_EXPORT(exchange_choices_fields, deep_gemm::names_of<deep_gemm::ChoicesRecord>);
DEEP_GEMM_EXPORT(pull_rows, deep_gemm::run_pull);
DEEP_GEMM_EXPORT(pull_rows_fields, deep_gemm::names_of<deep_gemm::PullRecord>);
DEEP_GEMM_EXPORT(push_rows, deep_gemm::run_push);
DEEP_GEMM_EXPORT(push_rows_fields, deep_gemm::names_of<deep_gemm::PushRecord>);
DEEP_GEMM_EXPORT(combine_results, deep_gemm::run_results);
DEEP_GEMM_EXPORT(combine_results_fields, deep_gemm::names_of<deep_gemm::ResultsRecord>);
