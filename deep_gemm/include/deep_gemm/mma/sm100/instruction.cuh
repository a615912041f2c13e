// SM100's matrix instruction for a pair of formats: what its descriptors say.
#pragma once

#include <deep_gemm/arch/sm100_memory.cuh>
#include <deep_gemm/ptx/tcgen05.cuh>
#include <deep_gemm/tile/cluster_position.cuh>

namespace deep_gemm::sm100 {

/// The element's number in instruction descriptors: of kind f16, of f8f6f4 and its scaled form, of mxf4 and mxf4nvf4
/// (of which it is beside `other`), or of i8.
constexpr uint32_t format_number(Element element, Element other) {
    if (element == Element::e2m1r) return unpacked_by_tma(element, other) ? 5 : 1;
    return element == Element::bf16 || element == Element::s8 ? 1 : 0;  // fp16 and e4m3 are 0 each, as u8 would be
}

/// What sums are, or, where there are scales, what these are.
constexpr uint32_t sums_or_scales(const GemmConfig& c) {
    constexpr uint32_t kFp32Sums = 1u << 4, kS32Sums = 2u << 4, kUe4m3 = 0, kUe8m0 = 1u << 23;
    if (scales_in_instruction(c)) return c.a.scaling.type == Element::ue8m0 ? kUe8m0 : kUe4m3;
    return c.block_sum() == Element::s32 ? kS32Sums : kFp32Sums;
}

/// PTX ISA, "Instruction descriptor" of tcgen05.mma: without the bytes of scales.
constexpr uint32_t instruction_descriptor(const GemmConfig& c) {
    const Operand &rows = c.rows_operand(), &cols = c.cols_operand();
    const Element multiplied = converts(c) ? cols.element : rows.element;
    return sums_or_scales(c) | format_number(multiplied, cols.element) << 7 |
           format_number(cols.element, rows.element) << 10 | (rows.mn_major() ? 1u : 0u) << 15 |
           (cols.mn_major() ? 1u : 0u) << 16 | static_cast<uint32_t>(c.tile.cols >> 3) << 17 |
           static_cast<uint32_t>(kRows * mma_ctas(c) >> 4) << 24;
}

/// Which byte of a word rows and columns are scaled by.
DG_DEVICE constexpr uint32_t with_scale_bytes(uint32_t descriptor, uint32_t row_byte, uint32_t col_byte) {
    return descriptor | row_byte << 29 | col_byte << 4;
}

/// A stage's operand, and how far its K steps are from each other, in units of 16 bytes.
template <Constant<GemmConfig> c, Constant<Operand> kOperand>
struct OperandSteps {
    uint64_t first;

    DG_DEVICE explicit OperandSteps(uint32_t address)
        : first(kOperand.mn_major() ? ptx::tensor_descriptor_mn_major(address, c.tile.k * kSwizzleBytes)
                                    : ptx::tensor_descriptor(address)) {}

    DG_DEVICE uint64_t at(int32_t step) const {
        constexpr int32_t kBytes = kOperand.mn_major() ? step_k(c.a, c.b) * kSwizzleBytes : kStepBytes;
        return first + step * (kBytes >> 4);
    }
};

/// The product of rows that were converted to the columns' element.
template <Constant<GemmConfig> c>
DG_DEVICE void issue_converted_mma(uint32_t sums, uint32_t rows, uint64_t cols, uint32_t descriptor, bool accumulate) {
    constexpr Element kElement = c.cols_operand().element;
    constexpr int kCtas = mma_ctas(c);
    if constexpr (kElement == Element::e4m3)
        ptx::tensor_mma_rows_f8f6f4<kCtas>(sums, rows, cols, descriptor, accumulate);
    else if constexpr (kElement == Element::s8)
        ptx::tensor_mma_rows_i8<kCtas>(sums, rows, cols, descriptor, accumulate);
    else if constexpr (bits(kElement) == 16)
        ptx::tensor_mma_rows_f16<kCtas>(sums, rows, cols, descriptor, accumulate);
    else
        static_assert(c.tile.cols == 0, "no instruction multiplies packed weights by these elements");
}

/// The product of a pair of elements: a line for each of SM100's rows of the pair table (csrc/config/pairs.hpp).
template <Constant<GemmConfig> c>
DG_DEVICE void issue_mma(uint32_t sums, uint64_t rows, uint64_t cols, uint32_t descriptor, uint32_t row_scales,
                         uint32_t col_scales, bool accumulate) {
    constexpr int kCtas = mma_ctas(c);
    if constexpr (scales_in_instruction(c) &&
                  (multiplies(c, Element::e4m3, Element::e4m3) || multiplies(c, Element::e4m3, Element::e2m1r) ||
                   multiplies(c, Element::e2m1r, Element::e4m3)))
        ptx::tensor_mma_mxf8f6f4<kCtas>(sums, rows, cols, descriptor, row_scales, col_scales, accumulate);
    else if constexpr (multiplies(c, Element::e2m1r, Element::e2m1r) && c.a.scaling == kExponents32)
        ptx::tensor_mma_mxf4<kCtas>(sums, rows, cols, descriptor, row_scales, col_scales, accumulate);
    else if constexpr (multiplies(c, Element::e2m1r, Element::e2m1r) && c.a.scaling == kE4m3Scales16)
        ptx::tensor_mma_nvf4<kCtas>(sums, rows, cols, descriptor, row_scales, col_scales, accumulate);
    else if constexpr (multiplies(c, Element::e4m3, Element::e4m3))
        ptx::tensor_mma_f8f6f4<kCtas>(sums, rows, cols, descriptor, accumulate);
    else if constexpr (multiplies(c, Element::bf16, Element::bf16) || multiplies(c, Element::fp16, Element::fp16))
        ptx::tensor_mma_f16<kCtas>(sums, rows, cols, descriptor, accumulate);
    else if constexpr (multiplies(c, Element::s8, Element::s8))
        ptx::tensor_mma_i8<kCtas>(sums, rows, cols, descriptor, accumulate);
    else
        static_assert(kCtas == 0, "no instruction multiplies these elements");
}

/// Arrive when all that was issued is over, in each CTA of a pair.
template <Constant<GemmConfig> c>
DG_DEVICE void commit(uint32_t barrier, const ClusterPosition<c>& position) {
    constexpr int kCtas = mma_ctas(c);
    if constexpr (kCtas == 1)
        ptx::commit_tensor_work<kCtas>(barrier);
    else
        ptx::commit_tensor_work_multicast<kCtas>(barrier,
                                                 static_cast<uint16_t>(3 << ClusterPosition<c>::rank(0, position.col,
                                                                                                     position.k)));
}

}  // namespace deep_gemm::sm100
