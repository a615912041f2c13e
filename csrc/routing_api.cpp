// Routing kernels, as deep_gemm/_routing.py calls them. Results are allocated there.
#include "routing/call.hpp"

namespace deep_gemm {
namespace {

bool run_route(const ffi::Given& given) { return route(read<RouteRecord>(given)), true; }
bool run_gather(const ffi::Given& given) { return gather_rows(read<GatherRecord>(given)), true; }
bool run_combine(const ffi::Given& given) { return combine_rows(read<CombineRecord>(given)), true; }

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(route, deep_gemm::run_route);
DEEP_GEMM_EXPORT(route_fields, deep_gemm::names_of<deep_gemm::RouteRecord>);
DEEP_GEMM_EXPORT(gather_rows, deep_gemm::run_gather);
DEEP_GEMM_EXPORT(gather_rows_fields, deep_gemm::names_of<deep_gemm::GatherRecord>);
DEEP_GEMM_EXPORT(combine_rows, deep_gemm::run_combine);
DEEP_GEMM_EXPORT(combine_rows_fields, deep_gemm::names_of<deep_gemm::CombineRecord>);
