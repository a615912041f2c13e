// The vocabulary of host and device: everything that makes one GEMM kernel different from another.
//
// A kernel is `run_gemm_sm90<kConfig>(params)`, or another architecture's. Selection (csrc/config) fills a GemmConfig
// in, rendering prints it as source, and the device code branches on it with `if constexpr`. Nothing else distinguishes
// kernels.
#pragma once

#include <deep_gemm/arch/facts.cuh>
#include <deep_gemm/arch/sm100_schedule.cuh>
#include <deep_gemm/arch/sm80_schedule.cuh>
#include <deep_gemm/arch/sm90_schedule.cuh>
#include <deep_gemm/epilogue.cuh>
#include <deep_gemm/task.cuh>
#include <deep_gemm/tile.cuh>

namespace deep_gemm {

/// What is multiplied, what becomes of the sums, how it is cut up, and what only one architecture has to say of that.
struct GemmConfig : GemmTask, Epilogue, TilePlan {
    Arch arch = Arch::sm90;
    sm80::Schedule sm80 = {};
    sm90::Schedule sm90 = {};
    sm100::Schedule sm100 = {};

    constexpr bool operator==(const GemmConfig&) const = default;

    // In the frame of the matrix instruction.
    constexpr const Operand& rows_operand() const { return swap_ab ? b : a; }
    constexpr const Operand& cols_operand() const { return swap_ab ? a : b; }
    constexpr const Scaling& row_scales() const { return rows_operand().scaling; }
    constexpr const Scaling& col_scales() const { return cols_operand().scaling; }

    /// Stages that a block of packed weights lies in. One CTA multiplies all of them, one after the other.
    constexpr int32_t stages_of_block() const {
        return rows_operand().packed() && tile.k < kPackedK ? kPackedK / tile.k : 1;
    }

    /// Columns of a tile that a warp holds of 16 of its rows, where warps hold sums in registers.
    constexpr int32_t held_cols() const { return tile.cols / col_warps; }
};

/// The config as those see it who store what a gate has made of columns of the instruction: half as many.
constexpr GemmConfig behind_gate(GemmConfig c) {
    c.tile.cols = c.d_cols(c.tile.cols), c.shape.n = c.d_cols(c.shape.n), c.gate = {};
    return c;
}

/// What templates take of a config: by reference they take complete objects only (CUDA 12.4).
template <Constant<GemmConfig> c>
struct ConfigParts {
    static constexpr Operand kRows = c.rows_operand(), kCols = c.cols_operand();
    static constexpr Scaling kRowScales = c.row_scales(), kColScales = c.col_scales();
    static constexpr GemmConfig kBehindGate = behind_gate(c);
};

}  // namespace deep_gemm
