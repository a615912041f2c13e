// A MoE layer's products in one launch, and what hands tokens over, as deep_gemm/mega_moe.py calls them.
#include "moe/layer.hpp"
#include "moe/pre_dispatch.hpp"

namespace deep_gemm {
namespace {

bool run_pre_dispatch(const ffi::Given& given) { return pre_dispatch(read<PreDispatchRecord>(given)), true; }
bool run_layer(const ffi::Given& given) { return run_moe_layer(read<MoeLayerRecord>(given)), true; }
bool run_layer_of_ranks(const ffi::Given& given) { return run_moe_layer(read<MoeLayerOfRanksRecord>(given)), true; }

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(pre_dispatch, deep_gemm::run_pre_dispatch);
DEEP_GEMM_EXPORT(pre_dispatch_fields, deep_gemm::names_of<deep_gemm::PreDispatchRecord>);
DEEP_GEMM_EXPORT(moe_layer, deep_gemm::run_layer);
DEEP_GEMM_EXPORT(moe_layer_fields, deep_gemm::names_of<deep_gemm::MoeLayerRecord>);
DEEP_GEMM_EXPORT(moe_layer_of_ranks, deep_gemm::run_layer_of_ranks);
DEEP_GEMM_EXPORT(moe_layer_of_ranks_fields, deep_gemm::names_of<deep_gemm::MoeLayerOfRanksRecord>);
