// SM80, and SM120: what a config costs.
#pragma once

#include <deep_gemm/arch/sm80_memory.cuh>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "../candidate.hpp"
#include "cost_constants.hpp"

namespace deep_gemm::sm80 {

/// What parts take that hide behind each other the better, the greater the power.
inline double overlapped(std::initializer_list<double> parts, double power) {
    const double longest = std::max(parts);
    double sum = 0;
    for (const double part : parts) sum += std::pow(part / longest, power);
    return longest * std::pow(sum, 1 / power);
}

struct CostModel : CostConstants {
    /// CTAs that an SM has at once, of so many tiles.
    static double active_ctas(const Problem& p, const GemmConfig& c, double tiles) {
        return std::clamp(std::ceil(tiles / p.num_sms), 1.0, static_cast<double>(c.sm80.ctas_per_sm));
    }

    /// Of a packed weight that a warp converts.
    double packed_cycles(const GemmConfig& c) const {
        if (bits(c.sm80.multiplied_as) <= 8) return integer_cycles;
        const Element from = c.b.element;
        return from == Element::e2m1 || from == Element::e2m1x ? fp4_cycles
               : from == Element::e4m3p                        ? fp8_cycles
                                                               : int4_cycles;
    }

    /// Cycles that an SM takes for one K block of each of these CTAs.
    double block_cycles(const GemmConfig& c, double ctas) const {
        const double k = c.tile.k, rows = c.tile.rows, cols = c.tile.cols;
        const Element factor = c.sm80.multiplied_as;
        const double rate =
            (sum_of(factor) == Element::s32 ? integer_products_per_cycle * 8 : products_per_cycle * 16) / bits(factor);
        const double row_bytes = sm80::row_bytes(c, c.rows_operand()), col_bytes = sm80::row_bytes(c, c.cols_operand());
        const double widened = (widens(c, c.rows_operand()) ? rows * c.col_warps : 0) +
                               (widens(c, c.cols_operand()) ? cols * c.sm80.row_warps : 0);
        const double loaded = rows * row_bytes + cols * col_bytes;
        const double read = rows * c.col_warps * row_bytes + cols * c.sm80.row_warps * col_bytes;
        const double registers =
            (promotes(c) ? promote_cycles * rows * cols * c.sm80.k_warps * scale_groups(c) / group_stages(c) : 0) +
            (c.b.packed() ? packed_cycles(c) * rows * c.col_warps * k : 0) + widen_cycles * widened * k;
        const double in_warps = overlapped({rows * cols * k / rate, registers, (loaded + read) / smem_bytes_per_cycle},
                                           ctas * warps(c) >= 8 ? two_warps : one_warp);
        const double from_l2 = ctas * loaded / l2_bytes_per_cycle;
        // 16 bytes of a thread are some four instructions (docs/architectures.md counts them), which boxes save.
        constexpr double kCopyCycles = 4;
        const double saved = c.sm80.copy_engine ? kCopyCycles * loaded / (kChunkBytes * 128) : 0;
        const double issue = std::max(issue_cycles - saved, 0.0);
        const double by_warp = has_copy_warp(c) && !c.sm80.copy_engine ? copy_warp_cycles * loaded : 0;
        const double busy = overlapped({ctas * in_warps, from_l2, by_warp}, copies) + issue;
        // What is copied has the time of all other stages, less that until warps ask for it.
        const double stages = c.stages - 1 - (has_copy_warp(c) ? 0 : (copy_step(c) + 1.0) / steps(c));
        return std::max(busy, (latency_cycles + from_l2) / stages);
    }

    /// Memory is as busy as what is under way keeps it, and where few tiles leave SMs out, as these do.
    double memory_us(const Problem& p, const GemmConfig& c, double ctas, double tiles) const {
        const double rows = expected_rows(p), n = p.n, k = p.k;
        const double moved = expected_weights(p) * n * bytes_of(p.b.element, k) + rows * bytes_of(c.a.element, k) +
                             rows * bytes_of(p.output, n) * (p.add_c ? 2 : 1);
        // What is under way of weights; of integers in large tiles of many tokens, of those (docs/notes/sm80.md).
        const bool large = c.tile.rows * c.tile.cols > 128 * 128 && rows >= 512;
        const int32_t lines = large && c.a.element == Element::s8 && !c.b.packed() ? c.tile_m() : c.tile_n();
        const double ahead = ctas * (c.stages - 1) * bytes_of(c.b.element, lines * c.tile.k);
        const double busy = std::min(1.0, ahead / bytes_under_way) * std::min(1.0, tiles / p.num_sms);
        return moved / bytes_per_us(p) / std::max(busy, 0.05);
    }

    double bytes_per_us(const Problem& p) const { return memory_bytes_per_cycle * p.num_sms * clock_mhz; }

    /// What the product waits for: an operand that is read, and written with other bits.
    double ahead_us(const Problem& p, const Candidate& candidate) const {
        const Preconvert preconvert = candidate.tiling.preconvert;
        if (preconvert == Preconvert::none) return 0;
        const bool of_a = preconvert == Preconvert::a;
        const Element from = of_a ? p.a.element : p.b.element,
                      to = of_a ? candidate.config.a.element : candidate.config.b.element;
        const double rows = of_a ? expected_rows(p) : p.n;
        return convert_us + rows * (bytes_of(from, p.k) + bytes_of(to, p.k)) / bytes_per_us(p);
    }

    /// CTAs that split K add up. Hopper's figures (sm90/cost_constants.hpp).
    static double split_us(const GemmConfig& c) {
        if (c.cluster.k == 1) return 0;
        constexpr double kFirst = 0.5, kPart = 0.03, kElement = 0.0002;
        return kFirst + (c.cluster.k - 1) * (kPart + kElement * c.tile.rows * c.tile.cols);
    }

    double estimate_us(const Problem& p, const GemmConfig& c, int32_t num_ctas) const {
        const ExpectedBlocks blocks = expected_blocks(p, c.tile_m());
        const double tiles = blocks.mean * ceil_div(p.n, c.tile_n()) * c.cluster.k;  // or parts of them
        const double waves = expected_waves(tiles / num_ctas, blocks.scatter), ctas = active_ctas(p, c, tiles);
        const double store = store_cycles * c.tile.rows * c.tile.cols + (c.sm80.k_warps > 1 ? sum_up_cycles : 0);
        const double compute_us =
            (waves * (ceil_div(ceil_div(p.k, c.tile.k), c.cluster.k) * block_cycles(c, ctas) + store * ctas) +
             first_cycles) /
            clock_mhz;
        const double memory = memory_us(p, c, ctas, tiles);
        return launch_us + split_us(c) + std::max(compute_us, memory) + tail_share * std::min(compute_us, memory);
    }

    double candidate_us(const Problem& p, const Candidate& candidate) const {
        return ahead_us(p, candidate) + estimate_us(seen_by(p, candidate.config), candidate.config, candidate.num_ctas);
    }
};

inline double cost_us(const Problem& p, const Candidate& candidate, const CostConstants& constants) {
    Problem average = p;
    average.k = expected_k(p);
    return CostModel{constants}.candidate_us(average, candidate);
}

}  // namespace deep_gemm::sm80
