// Rows to experts, and results back.
#include "../api/call/call_settings.hpp"
#include "../api/call/dtypes.hpp"
#include "../api/call/kernel_cache.hpp"
#include "../api/call/lender.hpp"
#include "../api/call/overlap.hpp"
#include "call.hpp"

namespace deep_gemm {
namespace {

const char* text(bool value) { return value ? "true" : "false"; }

jit::KernelSource render(const GatherConfig& c) {
    return {
        .name = "gather_rows",
        .text = concat("#include <deep_gemm/kernels/gather_rows.cuh>\n\nusing namespace deep_gemm;\n\n",
                       "constexpr GatherConfig kConfig{.piece_bytes = ", c.piece_bytes, ", .scales = ", text(c.scales),
                       ", .clear = ", text(c.clear), "};\n\n",
                       "extern \"C\" __global__ void __launch_bounds__(kMoveThreads)\ngather_rows",
                       "(const __grid_constant__ GatherParams params) {\n    run_gather_rows<kConfig>(params);\n}\n")};
}

jit::KernelSource render(const CombineConfig& c) {
    return {.name = "combine_rows",
            .text = concat("#include <deep_gemm/kernels/combine_rows.cuh>\n\nusing namespace deep_gemm;\n\n",
                           "constexpr CombineConfig kConfig{.input = Element::", facts(c.input).name,
                           ", .output = Element::", facts(c.output).name, ", .weights = ", text(c.weights),
                           ", .wide = ", text(c.wide), "};\n\n",
                           "extern \"C\" __global__ void __launch_bounds__(kMoveThreads)\ncombine_rows",
                           "(const __grid_constant__ CombineParams params) {\n",
                           "    run_combine_rows<kConfig>(params);\n}\n")};
}

/// [rows, columns], columns side by side.
Matrix rows_of(const TensorView& tensor, const char* name, DeviceId device) {
    require_device(tensor, name, device, "x");
    require(tensor.ndim() == 2, name, " must have two dimensions, got shape ", describe_shape(tensor));
    Matrix m = matrix_of(tensor, name, false, "[rows, columns]");
    require(m.col_stride == 1 || m.cols == 0, name, " must have columns side by side, got strides ",
            describe_strides(tensor));
    return m;
}

void check_places(const TensorView& tensor, const char* name, DeviceId device, int ndim) {
    require_type(is_int32(tensor.dtype()), name, " must be int32, got ", describe(tensor.dtype()));
    require_device(tensor, name, device, "x");
    const int last = ndim - 1;
    require(tensor.ndim() == ndim, name, " must have ", ndim, " dimensions, got shape ", describe_shape(tensor));
    require(extent_bytes(tensor) == 0 || ((tensor.size(last) <= 1 || tensor.stride(last) == 1) &&
                                          (ndim == 1 || tensor.size(0) <= 1 || tensor.stride(0) == tensor.size(1))),
            name, " must be contiguous, got strides ", describe_strides(tensor));
}

/// The most bytes that are copied at once.
int32_t piece_bytes(const Matrix& x, const Matrix& out, int64_t row_bytes, int64_t x_stride, int64_t out_stride) {
    const auto all = reinterpret_cast<uintptr_t>(x.data) | reinterpret_cast<uintptr_t>(out.data) |
                     static_cast<uintptr_t>(row_bytes | x_stride | out_stride);
    for (const int32_t bytes : {16, 4, 2})
        if (all % static_cast<uintptr_t>(bytes) == 0) return bytes;
    return 1;
}

int64_t blocks_of(int64_t blocks) {
    require(blocks < (int64_t{1} << 31), "rows need ", blocks, " blocks, more than a launch counts");
    return blocks;
}

}  // namespace

void gather_rows(const GatherRecord& t) {
    const DeviceId device_id = device_id_of(t.x, "x");
    const int64_t element_bytes = t.x.dtype().bits / 8;
    require_type(t.x.dtype().code == t.out.dtype().code && t.x.dtype().bits == t.out.dtype().bits && element_bytes > 0,
                 "out must be ", describe(t.x.dtype()), " as x is, got ", describe(t.out.dtype()));
    const Matrix x = rows_of(t.x, "x", device_id), out = rows_of(t.out, "out", device_id);
    check_places(t.source, "source", device_id, 1);
    require(out.rows == t.source.size(0) && out.cols == x.cols, "out must be [", t.source.size(0), ", ", x.cols,
            "], got shape ", describe_shape(t.out));
    require(t.choices >= 1, "choices must be at least 1, got ", t.choices);
    require(!share_memory(t.out, t.x), "out must have memory of its own, but shares it with x");
    require(t.scales.has_value() == t.out_scales.has_value(), "scales and their results must come together");

    GatherParams p{};
    const int64_t row_bytes = x.cols * element_bytes;
    p.x_row_stride = x.row_stride * element_bytes, p.out_row_stride = out.row_stride * element_bytes;
    GatherConfig c{.piece_bytes = piece_bytes(x, out, row_bytes, p.x_row_stride, p.out_row_stride),
                   .scales = t.scales.has_value(),
                   .clear = t.clear};
    p.x = reinterpret_cast<const uint8_t*>(x.data), p.out = reinterpret_cast<uint8_t*>(out.data);
    p.source = reinterpret_cast<const int32_t*>(t.source.data());
    p.rows = to_int32(out.rows, "rows"), p.rows_of_group = std::max(p.rows, 1);
    p.choices = to_int32(t.choices, "choices"), p.pieces = to_int32(row_bytes / c.piece_bytes, "a row");
    Extent extents[] = {{x.data, x.bytes, "x", false},
                        {out.data, out.bytes, "out", true},
                        {t.source.data(), extent_bytes(t.source), "source", false},
                        {},
                        {}};
    if (t.scales) {
        const TensorView &s = *t.scales, &s_out = *t.out_scales;
        require_device(s, "scales", device_id, "x"), require_device(s_out, "out's scales", device_id, "x");
        require_type(s.dtype().bits == 32 && s_out.dtype().bits == 32 && s.dtype().code == s_out.dtype().code,
                     "scales must be float32 or int32, got ", describe(s.dtype()), " and ", describe(s_out.dtype()));
        require(s.ndim() == 2 && s.size(0) == x.rows, "scales must be [", x.rows, ", groups], got shape ",
                describe_shape(s));
        const bool grouped = s_out.ndim() == 3;
        const int last = s_out.ndim() - 1;
        require((grouped || s_out.ndim() == 2) && s_out.size(last) == s.size(1) &&
                    s_out.size(last - 1) * (grouped ? s_out.size(0) : 1) == out.rows,
                "out's scales must be those of ", out.rows, " rows and ", s.size(1), " groups, got shape ",
                describe_shape(s_out));
        require(!share_memory(s_out, s), "out's scales must have memory of their own");
        p.scales = reinterpret_cast<const uint32_t*>(s.data());
        p.out_scales = reinterpret_cast<uint32_t*>(s_out.data());
        p.s_row_stride = s.stride(0), p.s_k_stride = s.stride(1), p.scale_count = to_int32(s.size(1), "groups");
        p.rows_of_group = std::max(to_int32(s_out.size(last - 1), "rows"), 1);
        p.out_s_group_stride = grouped ? s_out.stride(0) : 0;
        p.out_s_row_stride = s_out.stride(last - 1), p.out_s_k_stride = s_out.stride(last);
        extents[3] = {s.data(), extent_bytes(s), "scales", false};
        extents[4] = {s_out.data(), extent_bytes(s_out), "out's scales", true};
    }
    if (p.rows == 0 || x.cols == 0) return;
    Device& device = Device::get(device_id);
    const int64_t blocks = blocks_of((out.rows + kMoveWarps - 1) / kMoveWarps);
    const LaunchShape shape{.grid = static_cast<uint32_t>(blocks), .block = kMoveThreads};
    const Kernel& kernel = cached_kernel(device, c, 0, [&] { return render(c); });
    device.launch(kernel, may_start_early(shape, device), &p, sizeof(p), current_stream(device_id), extents);
}

void combine_rows(const CombineRecord& t) {
    const DeviceId device_id = device_id_of(t.x, "x");
    CombineConfig c{.input = element_of(t.x.dtype()), .output = element_of(t.out.dtype())};
    const auto served = [](Element e) { return e == Element::bf16 || e == Element::fp16 || e == Element::fp32; };
    require_type(served(c.input), "x must be bfloat16, float16 or float32, got ", describe(t.x.dtype()));
    require_type(served(c.output), "out must be bfloat16, float16 or float32, got ", describe(t.out.dtype()));
    const Matrix x = rows_of(t.x, "x", device_id), out = rows_of(t.out, "out", device_id);
    check_places(t.row_of, "row_of", device_id, 2);
    require(out.rows == t.row_of.size(0) && out.cols == x.cols, "out must be [", t.row_of.size(0), ", ", x.cols,
            "], got shape ", describe_shape(t.out));
    require(!share_memory(t.out, t.x), "out must have memory of its own, but shares it with x");
    CombineParams p{};
    if (t.weights) {
        const TensorView& w = *t.weights;
        require_type(element_of(w.dtype()) == Element::fp32, "weights must be float32, got ", describe(w.dtype()));
        require_device(w, "weights", device_id, "x");
        require(w.ndim() == 2 && w.size(0) == t.row_of.size(0) && w.size(1) == t.row_of.size(1) &&
                    (w.size(1) <= 1 || w.stride(1) == 1) && (w.size(0) <= 1 || w.stride(0) == w.size(1)),
                "weights must be contiguous and of the shape of ids, ", describe_shape(t.row_of), ", got shape ",
                describe_shape(w), " and strides ", describe_strides(w));
        require(!share_memory(t.out, w), "out must have memory of its own, but shares it with weights");
        p.weights = reinterpret_cast<const float*>(w.data());
        c.weights = true;
    }
    p.x = x.data, p.out = out.data, p.row_of = reinterpret_cast<const int32_t*>(t.row_of.data());
    p.x_row_stride = x.row_stride, p.out_row_stride = out.row_stride;
    p.tokens = to_int32(out.rows, "tokens"), p.choices = to_int32(t.row_of.size(1), "choices");
    p.columns = to_int32(out.cols, "columns");
    p.column_blocks = std::max((p.columns + kCombineColumns - 1) / kCombineColumns, 1);
    const auto wide = [](const Matrix& m, Element e) {
        return reinterpret_cast<uintptr_t>(m.data) % 16 == 0 && m.row_stride * (bits(e) / 8) % 16 == 0;
    };
    c.wide = p.columns % kCombinePiece == 0 && wide(x, c.input) && wide(out, c.output);
    if (p.tokens == 0 || p.columns == 0) return;
    const Extent extents[] = {
        {x.data, x.bytes, "x", false},
        {out.data, out.bytes, "out", true},
        {t.row_of.data(), extent_bytes(t.row_of), "row_of", false},
        t.weights ? Extent{t.weights->data(), extent_bytes(*t.weights), "weights", false} : Extent{}};
    Device& device = Device::get(device_id);
    const int64_t blocks = blocks_of(int64_t{p.tokens} * p.column_blocks);
    const LaunchShape shape{.grid = static_cast<uint32_t>(blocks), .block = kMoveThreads};
    const Kernel& kernel = cached_kernel(device, c, 0, [&] { return render(c); });
    device.launch(kernel, may_start_early(shape, device), &p, sizeof(p), current_stream(device_id), extents);
}

}  // namespace deep_gemm
