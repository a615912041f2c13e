// Elements as torch has them.
#pragma once

#include <dlpack/dlpack.h>
#include <deep_gemm/format.cuh>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace deep_gemm {

struct Dtype {
    Element element;
    uint8_t code;  // DLPack's
    std::string_view name;
};

inline constexpr Dtype kDtypes[] = {
    {Element::fp32, kDLFloat, "float32"},
    {Element::bf16, kDLBfloat, "bfloat16"},
    {Element::fp16, kDLFloat, "float16"},
    {Element::e4m3, kDLFloat8_e4m3fn, "float8_e4m3fn"},
    {Element::ue8m0, kDLFloat8_e8m0fnu, "float8_e8m0fnu"},
    {Element::s8, kDLInt, "int8"},
    {Element::s32, kDLInt, "int32"},
    {Element::e2m1r, kDLFloat4_e2m1fn, "int8 (two E2M1 codes a byte)"},
};

/// Element::none where the library knows no such.
inline Element element_of(DLDataType type) {
    const auto* const found = std::ranges::find_if(kDtypes, [&](const Dtype& dtype) {
        return type.code == dtype.code && type.bits == bits(dtype.element) && type.lanes == 1;
    });
    return found == std::end(kDtypes) ? Element::none : found->element;
}

inline std::string dtype_name(Element element) {
    if (is_packed(element)) return std::string("PackedWeights of ") + facts(element).weights;
    return std::string(std::ranges::find(kDtypes, element, &Dtype::element)->name);
}

}  // namespace deep_gemm
