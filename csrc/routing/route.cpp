#include <algorithm>
#include <bit>

#include "../api/call/call_settings.hpp"
#include "../api/call/dtypes.hpp"
#include "../api/call/kernel_cache.hpp"
#include "../api/call/lender.hpp"
#include "../api/call/workspace.hpp"
#include "call.hpp"

namespace deep_gemm {
namespace {

const char* text(bool value) { return value ? "true" : "false"; }

jit::KernelSource render(const RouteConfig& c, const char* kernel) {
    return {
        .name = kernel,
        .text = concat("#include <deep_gemm/kernels/", kernel, ".cuh>\n\nusing namespace deep_gemm;\n\n",
                       "constexpr RouteConfig kConfig{.experts = ", c.experts, ", .wide_ids = ", text(c.wide_ids),
                       ", .masked = ", text(c.masked), ", .indices = ", text(c.indices),
                       ", .weights = ", text(c.weights), ", .one_block = ", text(c.one_block), "};\n\n",
                       "extern \"C\" __global__ void __launch_bounds__(kRouteThreads)\n", kernel,
                       "(const __grid_constant__ RouteParams params) {\n    run_", kernel, "<kConfig>(params);\n}\n")};
}

int64_t count_of(const TensorView& tensor) {
    int64_t count = 1;
    for (int i = 0; i < tensor.ndim(); ++i) count *= tensor.size(i);
    return count;
}

void require_contiguous(const TensorView& tensor, const char* name) {
    if (count_of(tensor) == 0) return;
    int64_t elements = 1;
    for (int i = tensor.ndim() - 1; i >= 0; --i) {
        require(tensor.size(i) <= 1 || tensor.stride(i) == elements, name, " must be contiguous, got strides ",
                describe_strides(tensor));
        elements *= tensor.size(i);
    }
}

void check_numbers(const TensorView& tensor, const char* name, DeviceId device, Element wanted, int64_t count) {
    require_type(element_of(tensor.dtype()) == wanted, name, " must be ", dtype_name(wanted), ", got ",
                 describe(tensor.dtype()));
    require_device(tensor, name, device, "ids");
    require(count_of(tensor) == count, name, " must have ", count, " elements, got shape ", describe_shape(tensor));
    require_contiguous(tensor, name);
}

}  // namespace

void route(const RouteRecord& t) {
    const bool masked = t.masked;
    const int64_t alignment = t.alignment;
    const DeviceId device_id = device_id_of(t.ids, "ids");
    const bool wide = is_dtype(t.ids.dtype(), kDLInt, 64);
    require_type(wide || is_int32(t.ids.dtype()), "ids must be int32 or int64, got ", describe(t.ids.dtype()));
    require(t.ids.ndim() == 2, "ids must be [tokens, choices], got shape ", describe_shape(t.ids));
    const int64_t choices = count_of(t.ids), experts = count_of(t.ends), rows = count_of(t.source);
    require_contiguous(t.ids, "ids");
    require(experts >= 1 && experts <= kMaxExperts, "num_experts must be from 1 to ", kMaxExperts, ", got ", experts);
    require(alignment >= 1, "alignment must be at least 1, got ", alignment);
    require(choices + experts * alignment < (int64_t{1} << 31) && rows < (int64_t{1} << 31),
            "ids and rows must be fewer than 2^31, got ", choices, " and ", rows);
    require(rows % (masked ? experts : alignment) == 0, "rows must be a multiple of ",
            masked ? "the number of experts, " : "the alignment, ", masked ? experts : alignment, ", got ", rows);
    check_numbers(t.row_of, "row_of", device_id, Element::s32, choices);
    check_numbers(t.source, "source", device_id, Element::s32, rows);
    check_numbers(t.ends, "ends", device_id, Element::s32, experts);
    check_numbers(t.counts, "counts", device_id, Element::s32, experts);
    if (t.indices) check_numbers(*t.indices, "indices", device_id, Element::s32, rows);
    require(t.weights.has_value() == t.row_weights.has_value(), "weights and row_weights must come together");
    if (t.weights) {
        check_numbers(*t.weights, "weights", device_id, Element::fp32, choices);
        check_numbers(*t.row_weights, "row_weights", device_id, Element::fp32, rows);
    }

    const int64_t blocks = std::max<int64_t>((choices + kRouteBlockChoices - 1) / kRouteBlockChoices, 1);
    RouteConfig c{.experts = std::max(64, static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(experts)))),
                  .wide_ids = wide,
                  .masked = masked,
                  .indices = t.indices.has_value(),
                  .weights = t.weights.has_value(),
                  .one_block = blocks == 1};
    Device& device = Device::get(device_id);
    Workspace counted;
    const auto bytes = static_cast<size_t>(blocks * experts) * sizeof(int32_t);
    if (!c.one_block) {
        begin_cold_call();  // memory comes from the lender
        counted = allocate_bytes(device, static_cast<int64_t>(bytes));
    }
    const auto integers = [](const TensorView& tensor) { return reinterpret_cast<int32_t*>(tensor.data()); };
    RouteParams p{};
    p.ids = t.ids.data();
    p.block_counts = c.one_block ? nullptr : reinterpret_cast<int32_t*>(counted.data());
    p.row_of = integers(t.row_of), p.source = integers(t.source);
    p.ends = integers(t.ends), p.counts = integers(t.counts);
    if (t.indices) p.indices = integers(*t.indices);
    if (t.weights) {
        p.weights = reinterpret_cast<const float*>(t.weights->data());
        p.row_weights = reinterpret_cast<float*>(t.row_weights->data());
    }
    p.choices = static_cast<int32_t>(choices), p.experts = static_cast<int32_t>(experts);
    p.blocks = static_cast<int32_t>(blocks), p.alignment = static_cast<int32_t>(alignment);
    p.rows = static_cast<int32_t>(masked ? rows / experts : rows);

    const auto extent = [](const OptionalTensor& tensor, const char* name, bool writable) {
        return tensor ? Extent{tensor->data(), extent_bytes(*tensor), name, writable} : Extent{};
    };
    const Extent extents[] = {extent(t.ids, "ids", false),
                              extent(t.weights, "weights", false),
                              {p.block_counts, c.one_block ? 0 : bytes, "counts of blocks", true},
                              extent(t.row_of, "row_of", true),
                              extent(t.source, "source", true),
                              extent(t.indices, "indices", true),
                              extent(t.row_weights, "row_weights", true),
                              extent(t.ends, "ends", true),
                              extent(t.counts, "counts", true)};
    const LaunchShape shape{.grid = static_cast<uint32_t>(blocks), .block = kRouteThreads};
    void* const stream = current_stream(device_id);
    if (!c.one_block) {
        // What rows get is no matter of counting.
        const RouteConfig counting{.experts = c.experts, .wide_ids = c.wide_ids};
        const Kernel& count = cached_kernel(device, counting, 0, [&] { return render(counting, "route_count"); });
        device.launch(count, may_start_early(shape, device), &p, sizeof(p), stream, extents);
    }
    const Kernel& place = cached_kernel(device, c, 0, [&] { return render(c, "route_place"); });
    device.launch(place, may_start_early(shape, device), &p, sizeof(p), stream, extents);
}

}  // namespace deep_gemm
