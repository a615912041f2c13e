// Queries into shared memory, as they are multiplied, and keys into registers.
#pragma once

#include <deep_gemm/arch/sm80_logits_memory.cuh>
#include <deep_gemm/logits/blocks.cuh>
#include <deep_gemm/logits/finish.cuh>
#include <deep_gemm/logits/quarter.cuh>

namespace deep_gemm::sm80 {

/// Queries of an atom, their weights, and what they see. A thread has whole heads. What tensor cores do not know as NaN
/// becomes NaN by the head's weight.
template <Constant<LogitsConfig> c>
DG_DEVICE void load_queries(uint8_t* smem, int32_t atom, const LogitsParams& p) {
    using Lane = Quarter<c>;
    constexpr LogitsSmemPlan kPlan = plan_logits_smem(c);
    const AtomRows rows = rows_of_atom<c>(atom, p);
    const int32_t end = rows.first + rows.count;
    for (int32_t column = static_cast<int32_t>(threadIdx.x); column < c.columns(); column += logits_threads(c)) {
        const int32_t row = rows.first + column / c.padded_heads, head = column % c.padded_heads;
        const bool exists = row < end && head < c.heads;
        const uint8_t* const source = p.query_data + row * p.query_stride + head * p.query_head_stride;
        const uint32_t exponents =
            c.exponents && exists ? p.query_exponents[static_cast<int64_t>(row) * c.heads + head] : 0;
        float weight = logits_weight<c>(row, end, head, p);
#pragma unroll
        for (int32_t part = 0; part < 4; ++part) {
            uint32_t codes[Lane::kWords] = {}, converted[Lane::kConverted];
            if (exists) Lane::load(codes, source, part);
            if (Lane::Conversion::run(codes, converted, Lane::exponent(exponents, part)))
                weight = __int_as_float(0x7fffffff);
            uint8_t* const target = smem + column * query_head_bytes(c);
#pragma unroll
            for (int32_t unit = 0; unit < Lane::kUnits; ++unit) {
                uint8_t* const at = target + Lane::unit_offset(unit, part);
                if constexpr (Lane::kUnitBytes == 16)
                    *reinterpret_cast<uint4*>(at) = make_uint4(converted[4 * unit], converted[4 * unit + 1],
                                                               converted[4 * unit + 2], converted[4 * unit + 3]);
                else
                    *reinterpret_cast<uint2*>(at) = make_uint2(converted[0], converted[1]);
            }
        }
        reinterpret_cast<float*>(smem + kPlan.weights)[column] = weight;
        if constexpr (c.exponents_in_instruction())
            reinterpret_cast<uint32_t*>(smem + kPlan.exponents)[column] = exponents;
    }
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < c.rows; i += logits_threads(c))
        reinterpret_cast<KeyRange*>(smem + kPlan.ranges)[i] =
            i < rows.count ? keys_of_row<c>(rows.first + i, rows.request, p) : KeyRange{};
}

/// 32 keys of a warp as they come from memory: a lane has a quarter of four of them, 8 apart, and the scale of one.
template <Constant<LogitsConfig> c>
struct LoadedKeys {
    uint32_t codes[4][Quarter<c>::kWords];
    uint32_t exponents[c.exponents_in_instruction() ? 1 : 4];  // of these keys; or of a key for each lane
    float scale;

    /// Keys that do not exist are others' copies: no row sees them.
    DG_DEVICE void load(int32_t first_key, KeyBlocks<c>& blocks, int32_t lane, int32_t own_key, const LogitsParams& p) {
        const KeyPlace place = blocks.place(first_key, lane, p);
        const int64_t block = c.paged && place.block < p.num_blocks ? place.block : 0;
        const int32_t last = (c.paged ? c.block_keys : p.keys_in_all) - 1;
        const uint8_t* const data = p.key_data + (c.paged ? block * p.key_stride : 0);
        const int64_t stride = c.paged ? c.key_bytes() : p.key_stride;
        const auto* const words =
            c.paged ? reinterpret_cast<const int32_t*>(data + c.block_keys * c.key_bytes()) : p.key_exponents;
#pragma unroll
        for (int32_t i = 0; i < 4; ++i) {
            const int32_t key = min(place.in_block + i * 8 + lane / 4, last);
            Quarter<c>::load(codes[i], data + key * stride, lane % 4);
            if constexpr (!c.exponents_in_instruction()) exponents[i] = c.exponents ? words[key] : 0;
        }
        if constexpr (c.exponents_in_instruction())
            exponents[0] = words[min(place.in_block + lane % 4 * 8 + lane / 4, last)];
        scale = c.exponents ? 1.0f : __int_as_float(words[min(place.in_block + own_key, last)]);
    }
};

}  // namespace deep_gemm::sm80
