#include <bit>
#include <cmath>

#include "../api/call/call_settings.hpp"
#include "../api/call/dtypes.hpp"
#include "../api/call/overlap.hpp"
#include "call.hpp"

namespace deep_gemm {
namespace {

template <typename Enum>
Enum choice(int64_t number, Enum last, const char* what) {
    require(number >= 0 && number <= static_cast<int64_t>(last), "unknown ", what, " ", number);
    return static_cast<Enum>(number);
}

float float_of(int64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }

bool at_multiples(const Matrix& m, int64_t element_bytes, int64_t alignment) {
    return reinterpret_cast<uintptr_t>(m.data) % alignment == 0 && m.row_stride * element_bytes % alignment == 0 &&
           m.group_stride * element_bytes % alignment == 0;
}

Matrix input_of(const TensorView& x, Element element, int32_t gates) {
    require_type(element == Element::bf16 || element == Element::fp16 || element == Element::fp32,
                 "x must be bfloat16, float16 or float32, got ", describe(x.dtype()));
    require(x.ndim() == 2 || x.ndim() == 3, "x must be [M, K] or [G, M, K], got shape ", describe_shape(x));
    Matrix m = matrix_of(x, "x", x.ndim() == 3, "[M, K]");
    require(m.col_stride == 1 || m.cols == 0, "x must have K contiguous, got strides ", describe_strides(x));
    require(m.cols % gates == 0, "x must have as many gates as ups, got ", m.cols, " columns");
    return m;
}

/// A result [rows, columns], or [G, rows, columns].
Matrix output_of(const TensorView& tensor, const char* name, const TensorView& x, int64_t rows, int64_t columns) {
    const int last = x.ndim() - 1;
    const bool right = tensor.ndim() == x.ndim() && tensor.size(last) == columns && tensor.size(last - 1) == rows &&
                       (last == 1 || tensor.size(0) == x.size(0));
    require(right, name, " must have ", rows, " rows and ", columns, " columns for x ", describe_shape(x),
            ", got shape ", describe_shape(tensor));
    return matrix_of(tensor, name, x.ndim() == 3, "[M, columns]");
}

/// A number for each row: [M], or [G, M]. As a matrix of one column.
Matrix numbers_of_rows(const TensorView& tensor, const char* name, const TensorView& x) {
    bool right = tensor.ndim() == x.ndim() - 1;
    for (int i = 0; right && i < tensor.ndim(); ++i) right = tensor.size(i) == x.size(i);
    require(right, name, " must have a number for each row of x ", describe_shape(x), ", got shape ",
            describe_shape(tensor));
    const bool grouped = x.ndim() == 3;
    Matrix m{.data = tensor.data(),
             .groups = grouped ? tensor.size(0) : 1,
             .rows = tensor.size(grouped),
             .cols = 1,
             .group_stride = grouped ? tensor.stride(0) : 0,
             .row_stride = tensor.stride(grouped),
             .bytes = extent_bytes(tensor)};
    return m;
}

/// int32 without gaps, for each row.
void check_counts(const OptionalTensor& tensor, const char* name, const TensorView& x, DeviceId device) {
    if (!tensor) return;
    require_type(is_int32(tensor->dtype()), name, " must be int32, got ", describe(tensor->dtype()));
    require_device(*tensor, name, device, "x");
    const Matrix m = numbers_of_rows(*tensor, name, x);
    require((m.rows <= 1 || m.row_stride == 1) && (m.groups <= 1 || m.group_stride == m.rows), name,
            " must have no gaps, got strides ", describe_strides(*tensor));
}

struct ScaleDtype {
    Element element;
    const char* text;
};
constexpr ScaleDtype scale_dtype(ScaleForm form) {
    if (form == ScaleForm::exponents) return {Element::s32, "int32 (packed exponents)"};
    return form == ScaleForm::e4m3 ? ScaleDtype{Element::e4m3, "float8_e4m3fn"} : ScaleDtype{Element::fp32, "float32"};
}

/// Scales as they must lie beside x, of which `k` columns are quantised.
Matrix scales_of(const TensorView& s, const TensorView& x, const Matrix& rows, int64_t k, const QuantizeConfig& c) {
    const ScaleDtype wanted = scale_dtype(c.scales);
    require_type(element_of(s.dtype()) == wanted.element, "s must be ", wanted.text, ", got ", describe(s.dtype()));
    const auto divided = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
    if (c.share == ScaleShare::row) return numbers_of_rows(s, "s", x);
    if (c.share == ScaleShare::block) return output_of(s, "s", x, divided(rows.rows, kBlockRows), divided(k, kBlockK));
    const int64_t groups = divided(k, c.group);
    return output_of(s, "s", x, rows.rows, c.scales == ScaleForm::exponents ? divided(groups, kScalesPerWord) : groups);
}

/// Elements that are written must each have a place of their own.
void require_places(const TensorView& tensor, const char* name) {
    if (extent_bytes(tensor) == 0) return;
    for (int i = 0; i < tensor.ndim(); ++i)
        require(tensor.size(i) <= 1 || tensor.stride(i) > 0, name, " must have positive strides, got ",
                describe_strides(tensor));
}

/// What is written while others are read, or written in another order.
void require_own_memory(const TensorView& written, const char* name, const TensorView& other, const char* other_name) {
    require(!share_memory(written, other), name, " must have memory of its own, but shares it with ", other_name);
}

void check_layout(const QuantizeRecord& t, RowLayout rows, DeviceId device, const Matrix& x) {
    if (rows == RowLayout::all) return;
    require(t.layout.has_value(), "a grouping must have a tensor that says which rows exist");
    const TensorView& layout = *t.layout;
    const bool masked = rows == RowLayout::masked, psum = rows == RowLayout::psum;
    const char* const name = masked ? "counts" : "layout";
    require_type(is_int32(layout.dtype()), name, " must be int32, got ", describe(layout.dtype()));
    require_device(layout, name, device, "x");
    require(t.x.ndim() == (masked ? 3 : 2), "x must be ", masked ? "[G, max_m, K]" : "[M, K]",
            " with this grouping, got shape ", describe_shape(t.x));
    require(layout.ndim() == 1 && (layout.size(0) <= 1 || layout.stride(0) == 1), name,
            " must have one dimension and no gaps, got shape ", describe_shape(layout), " and strides ",
            describe_strides(layout));
    const int64_t wanted = masked ? x.groups : x.rows;
    require(psum || layout.size(0) == wanted, name, " must have ", wanted, masked ? " experts" : " rows",
            " as x has, got ", layout.size(0));
}

}  // namespace

QuantizeCall check_quantize(const QuantizeRecord& t) {
    QuantizeCall call{.device = device_id_of(t.x, "x"), .config = {}, .params = {}, .extents = {}};
    QuantizeConfig& c = call.config;
    c.input = element_of(t.x.dtype()), c.output = choice(t.element, Element::e2m1r, "element");
    c.share = choice(t.share, ScaleShare::block, "share of a scale"), c.group = to_int32(t.group, "group");
    c.scales = choice(t.scales, ScaleForm::e4m3, "form of scales");
    c.gate = choice(t.gate, GateKind{std::ssize(kGateKinds) - 1}, "gate"), c.interleaved = t.interleaved;
    c.layout = choice(t.rows, RowLayout::masked, "layout of rows");
    const int32_t expected_m = to_int32(t.expected_m, "expected_m");
    c.row_scale = t.row_scale.has_value(), c.zeros = t.zeros.has_value(), c.sums = t.sums.has_value();

    const Matrix x = input_of(t.x, c.input, c.gates());
    const int64_t k = x.cols / c.gates();
    const bool pairs = c.output == Element::e2m1r;
    const Element stored = pairs ? Element::s8 : c.output;
    require_type(element_of(t.q.dtype()) == stored, "q must be ", dtype_name(stored), ", got ", describe(t.q.dtype()));
    require_device(t.q, "q", call.device, "x"), require_device(t.s, "s", call.device, "x");
    require(!pairs || k % 2 == 0, "x must have an even number of columns, two to a byte, got ", k);
    const Matrix q = output_of(t.q, "q", t.x, x.rows, pairs ? k / 2 : k);
    require(q.col_stride == 1 || q.cols == 0, "q must have K contiguous, got strides ", describe_strides(t.q));
    const Matrix s = scales_of(t.s, t.x, x, k, c);
    require_places(t.q, "q"), require_places(t.s, "s");
    require_own_memory(t.q, "q", t.x, "x"), require_own_memory(t.s, "s", t.x, "x");
    require_own_memory(t.q, "q", t.s, "s");
    check_layout(t, c.layout, call.device, x);
    check_counts(t.zeros, "zeros", t.x, call.device), check_counts(t.sums, "sums", t.x, call.device);

    QuantizeParams& p = call.params;
    p.x = reinterpret_cast<const uint8_t*>(x.data), p.q = reinterpret_cast<uint8_t*>(q.data);
    p.s = reinterpret_cast<uint8_t*>(s.data);
    p.x_group_stride = x.group_stride, p.x_row_stride = x.row_stride;
    p.q_group_stride = q.group_stride, p.q_row_stride = q.row_stride;
    p.s_group_stride = s.group_stride, p.s_row_stride = s.row_stride, p.s_k_stride = s.col_stride;
    require(k <= int64_t{1} << 30, "K must be at most 2^30, got ", k);
    p.rows = to_int32(x.rows, "M"), p.k = to_int32(k, "K");
    p.gate = {.limit = float_of(t.limit_bits), .alpha = float_of(t.alpha_bits), .up_shift = float_of(t.up_shift_bits)};
    c.gate_numbers =
        c.gate == GateKind::swiglu && (std::isfinite(p.gate.limit) || p.gate.alpha != 1.0f || p.gate.up_shift != 0.0f);
    p.alignment = CallSettings::m_alignment().load(std::memory_order_relaxed);
    call.matrices = x.groups;
    call.likely_rows = c.layout == RowLayout::masked ? std::min<int64_t>(expected_m, x.rows) : x.rows;
    call.extents = {Extent{x.data, x.bytes, "x", false}, {q.data, q.bytes, "q", true}, {s.data, s.bytes, "s", true}};
    if (t.layout) {
        p.layout = reinterpret_cast<const int32_t*>(t.layout->data());
        p.num_experts = to_int32(t.layout->size(0), "the number of experts");
        call.extents[3] = {t.layout->data(), extent_bytes(*t.layout), "layout", false};
    }
    if (t.row_scale) {
        require_type(element_of(t.row_scale->dtype()) == Element::fp32, "row_scale must be float32, got ",
                     describe(t.row_scale->dtype()));
        require_device(*t.row_scale, "row_scale", call.device, "x");
        const Matrix scale = numbers_of_rows(*t.row_scale, "row_scale", t.x);
        require_own_memory(t.q, "q", *t.row_scale, "row_scale");
        require_own_memory(t.s, "s", *t.row_scale, "row_scale");
        p.row_scale = reinterpret_cast<const float*>(scale.data);
        p.row_scale_group_stride = scale.group_stride, p.row_scale_stride = scale.row_stride;
        call.extents[4] = {scale.data, scale.bytes, "row_scale", false};
    }
    if (t.zeros) {
        p.zeros = reinterpret_cast<int32_t*>(t.zeros->data());
        call.extents[5] = {t.zeros->data(), extent_bytes(*t.zeros), "zeros", true};
    }
    if (t.sums) {
        p.sums = reinterpret_cast<int32_t*>(t.sums->data());
        call.extents[6] = {t.sums->data(), extent_bytes(*t.sums), "sums", true};
    }
    require(t.whole.has_value() == (c.scales == ScaleForm::e4m3), "E4M3 scales must come with one of the whole tensor");
    if (t.whole) {
        require_type(element_of(t.whole->dtype()) == Element::fp32, "global_scale must be float32, got ",
                     describe(t.whole->dtype()));
        require_device(*t.whole, "global_scale", call.device, "x");
        require(extent_bytes(*t.whole) == 4, "global_scale must be one number, got shape ", describe_shape(*t.whole));
        p.whole = reinterpret_cast<const float*>(t.whole->data());
        call.extents[7] = {t.whole->data(), 4, "global_scale", false};
    }
    const int64_t x_bytes = bits(c.input) / 8;
    c.wide = k % kPieceK == 0 && at_multiples(x, x_bytes, 16) && at_multiples(q, 1, pairs ? kPieceK / 2 : kPieceK);
    return call;
}

}  // namespace deep_gemm
