// Groups of K with scales of their own in one set of sums: of packed weights beside BF16.
//
// Of a scale the power of two is multiplied into the weights when they are converted, which rounds nothing, since BF16
// has FP32's exponents. (Weights count 2^16 times less meanwhile: those below 2^-110 lose bits or become 0. A
// subnormal scale counts as 0.) What is left of it, 1 to 2, is the unit in which a row's sums count while the group is
// under way. Between groups sums are multiplied by the ratio of two units, and at the end by the last one.
#pragma once

#include <deep_gemm/mma/sm90/stages.cuh>
#include <deep_gemm/ptx/pairs.cuh>
#include <deep_gemm/ptx/reciprocal.cuh>

namespace deep_gemm {

/// What is converted at a time, and multiplied while the next is converted: a group, or half of one. Of so many in a
/// block of packed weights a stage may hold half.
template <Constant<GemmConfig> c>
struct PieceOfK {
    static constexpr int32_t kMax = 64, kGroup = c.row_scales().k, kK = kGroup < kMax ? kGroup : kMax,
                             kCount = kPackedK / kK, kOfGroup = kGroup / kK, kOfStage = c.tile.k / kK,
                             kSteps = block_steps(c) / kOfStage;
    static_assert(kCount % 2 == 0, "a block has as many in one set of registers as in the other");

    static constexpr bool begins_group(int32_t piece) { return piece % kOfGroup == 0; }
    static constexpr bool begins_stage(int32_t piece) { return piece % kOfStage == 0; }
};

/// Of a thread's two rows, the units that their sums count in.
template <Constant<GemmConfig> c>
class Units {
public:
    /// Powers of two beyond this stay with the unit: conversion multiplies by 2^126 already.
    static constexpr uint32_t kMaxPower = in_both(0x4800);                       // 2^17
    static constexpr uint32_t kLessBits = in_both(16 << 7), kLess = 0x37803780;  // so much less, 2^16, have weights

    /// A group begins. Returns the powers of two, as BF16; 0 of scales that are 0, whose weights become 0.
    DG_DEVICE uint32_t begin(const float (&scales)[2]) {
        constexpr uint32_t kExponents = in_both(0x7f80);
        const uint32_t upper = __byte_perm(__float_as_uint(scales[0]), __float_as_uint(scales[1]), 0x7632),
                       powers = ptx::min_bf16x2(upper & kExponents, kMaxPower);
#pragma unroll
        for (int32_t row = 0; row < 2; ++row) {
            constexpr uint32_t kReciprocal = 0x7f000000;  // less a power of two: 1 over it
            const uint32_t power = row == 0 ? powers << 16 : powers & 0xffff0000;
            const float rest = scales[row] * __uint_as_float(kReciprocal - power);
            const bool none = power == 0;
            // Rounded well: an error of each group's ratio would stay in all sums before it.
            const float reciprocal = ptx::reciprocal_approx(rest), close = unit_[row] * reciprocal,
                        ratio = __fmaf_rn(__fmaf_rn(-close, rest, unit_[row]), reciprocal, close);
            ratio_[row] = none ? 1 : ratio;
            unit_[row] = none ? unit_[row] : rest;
        }
        return powers;
    }

    /// Sums from the last group's units to this one's.
    DG_DEVICE void rescale(Sums<c>& total) const {
#pragma unroll
        for (int32_t i = 0; i < kAccumulators<c>; ++i) total[i] *= ratio_[Fragment16x8::half(i)];
    }

    /// What sums stand for, behind the last group. Of a row without any scale 0.
    DG_DEVICE void finish(Sums<c>& total) const {
        constexpr float kMore = 65536;
        const float unit[2] = {unit_[0] * kMore, unit_[1] * kMore};
#pragma unroll
        for (int32_t i = 0; i < kAccumulators<c>; ++i) total[i] *= unit[Fragment16x8::half(i)];
    }

private:
    float unit_[2] = {0, 0}, ratio_[2];
};

/// Conversion of a group's weights, times powers of two of the thread's two rows.
template <Constant<GemmConfig> c>
class ScaledConversion {
    static constexpr Element kFrom = c.rows_operand().element;
    using Way = Convert<kFrom, Element::bf16>;
    static constexpr bool kSubtracts = requires { Way::kMinusMiddle; };

public:
    DG_DEVICE void begin(const Stages<c>& stages, uint32_t powers, int32_t first_k) {
        halves(ptx::multiply_bf16x2(powers, Way::kFactors - Units<c>::kLessBits), factors_);
        if constexpr (c.rows_operand().has_zeros()) {
            constexpr int32_t kZerosK = c.rows_operand().zeros_k;
            uint32_t words[2];
            stages.load_zeros(words, kZerosK == kAll || kZerosK > c.tile.k ? 0 : first_k / kZerosK);
            const uint32_t both = __byte_perm(words[0], words[1], 0x5410);
            halves(ptx::multiply_bf16x2(ptx::multiply_bf16x2(both, Units<c>::kLess), powers), zeros_);
        } else if constexpr (kSubtracts) {
            halves(ptx::multiply_bf16x2(powers, Way::kMinusMiddle - Units<c>::kLessBits), zeros_);
        }
    }

    DG_DEVICE void run(const int32_t* of, uint32_t (&to)[4]) const {
        if constexpr (kSubtracts)
            convert(of, to, zeros_[0], zeros_[1], factors_[0], factors_[1]);
        else
            convert(of, to, factors_[0], factors_[1]);
    }

private:
    template <typename... Numbers>
    static DG_DEVICE void convert(const int32_t* of, uint32_t (&to)[4], Numbers... numbers) {
        if constexpr (bits(kFrom) == 8) {
            Way::run(static_cast<uint32_t>(of[0]), to[0], to[1], numbers...);
            Way::run(static_cast<uint32_t>(of[1]), to[2], to[3], numbers...);
        } else {
            Way::run(static_cast<uint32_t>(of[0]), to, numbers...);
        }
    }
    static DG_DEVICE void halves(uint32_t pair, uint32_t (&each)[2]) {
        each[0] = __byte_perm(pair, pair, 0x1010), each[1] = __byte_perm(pair, pair, 0x3232);
    }

    uint32_t factors_[2], zeros_[2];
};

template <Constant<GemmConfig> c>
struct Rescale {
    static_assert(kSubtiles<c> == 1);
    static_assert(!IssueOrder<c>::kOrdered || PieceOfK<c>::kCount % PieceOfK<c>::kOfGroup == 0,
                  "a block ends with a group, behind which the next warpgroup may issue");

    /// The first products stand before the loop: were a question in each round what else there is to do, ptxas would
    /// let wgmma wait for each other.
    template <typename Meanwhile>
    static DG_DEVICE void run(Stages<c>& stages, Totals<c>& total, const Tile&, int32_t count,
                              const Meanwhile& meanwhile) {
        Words words[2];
        ScaledConversion<c> conversion;
        Units<c> units;
        stages.wait_full();
        convert(stages, words[0], conversion, units, 0);
        meanwhile();
        take_turn(stages, total[0], words[0], 0, /*first=*/true);
        count /= c.stages_of_block();
        for (;;) {
            int32_t before = stages.current();
#pragma unroll
            for (int32_t piece = 1; piece < Piece::kCount; ++piece) {
                if (Piece::begins_stage(piece)) {
                    stages.advance();
                    stages.wait_full();
                }
                convert(stages, words[piece % 2], conversion, units, piece);
                if (Piece::begins_group(piece)) {
                    finish_block<0>(total[0]);
                    pin(words[(piece + 1) % 2]);
                    if (Piece::begins_stage(piece)) stages.release(before);
                    units.rescale(total[0]);
                }
                take_turn(stages, total[0], words[piece % 2], piece);
            }
            if (Piece::kOfGroup > 1) {
                ptx::wgmma_wait<1>();
                pin(words[0]);
                if (Piece::begins_stage(1)) stages.release(before);
            }
            if (--count == 0) break;
            before = stages.current();
            stages.advance();
            stages.wait_full();
            convert(stages, words[0], conversion, units, 0);
            finish_block<0>(total[0]);
            pin(words[1]);
            stages.release(before);
            units.rescale(total[0]);
            take_turn(stages, total[0], words[0], 0);
        }
        finish_block<0>(total[0]);
        pin(words[0]);
        pin(words[1]);
        stages.release(stages.current());
        stages.advance();
        units.finish(total[0]);
    }

private:
    using Piece = PieceOfK<c>;
    using Words = uint32_t[Piece::kSteps][4];

    static DG_DEVICE void pin(Words& words) {
#pragma unroll
        for (int32_t i = 0; i < Piece::kSteps * 4; ++i) ptx::pin(words[i / 4][i % 4]);
    }

    static DG_DEVICE void convert(const Stages<c>& stages, Words& words, ScaledConversion<c>& conversion,
                                  Units<c>& units, int32_t piece) {
        using Unit = PackedUnits<c>;
        if (Piece::begins_group(piece)) {
            float scales[2];
            const int32_t of_stage = piece % Piece::kOfStage;
            stages.load_row_scales(scales, of_stage / Piece::kOfGroup);
            conversion.begin(stages, units.begin(scales), of_stage * Piece::kK);
        }
        const uint32_t first = stages.packed_units();
        piece %= Piece::kOfStage;
        if constexpr (Piece::kSteps < Unit::kSteps) {
            static_assert(Piece::kSteps * Unit::kStepWords == 2 && Unit::kStepWords == 1);
            const int2 two = ptx::load_shared_int_x2(first + piece / 2 * Unit::kBytes + piece % 2 * 8);
            const int32_t of[2] = {two.x, two.y};
#pragma unroll
            for (int32_t step = 0; step < Piece::kSteps; ++step) conversion.run(of + step, words[step]);
        } else {
            constexpr int32_t kUnits = Piece::kSteps / Unit::kSteps;
#pragma unroll
            for (int32_t i = 0; i < kUnits; ++i) {
                const int4 unit = ptx::load_shared_int_x4(first + (piece * kUnits + i) * Unit::kBytes);
                const int32_t of[4] = {unit.x, unit.y, unit.z, unit.w};
#pragma unroll
                for (int32_t j = 0; j < Unit::kSteps; ++j)
                    conversion.run(of + j * Unit::kStepWords, words[i * Unit::kSteps + j]);
            }
        }
    }

    /// Issues a piece's products, of a tile's `first` one or another. Warpgroups in order issue group by group.
    static DG_DEVICE void take_turn(const Stages<c>& stages, Accumulators<c>& total, Words& words, int32_t piece,
                                    bool first = false) {
        if (Piece::begins_group(piece)) stages.wait_for_order();
        multiply(stages, total, words, piece);
        if (first) stages.keep_apart();
        if (Piece::begins_group(piece + 1)) stages.pass();
    }

    static DG_DEVICE void multiply(const Stages<c>& stages, Accumulators<c>& total, Words& words, int32_t piece) {
        const uint64_t descriptor = ptx::wgmma_descriptor(stages.cols());
        const int32_t first = piece % Piece::kOfStage * Piece::kSteps;
#pragma unroll
        for (int32_t i = 0; i < kAccumulators<c>; ++i) ptx::pin(total[i]);
        pin(words);
        ptx::wgmma_fence();
#pragma unroll
        for (int32_t step = 0; step < Piece::kSteps; ++step)
            issue_wgmma<c>(total, words[step], descriptor + step_distance<c>(first + step), true);
        ptx::wgmma_commit();
#pragma unroll
        for (int32_t i = 0; i < kAccumulators<c>; ++i) ptx::pin(total[i]);
    }
};

}  // namespace deep_gemm
