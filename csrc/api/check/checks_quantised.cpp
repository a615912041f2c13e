#include "checks_quantised.hpp"

#include "../call/dtypes.hpp"
#include "../call/overlap.hpp"

namespace deep_gemm {
namespace {

constexpr const char* kName = "d's scales";

/// Told by their dtype, and words by how many there are. One word of a row of up to 128 columns is for 32 of them, as
/// DeepGEMM has it: `check_lone_words` lets nobody take it for 128.
Scaling output_scaling(const TensorView& scales, Element output, int64_t columns, int64_t found) {
    const Element element = element_of(scales.dtype());
    require_type(element == Element::fp32 || element == Element::s32, kName,
                 " must be float32 or int32 (packed UE8M0 exponents), got ", describe(scales.dtype()));
    require_type(element == Element::fp32 || output == Element::e4m3, kName, " must be float32 where d is int8, got ",
                 describe(scales.dtype()));
    const auto count = [&](const Scaling& scaling) { return (columns + entry_k(scaling) - 1) / entry_k(scaling); };
    if (element == Element::fp32) {
        require(found == count(kRowScales), kName, " must be one float32 per row and 128 columns, ", count(kRowScales),
                " of a row where d has ", columns, " columns, got ", found,
                found == 1 ? ": one for a whole row cannot be found by tiles, which deep_gemm.quantize.fp8 does" : "");
        return kRowScales;
    }
    for (const Scaling& scaling : {kExponents32, kExponents128})
        if (found == count(scaling)) return scaling;
    fail(ErrorKind::value, kName, " must be int32 of four exponents each, for 128 columns (", count(kExponents128),
         " of a row where d has ", columns, " columns) or for 32 (", count(kExponents32), "), got ", found);
}

}  // namespace

void check_output_scales(GemmCall& call, const OutputArgument& d, const Axes& axes) {
    Problem& p = call.problem;
    if (!d.scales) return;
    const TensorView& given = *d.scales;
    require_device(given, kName, call.device, "a");
    const Matrix s = matrix_of(given, kName, axes, "of d's shape, with its scales in the place of columns");
    require(s.groups == call.d.groups && s.rows == call.d.rows, kName, " must have d's rows, got shape ",
            describe_shape(given), " beside ", describe_shape(d.data));
    p.output_scaling = output_scaling(given, p.output, call.d.cols, s.cols);
    const int64_t step = kTmaAlignment / 4;
    require((s.row_stride == 1 || s.rows <= 1) &&
                (s.cols <= 1 || (s.col_stride >= s.rows && s.col_stride % step == 0)) &&
                (s.groups <= 1 || s.group_stride % step == 0) &&
                reinterpret_cast<uintptr_t>(s.data) % kTmaAlignment == 0,
            kName,
            " must lie as get_mn_major_tma_aligned_tensor makes them, rows contiguous and columns at multiples of "
            "16 bytes, got strides ",
            describe_strides(given));
    require_apart(d.data, given, kName);
    if (d.count) {
        require_type(is_int32(d.count->dtype()) && d.count->contiguous_bytes() == sizeof(int32_t),
                     "d must be a tensor, or a pair (tensor, scales)");
        require_device(*d.count, "clamped_count", call.device, "a");
        call.clamp.count = reinterpret_cast<uint32_t*>(d.count->data());
    }
    call.d_scales = {.data = s.data,
                     .element = element_of(given.dtype()),
                     .scaling = p.output_scaling,
                     .groups = s.groups,
                     .rows = s.rows,
                     .k_scales = s.cols,
                     .group_stride = s.groups <= 1 ? 0 : given.stride(axes.group),
                     .row_stride = 1,
                     .k_stride = s.cols <= 1 ? 0 : s.col_stride,
                     .bytes = s.bytes};
}

void check_lone_words(const GemmCall& call) {
    const bool lone = call.problem.output_scaling == kExponents32 && call.d.cols <= kExponents128.k;
    require(!lone || call.problem.rounding == Rounding::clamped, kName,
            " must be float32, or those of FP8CastWithClamp (int32, for 32 columns), where d has at most ",
            kExponents128.k, " columns, got int32 beside ", call.d.cols,
            " columns: one word of a row may be for 32 columns or for 128");
}

}  // namespace deep_gemm
