#include "call.hpp"

#include "../api/call/call_settings.hpp"
#include "../api/call/dtypes.hpp"
#include "../api/call/kernel_cache.hpp"
#include "../api/call/lender.hpp"

namespace deep_gemm {
namespace {

constexpr int32_t kBlocksOfSm = 4;  // that are surely there together

jit::KernelSource render(const char* kernel, const char* params, const char* threads) {
    return {.name = kernel,
            .text = concat("#include <deep_gemm/kernels/", kernel, ".cuh>\n\nusing namespace deep_gemm;\n\n",
                           "extern \"C\" __global__ void __launch_bounds__(", threads, ")\n", kernel,
                           "(const __grid_constant__ ", params, " params) {\n    run_", kernel, "(params);\n}\n")};
}

/// A launch of one of these kernels.
class Call {
public:
    Call(const GroupRecord& group, const TensorView& tensor, const char* name)
        : id_(device_id_of(tensor, name)), device_(Device::get(id_)), like_(name) {
        ranks = ranks_of(group, id_, like_, extents_);
    }

    /// What the kernel may touch.
    template <typename Type>
    Type* data(const TensorView& tensor, const char* name, Element element, bool writable) {
        require_type(element_of(tensor.dtype()) == element, name, " must be ", dtype_name(element), ", got ",
                     describe(tensor.dtype()));
        require_device(tensor, name, id_, like_);
        extents_.push_back({tensor.data(), extent_bytes(tensor), name, writable});
        return reinterpret_cast<Type*>(tensor.data());
    }

    void fill(TravelParams& p, const TravelRecord& record, int64_t hidden) {
        p.source = data<int32_t>(record.source, "source", Element::s32, false);
        p.rows = to_int32(record.source.size(0), "rows"), p.hidden = to_int32(hidden, "hidden");
        p.first_token = to_int32(record.first_token, "first_token"), p.room = to_int32(record.room, "tokens");
        p.choices = to_int32(record.choices, "choices");
    }

    int32_t sms() const { return CallSettings::of(id_).allowed_sms(device_.facts()); }

    /// `together`: blocks, or other ranks, are waited for.
    template <typename Params>
    void launch(const char* kernel, const char* params_name, Params& params, int32_t blocks, uint32_t threads,
                const char* threads_name, bool together) {
        params.ranks = ranks;
        const Kernel& loaded = cached_kernel(device_, std::string_view(kernel), 0,
                                             [&] { return render(kernel, params_name, threads_name); });
        const LaunchShape shape{.grid = static_cast<uint32_t>(blocks), .block = threads, .cooperative = together};
        device_.launch(loaded, together ? shape : may_start_early(shape, device_), &params, sizeof(params),
                       current_stream(id_), extents_);
    }

    Ranks ranks{};

private:
    DeviceId id_;
    Device& device_;
    const char* like_;
    std::vector<Extent> extents_;
};

int32_t blocks_for(int64_t work, int64_t of_block, int32_t most) {
    return static_cast<int32_t>(std::clamp<int64_t>((work + of_block - 1) / of_block, 1, most));
}

}  // namespace

void exchange_choices(const ChoicesRecord& record) {
    const TensorView& ids = record.ids;
    Call call(record, ids, "ids");
    require(ids.ndim() == 2 && ids.size(0) % call.ranks.count == 0, "ids must be [tokens of ", call.ranks.count,
            " ranks, choices], got shape ", describe_shape(ids));
    ChoicesParams p{};
    p.ids = call.data<int32_t>(ids, "ids", Element::s32, true);
    p.row_weights = call.data<float>(record.row_weights, "row_weights", Element::fp32, true);
    p.tokens = to_int32(record.tokens, "tokens"), p.bound = to_int32(record.bound, "bound");
    p.first_token = to_int32(record.first_token, "first_token"), p.experts = to_int32(record.experts, "experts");
    p.room = to_int32(ids.size(0) / call.ranks.count, "tokens"), p.choices = to_int32(ids.size(1), "choices");
    const int32_t each = std::max(call.sms() / call.ranks.count, 1);
    const int32_t blocks = blocks_for(int64_t{p.room} * p.choices, 4 * kRankThreads, each) * call.ranks.count;
    call.launch("exchange_choices", "ChoicesParams", p, blocks, kRankThreads, "kRankThreads", true);
}

void pull_rows(const PullRecord& record) {
    Call call(record, record.source, "source");
    PullParams p{};
    call.fill(p, record, record.out.size(1));
    p.out = call.data<uint8_t>(record.out, "out", Element::e4m3, true);
    p.out_scales = call.data<float>(record.out_scales, "out's scales", Element::fp32, true);
    p.out_s_row_stride = record.out_scales.stride(0), p.out_s_k_stride = record.out_scales.stride(1);
    const int32_t blocks = blocks_for(p.rows, kRankWarps, kBlocksOfSm * call.sms());
    call.launch("pull_rows", "PullParams", p, blocks, kRankThreads, "kRankThreads", false);
}

void push_rows(const PushRecord& record) {
    Call call(record, record.source, "source");
    PushParams p{};
    call.fill(p, record, record.down.size(1));
    p.down = call.data<const uint8_t>(record.down, "down", Element::bf16, false);
    const int32_t blocks = blocks_for(p.rows, kRankWarps, kBlocksOfSm * call.sms());
    call.launch("push_rows", "PushParams", p, blocks, kRankThreads, "kRankThreads", false);
}

void combine_results(const ResultsRecord& record) {
    const TensorView& out = record.out;
    Call call(record, out, "out");
    ResultsParams p{};
    p.out = call.data<uint8_t>(out, "out", Element::bf16, true);
    p.out_row_stride = out.stride(0) * 2, p.tokens = to_int32(out.size(0), "tokens");
    p.choices = to_int32(record.choices, "choices"), p.hidden = to_int32(out.size(1), "hidden");
    p.num_experts = to_int32(record.num_experts, "num_experts");
    p.column_blocks = ceil_div(p.hidden, kResultColumns);
    const int32_t blocks = blocks_for(int64_t{p.tokens} * p.column_blocks, 1, kBlocksOfSm * call.sms());
    call.launch("combine_results", "ResultsParams", p, blocks, kResultThreads, "kResultThreads", true);
}

}  // namespace deep_gemm
