// Queries with exponents: one warp converts an atom's to BF16, as wgmma reads them.
#pragma once

#include <deep_gemm/arch/sm90_logits_smem.cuh>
#include <deep_gemm/logits/finish.cuh>
#include <deep_gemm/logits/quarter.cuh>

namespace deep_gemm::sm90 {

/// Where word `word` of quarter `part` of a column lies: K goes by the steps of a product, of which a lane's four
/// numbers of a key (Quarter) are two words 16 bytes apart (ptx::WgmmaFromRegisters). Rows of 128 bytes, swizzled.
template <Constant<LogitsConfig> c>
DG_DEVICE uint32_t converted_word(uint32_t queries, int32_t column, int32_t word, int32_t part) {
    constexpr int32_t kChunks = kConvertedSpanBytes / 16;
    return queries + (word / kChunks * c.columns() + column) * kConvertedSpanBytes +
           ((word % kChunks ^ column % 8) * 16) + part * 4;
}

/// Four lanes have a column, a quarter each. What tensor cores do not know as NaN becomes NaN by the head's weight.
template <Constant<LogitsConfig> c>
DG_DEVICE void convert_queries(const LogitsSmem<c>& smem, int32_t stage, const AtomRows& rows, int32_t lane,
                               const LogitsParams& p) {
    using Lane = Quarter<c>;
    const int32_t part = lane % 4;
    const uint32_t queries = smem.queries(stage, 0, 0);
    __syncwarp();  // weights are there
#pragma unroll 1
    for (int32_t column = lane / 4; column < c.columns(); column += 8) {
        const int32_t row = column / c.padded_heads, head = column % c.padded_heads;
        const bool exists = row < rows.count && head < c.heads;
        uint32_t codes[Lane::kWords] = {}, converted[Lane::kConverted], exponents = 0;
        if (exists) {
            const int64_t of_all = rows.first + row;
            Lane::load(codes, p.query_data + of_all * p.query_stride + head * p.query_head_stride, part);
            exponents = p.query_exponents[of_all * c.heads + head];
        }
        if (Lane::Conversion::run(codes, converted, Lane::exponent(exponents, part)))
            smem.weights(stage)[column] = __int_as_float(0x7fffffff);
#pragma unroll
        for (int32_t word = 0; word < Lane::kConverted; ++word)
            ptx::store_shared_int(converted_word<c>(queries, column, word, part),
                                  static_cast<int32_t>(converted[word]));
    }
    ptx::fence_for_async_proxy();
}

}  // namespace deep_gemm::sm90
