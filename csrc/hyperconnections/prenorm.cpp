#include "prenorm.hpp"

#include <algorithm>
#include <array>

#include "../api/call/call_settings.hpp"
#include "../api/call/dtypes.hpp"
#include "../api/call/kernel_cache.hpp"
#include "../api/call/lender.hpp"
#include "../api/call/tensors.hpp"
#include "../api/run/params.hpp"
#include "plan.hpp"

namespace deep_gemm {
namespace {

constexpr int64_t kAlignment = 16;

/// A row of B, so that the copy engine's and the vectors' alignment holds.
void check_operand(const TensorView& operand, const char* name, Element element, const TensorView& a) {
    require_type(element_of(operand.dtype()) == element, name, " must be ", dtype_name(element), ", got ",
                 describe(operand.dtype()));
    require_device(operand, name, device_id_of(a, "a"), "a");
    const int64_t stride_bytes = operand.ndim() == 2 ? bytes_of(element, operand.stride(0)) : 0;
    require(operand.ndim() == 2 && operand.stride(1) == 1 && (operand.size(0) <= 1 || stride_bytes % kAlignment == 0) &&
                reinterpret_cast<uintptr_t>(operand.data()) % kAlignment == 0,
            name, " must be [rows, K] with K contiguous and rows at multiples of 16 bytes, got shape ",
            describe_shape(operand), " and strides ", describe_strides(operand));
}

void check_operands(const TensorView& a, const TensorView& b) {
    check_operand(a, "a", Element::bf16, a), check_operand(b, "b", Element::fp32, a);
    require(a.size(1) == b.size(1), "b has K=", b.size(1), " but a has K=", a.size(1));
    require(a.size(1) % kPrenormBlockK == 0, "K must be a multiple of 64, got ", a.size(1));
    require(b.size(0) <= kPrenormMaxN, "N must be at most 128, got ", b.size(0));
}

/// FP32 of the shape that is wanted, splits in front where there are some.
void check_result(const TensorView& result, const char* name, int64_t splits, std::initializer_list<int64_t> sizes,
                  DeviceId device) {
    require_type(element_of(result.dtype()) == Element::fp32, name, " must be float32, got ", describe(result.dtype()));
    require_device(result, name, device, "a");
    const int first = splits > 0 ? 1 : 0;
    bool right = result.ndim() == first + static_cast<int>(sizes.size()) && (first == 0 || result.size(0) == splits);
    for (int i = 0; right && i < static_cast<int>(sizes.size()); ++i)
        right = result.size(first + i) == sizes.begin()[i];
    require(right && (result.size(result.ndim() - 1) <= 1 || result.stride(result.ndim() - 1) == 1), name, " must be ",
            splits > 0 ? "[splits, M" : "[M", sizes.size() > 1 ? ", N]" : "]", " of M=", sizes.begin()[0],
            " with its last dimension contiguous, got shape ", describe_shape(result), " and strides ",
            describe_strides(result));
}

/// [rows, K] in boxes of a block of K.
TensorMapSpec boxes_of(const TensorView& operand, Element element, int32_t rows, TensorMapSwizzle swizzle) {
    const auto stride =
        static_cast<uint64_t>(bytes_of(element, operand.size(0) > 1 ? operand.stride(0) : operand.size(1)));
    return {.address = operand.data(),
            .type = facts(element).map_type,
            .rank = 3,
            .sizes = {static_cast<uint64_t>(operand.size(1)), static_cast<uint64_t>(operand.size(0)), 1},
            .strides_bytes = {stride, stride * static_cast<uint64_t>(operand.size(0))},
            .box = {kPrenormBlockK, static_cast<uint32_t>(rows), 1},
            .swizzle = swizzle};
}

/// Those of the last calls of a thread are kept: weighing all takes longer than a call.
PrenormPlan plan_of(const TensorView& a, const TensorView& b, int32_t splits, const Device& device) {
    const PrenormProblem problem{
        .m = to_int32(a.size(0), "M"), .n = to_int32(b.size(0), "N"), .k = to_int32(a.size(1), "K"), .splits = splits};
    const int32_t sms = CallSettings::of(device.id()).allowed_sms(device.facts());
    // The simulator may become another GPU, and a recorder ends with its recording.
    if (device.id().simulated || device.id().recorded) return plan_prenorm(problem, sms, device.facts());
    struct Known {
        const Device* device = nullptr;
        PrenormProblem problem{};
        int32_t sms = 0;
        int64_t forced = 0;
        PrenormPlan plan;
    };
    constexpr size_t kKept = 16;
    thread_local std::array<Known, kKept> kept;
    Known& known = kept[static_cast<size_t>(problem.m) % kKept];
    const int64_t forced = forced_prenorm_plans();
    if (known.device != &device || known.problem != problem || known.sms != sms || known.forced != forced)
        known = {&device, problem, sms, forced, plan_prenorm(problem, sms, device.facts())};
    return known.plan;
}

}  // namespace

void prenorm_gemm(const TensorView& a, const TensorView& b, const TensorView& d, const TensorView& squares) {
    check_operands(a, b);
    const DeviceId id = device_id_of(a, "a");
    const int64_t m = a.size(0), n = b.size(0), splits = d.ndim() == 3 ? d.size(0) : 0;
    require(d.ndim() != 3 || splits > 0, "d must have at least one split, got shape ", describe_shape(d));
    check_result(d, "d", splits, {m, n}, id), check_result(squares, "sqr_sum", splits, {m}, id);
    if (m == 0) return;
    require(n > 0, "b must have rows, got shape ", describe_shape(b));
    Device& device = Device::get(id);
    const auto parts = static_cast<int32_t>(std::max<int64_t>(splits, 1));
    const PrenormPlan p = plan_of(a, b, parts, device);
    const int first = splits > 0 ? 1 : 0;
    PrenormParams params{.a = reinterpret_cast<const uint8_t*>(a.data()),
                         .b = reinterpret_cast<const float*>(b.data()),
                         .d = reinterpret_cast<float*>(d.data()),
                         .squares = reinterpret_cast<float*>(squares.data()),
                         .a_stride_bytes = a.stride(0) * 2,
                         .b_stride = b.stride(0),
                         .d_stride = d.stride(first),
                         .d_split_stride = splits > 0 ? d.stride(0) : 0,
                         .squares_split_stride = splits > 0 ? squares.stride(0) : 0,
                         .m = to_int32(m, "M"),
                         .n = to_int32(n, "N"),
                         .k = to_int32(a.size(1), "K"),
                         .splits = parts,
                         .col_blocks = p.col_blocks,
                         .a_boxes = {},
                         .b_boxes = {}};
    if (std::holds_alternative<sm90::PrenormConfig>(p.config)) {
        encode(device, false, boxes_of(a, Element::bf16, p.rows, TensorMapSwizzle::bytes_128), params.a_boxes);
        encode(device, false, boxes_of(b, Element::fp32, p.cols, TensorMapSwizzle::none), params.b_boxes);
    }
    const Extent extents[] = {{a.data(), extent_bytes(a), "a", false},
                              {b.data(), extent_bytes(b), "b", false},
                              {d.data(), extent_bytes(d), "d", true},
                              {squares.data(), extent_bytes(squares), "sqr_sum", true}};
    const int64_t ctas = int64_t{p.row_blocks} * p.col_blocks * parts * p.cluster;
    require(ctas < (int64_t{1} << 31), "the product needs ", ctas, " blocks, more than a grid holds");
    const LaunchShape shape{.grid = static_cast<uint32_t>(ctas),
                            .block = static_cast<uint32_t>(p.threads),
                            .cluster = static_cast<uint32_t>(p.cluster),
                            .smem_bytes = static_cast<uint32_t>(p.smem_bytes)};
    const Kernel& kernel = std::visit(
        [&](const auto& c) -> const Kernel& {
            return cached_kernel(device, c, shape.smem_bytes, [&] { return render_prenorm(c); });
        },
        p.config);
    device.launch(kernel, may_start_early(shape, device), &params, sizeof(params), current_stream(id), extents);
}

int64_t prenorm_splits(const TensorView& a, const TensorView& b) {
    check_operands(a, b);
    const DeviceId id = device_id_of(a, "a");
    const Device& device = Device::get(id);
    if (a.size(0) == 0 || b.size(0) == 0 || facts(arch_of(device.facts())).clusters) return 1;
    const PrenormPlan p = plan_of(a, b, 1, device);
    const int64_t blocks = a.size(1) / kPrenormBlockK,
                  idle = CallSettings::of(id).allowed_sms(device.facts()) / (int64_t{p.row_blocks} * p.col_blocks);
    // A split of fewer blocks than its warps take at once is not worth its sums.
    const int64_t kMinBlocks = int64_t{p.threads / 32} * kPrenormChunkK / kPrenormBlockK;
    return std::max<int64_t>(1, std::min(idle, blocks / kMinBlocks));
}

}  // namespace deep_gemm
