// Keys and heads whose exponents the instruction takes: nothing is converted, and NaN is what tensor cores make of it.
#pragma once

#include <deep_gemm/mma/sm80/logits.cuh>

namespace deep_gemm::sm80 {

/// And a word of exponents: lane 4 i + j has that of head i of the j-th eight.
template <Constant<LogitsConfig> c, int32_t kCount>
    requires(c.exponents_in_instruction())
struct HeadWords<c, kCount> : HeadCodes<c, kCount> {
    uint32_t exponents;

    DG_DEVICE void load(const QueryHeads<c>& heads, int32_t eight, int32_t lane) {
        HeadCodes<c, kCount>::load(heads, eight, lane);
        exponents = heads.exponents[(eight + lane % kCount) * 8 + lane / 4];
    }
};

/// Lane 4 i + j has the exponents of key 8 j + i: rows i and i + 8 of 16 keys stand in lanes 4 i + 2 half and the next.
template <Constant<LogitsConfig> c>
    requires(c.exponents_in_instruction())
class KeyWords<c> {
public:
    template <int32_t kCount>
    using Heads = HeadWords<c, kCount>;

    DG_DEVICE float convert(const LoadedKeys<c>& loaded, int32_t, int32_t) {
#pragma unroll
        for (int32_t i = 0; i < 4; ++i)
#pragma unroll
            for (int32_t word = 0; word < Quarter<c>::kWords; ++word) words_[i][word] = loaded.codes[i][word];
        exponents_ = loaded.exponents[0];
        return 1.0f;
    }

    /// A step is a group of E4M3, or two of FP4.
    template <int32_t kCount>
    DG_DEVICE void multiply(float (&products)[4], int32_t half, const Heads<kCount>& heads, int32_t i,
                            int32_t step) const {
        const uint32_t cols[2] = {heads.words[i][2 * step], heads.words[i][2 * step + 1]};
        const uint32_t rows[4] = {words_[2 * half][2 * step], words_[2 * half + 1][2 * step],
                                  words_[2 * half][2 * step + 1], words_[2 * half + 1][2 * step + 1]};
        const auto byte = static_cast<uint16_t>(c.element == Element::e4m3 ? step : 2 * step);
        const ptx::ScaleSelector of_keys{byte, static_cast<uint16_t>(half)}, of_heads{byte, static_cast<uint16_t>(i)};
        if constexpr (c.element == Element::e4m3)
            ptx::mma_mx_e4m3_e4m3(products, rows, cols, exponents_, of_keys, heads.exponents, of_heads);
        else
            ptx::mma_mxf4(products, rows, cols, exponents_, of_keys, heads.exponents, of_heads);
    }

private:
    uint32_t words_[4][Quarter<c>::kWords], exponents_;
};

}  // namespace deep_gemm::sm80
