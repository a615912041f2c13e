#include "metadata.hpp"

#include <deep_gemm/kernels/mqa_logits_metadata_params.cuh>

#include "../api/call/kernel_table.hpp"
#include "../api/call/lender.hpp"
#include "../api/call/tensors.hpp"

namespace deep_gemm {
namespace {

jit::KernelSource render() {
    return {.name = "paged_mqa_logits_metadata",
            .text =
                "#include <deep_gemm/kernels/mqa_logits_metadata.cuh>\n\nusing namespace deep_gemm;\n\n"
                "extern \"C\" __global__ void __launch_bounds__(kLogitsMetadataThreads)\n"
                "paged_mqa_logits_metadata(const __grid_constant__ LogitsMetadataParams params) {\n"
                "    run_mqa_logits_metadata(params);\n}\n"};
}

}  // namespace

void make_logits_metadata(const TensorView& lengths, const TensorView& starts) {
    const DeviceId id = device_id_of(lengths, "context_lens");
    require_type(is_int32(lengths.dtype()) && is_int32(starts.dtype()), "context_lens must be int32, got ",
                 describe(lengths.dtype()));
    require_device(starts, "the metadata", id, "context_lens");
    require(lengths.ndim() == 1 || (lengths.ndim() == 2 && lengths.size(1) > 0),
            "context_lens must be [requests, next_n] or [requests], but has shape ", describe_shape(lengths));
    require(starts.ndim() == 2 && starts.size(0) > 1 && starts.size(1) == 2 && starts.stride(0) == 2,
            "the metadata must be contiguous [SMs + 1, 2], but has shape ", describe_shape(starts));
    const bool of_rows = lengths.ndim() == 2;
    const auto* const first = reinterpret_cast<const int32_t*>(lengths.data());
    const LogitsMetadataParams params{.lengths = of_rows ? first + (lengths.size(1) - 1) * lengths.stride(1) : first,
                                      .starts = reinterpret_cast<int32_t*>(starts.data()),
                                      .requests = to_int32(lengths.size(0), "the number of requests"),
                                      .length_stride = to_int32(lengths.stride(0), "the stride of context_lens"),
                                      .sms = to_int32(starts.size(0) - 1, "the number of SMs")};
    const Extent extents[] = {{lengths.data(), extent_bytes(lengths), "context_lens", false},
                              {starts.data(), extent_bytes(starts), "the metadata", true}};
    static KernelTable<1> table;
    table.launch(Device::get(id), 0, render, {1, kLogitsMetadataThreads, "lengths of requests"}, params, extents,
                 current_stream(id));
}

}  // namespace deep_gemm
