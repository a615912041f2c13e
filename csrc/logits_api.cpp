// Index logits, as deep_gemm/logits.py calls them. Results are allocated there; here they are checked and filled.
#include "logits/check.hpp"
#include "logits/metadata.hpp"
#include "logits/plan.hpp"
#include "logits/run.hpp"

namespace deep_gemm {
namespace {

bool run_dense(const ffi::Given& given) { return run_logits(check_logits(read<DenseLogitsRecord>(given))), true; }
bool run_paged(const ffi::Given& given) { return run_logits(check_logits(read<PagedLogitsRecord>(given))), true; }

/// The kernel of calls with these fields: {name, text, threads, smem_bytes, rows}, rows that a CTA has at once. Needs
/// no device.
Object logits_kernel(const Object& fields, const std::string& target) {
    LogitsCall call;
    call.element = Element::e4m3, call.weights = Element::fp32, call.logits = Element::fp32;
    for (const auto& [name, value] : fields) {
        const int64_t* const number = std::get_if<int64_t>(&value);
        require_type(number != nullptr, name, " must be an integer");
        const int32_t extent = to_int32(*number, name.c_str());
        if (name == "heads")
            call.heads = extent;
        else if (name == "d")
            call.d = extent;
        else if (name == "rows")
            call.rows = call.rows_per_request = extent;
        else if (name == "block_kv")
            call.paged = extent > 0, call.block_keys = extent > 0 ? extent : kLogitsTile;
        else if (name == "exponents")
            call.exponents = extent != 0;
        else if (name == "fp4")
            call.element = extent != 0 ? Element::e2m1r : Element::e4m3;
        else if (name == "bf16_weights")
            call.weights = extent != 0 ? Element::bf16 : Element::fp32;
        else if (name == "bf16_logits")
            call.logits = extent != 0 ? Element::bf16 : Element::fp32;
        else
            fail(ErrorKind::value, "index logits have no field ", name);
    }
    require_kinds(call);
    require(call.rows > 0, "rows must be positive, got ", call.rows);
    const TargetRow* const found = find_target(target);
    require(found != nullptr, "there are kernels for ", Later{targets_text}, ", not for ", target);
    const LogitsPlan plan = plan_logits(call, *found);
    const jit::KernelSource source = render_logits(plan);
    return {{"name", source.name},
            {"text", source.text},
            {"threads", int64_t{plan.threads}},
            {"smem_bytes", int64_t{plan.smem_bytes}},
            {"rows", int64_t{plan.config.cta_rows()}}};
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(mqa_logits, deep_gemm::run_dense);
DEEP_GEMM_EXPORT(mqa_logits_fields, deep_gemm::names_of<deep_gemm::DenseLogitsRecord>);
DEEP_GEMM_EXPORT(paged_mqa_logits, deep_gemm::run_paged);
DEEP_GEMM_EXPORT(paged_mqa_logits_fields, deep_gemm::names_of<deep_gemm::PagedLogitsRecord>);
DEEP_GEMM_EXPORT(paged_mqa_logits_metadata, deep_gemm::make_logits_metadata);
DEEP_GEMM_EXPORT(force_logits_plan, deep_gemm::force_logits_plan);
DEEP_GEMM_EXPORT(logits_kernel, deep_gemm::logits_kernel);
