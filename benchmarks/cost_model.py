"""The cost model of csrc/config/sm90/cost.hpp in numpy, over many configs at once: for calibrate.py and pictures.py.

Names and formulas are those of `struct CostModel` there. The constants are read from cost_constants.hpp beside it, so
that they stand in one place; the formulas stand in two, and `python benchmarks/calibrate.py check` compares what they
give.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np
import paths  # noqa: F401
from shapes import ALIGNMENT, KINDS, Sizes

from deep_gemm._extension import C
from deep_gemm._targets import HOPPER_SMS

FITTED_ON = "NVIDIA H200"
HEADER = Path(__file__).resolve().parent.parent / "csrc" / "config" / "sm90" / "cost_constants.hpp"
DENSE, WGRAD, CONTIGUOUS, MASKED, KGROUPED, BF16 = range(len(KINDS))


@dataclass
class Configs:
    """Problems and configs for them, one per index of each array. `kind` is an index of KINDS.

    D is BF16, or for weight gradients and K groups FP32 that is added to: what the model has for other D is not here.
    """

    kind: np.ndarray
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    groups: np.ndarray
    expected_m: np.ndarray
    swap_ab: np.ndarray
    rows: np.ndarray
    cols: np.ndarray
    cluster_rows: np.ndarray
    cluster_cols: np.ndarray
    cluster_k: np.ndarray
    k_warpgroups: np.ndarray  # warpgroups that take K blocks of the same rows in turn
    stages: np.ndarray  # that selection gives the config

    @classmethod
    def of(cls, pairs: list[tuple[Sizes, tuple[int, ...]]], stages: list[int]) -> Configs:
        """From problems with configs: (swap_ab, rows, cols, cluster rows, cluster cols, cluster k, k_warpgroups),
        and the stages of each."""
        lines = [
            [KINDS.index(sizes.kind), sizes.m, sizes.n, sizes.k, sizes.groups, sizes.expected_m, *config, count]
            for (sizes, config), count in zip(pairs, stages, strict=True)
        ]
        columns = np.array(lines, dtype=float).reshape(len(lines), len(fields(cls))).T
        return cls(*columns)

    @cached_property
    def per_row_b(self) -> np.ndarray:
        return (self.kind == WGRAD) | (self.kind == KGROUPED)

    @cached_property
    def multicasts(self) -> np.ndarray:
        return self.cluster_rows * self.cluster_cols > 1

    @cached_property
    def bf16(self) -> np.ndarray:
        """Of operands."""
        return self.kind == BF16

    @cached_property
    def operand_bytes(self) -> np.ndarray:
        return np.where(self.bf16, 2, 1)

    @cached_property
    def output_bytes(self) -> np.ndarray:
        return np.where(self.per_row_b, 4, 2)

    @cached_property
    def tiles(self) -> np.ndarray:
        """Of a dense problem."""
        tile_m, tile_n = np.where(self.swap_ab == 1, [self.cols, self.rows], [self.rows, self.cols])
        return np.ceil(self.m / tile_m) * np.ceil(self.n / tile_n)

    @cached_property
    def shares_last(self) -> np.ndarray:
        """Whether pairs share only the tiles of the last wave, on an H200, or all of the largest ones if there is no
        more than that. Selection refuses those that cannot."""
        dense = (self.kind == DENSE) | (self.kind == WGRAD) | (self.kind == BF16)
        large = (self.rows < 256) & (self.rows * self.cols >= 128 * 192)
        return dense & (self.cluster_k == 2) & (self.k_warpgroups == 1) & ((self.tiles * 2 > HOPPER_SMS) | large)

    @cached_property
    def k_ctas(self) -> np.ndarray:
        """CTAs that split K of every tile."""
        return np.where(self.shares_last, 1, self.cluster_k)

    @cached_property
    def k_parts(self) -> np.ndarray:
        return self.k_ctas * self.k_warpgroups

    @cached_property
    def row_warpgroups(self) -> np.ndarray:
        return np.select([self.rows == 192, self.rows == 64], [3, 1], 2)

    @cached_property
    def row_alignment(self) -> np.ndarray:
        """Of both operands, whose rows follow each other without a gap: csrc/config/problem.hpp."""
        return np.where(self.kind == KGROUPED, 128, np.gcd((self.k * self.operand_bytes).astype(int), 128))

    @cached_property
    def subtiles(self) -> np.ndarray:
        """64-row pieces of one math warpgroup."""
        return self.rows / self.row_warpgroups / 64

    @cached_property
    def per_row_cols(self) -> np.ndarray:
        return ((self.swap_ab == 1) & ~self.bf16) | self.per_row_b

    # From here on: deep_gemm/include/deep_gemm/arch/sm90_memory.cuh.

    @cached_property
    def block_scales(self) -> np.ndarray:
        extent = np.where(self.swap_ab == 1, self.rows, self.cols)
        return np.where(self.per_row_b | self.bf16, 0, extent / np.gcd(extent.astype(int), 128))

    @cached_property
    def math_registers(self) -> np.ndarray:
        return np.where(self.row_warpgroups * self.k_warpgroups < 3, 232, 160)

    @cached_property
    def wgmma_products(self) -> np.ndarray:
        return self.per_row_b & (self.rows == 128) & (self.cols >= 64) & (self.cols <= 128) & (self.k_parts == 1)

    @cached_property
    def held_col_groups(self) -> np.ndarray:
        room = (self.math_registers - 22 - (self.subtiles + 1) * self.cols / 2) // 2
        return np.where(self.per_row_cols & ~self.wgmma_products, np.clip(room, 0, self.cols // 8), 0)

    @cached_property
    def overlaps_blocks(self) -> np.ndarray:
        held = self.per_row_cols & (self.held_col_groups == self.cols // 8)
        scales = np.where(held, self.cols / 4, self.block_scales)
        fits = (1.5 * self.cols + 2 * scales) <= self.math_registers - 36
        return ~self.bf16 & (self.subtiles == 1) & ~self.wgmma_products & fits

    @cached_property
    def looks_ahead(self) -> np.ndarray:
        one = np.where(self.per_row_b, self.wgmma_products, self.cols >= 144)
        two_warpgroups = self.row_warpgroups * self.k_warpgroups == 2
        taller = self.subtiles > 1
        return ~self.bf16 & ~self.overlaps_blocks & (self.k_parts == 1) & (taller | (two_warpgroups & one))

    @cached_property
    def has_store_warp(self) -> np.ndarray:
        """Of tiles that are added to D. All have buffers for all of it, but those of 256 rows beside K groups' maps."""
        together = self.looks_ahead | (self.overlaps_blocks & (self.swap_ab == 0))
        room = (self.rows < 256) | (self.kind != KGROUPED)
        return together & room & (self.row_warpgroups * self.k_warpgroups > 1) & (self.k_parts == 1)

    @cached_property
    def skips_padding(self) -> np.ndarray:
        groups = (self.kind == CONTIGUOUS) | (self.kind == MASKED)
        return groups & self.looks_ahead & (self.swap_ab == 0) & (self.rows == 256) & (self.cols == 128)

    @cached_property
    def issues_in_order(self) -> np.ndarray:
        return self.looks_ahead & (self.subtiles == 1) & ~self.wgmma_products


def constants(bf16: bool = False) -> dict[str, float]:
    """The constants that selection uses now, for FP8 or for BF16 operands."""
    struct = HEADER.read_text().split("struct CostConstants {")[1].split("};")[0]
    code = re.sub(r"//.*", "", struct)
    common, own = code.split("static CostConstants of(")
    found = {name: float(value) for name, value in re.findall(r"(\w+) = ([\d.e+-]+)", common)}
    if bf16:
        found |= {name: float(value) for name, value in re.findall(r"x\.(\w+) = ([\d.e+-]+)", own)}
    return found


def constants_of(c: Configs) -> dict[str, np.ndarray]:
    """The same for each config."""
    fp8, bf16 = constants(), constants(bf16=True)
    return {name: np.where(c.bf16, bf16[name], fp8[name]) for name in fp8}


def on_gpu(x: dict, gpu: str) -> dict:
    """The same for another GPU than the H200 that they were fitted on (`cost_constants`)."""
    own, fitted = (C.card_facts(name) for name in (gpu, FITTED_ON))
    return x | {
        "clock_mhz": x["clock_mhz"] * own["clock_mhz"] / fitted["clock_mhz"],
        "memory_gb_per_s": x["memory_gb_per_s"] * own["memory_gb_per_s"] / fitted["memory_gb_per_s"],
        "tflops": x["tflops"] * own["watts"] / fitted["watts"],
        "slower_products": fitted["products_per_cycle"] / own["products_per_cycle"],
    }


def ceil_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.ceil(a / b)


def norm(power: float, *values: np.ndarray) -> np.ndarray:
    """1 adds the values up; infinity takes the largest."""
    return sum(value**power for value in values) ** (1 / power)


def round_up_coarsely(value: np.ndarray) -> np.ndarray:
    step = np.maximum(1, 2 ** np.floor(np.log2(np.maximum(value, 1))) / 4 // 1)
    return np.ceil(value / step) * step


def resident_ctas(num_sms: int, cluster: np.ndarray) -> np.ndarray:
    return np.where(cluster <= 2, num_sms, num_sms * 10 // 11) // cluster * cluster


# What the host knows of rows and weights: csrc/config/problem.hpp.


def known_rows(c: Configs) -> np.ndarray:
    return np.where(c.kind == CONTIGUOUS, round_up_coarsely(c.m), c.m)


def expected_rows(c: Configs) -> np.ndarray:
    return np.select([c.kind == MASKED, c.kind == KGROUPED], [c.expected_m * c.groups, c.m * c.groups], known_rows(c))


GROUP_SCATTER = 0.3


def sizes_of_groups(rows: np.ndarray) -> np.ndarray:
    """Rows that groups have when they scatter around this many."""
    return np.array(
        [np.maximum(1, np.floor(rows * (1 - GROUP_SCATTER + 2 * GROUP_SCATTER * i / 12) + 0.5)) for i in range(13)]
    )


def expected_blocks(c: Configs, height: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of M on average, and by what part of it they scatter."""
    drawn = ceil_div(sizes_of_groups(c.expected_m), height)
    mean = drawn.mean(axis=0)
    variance = np.maximum(0, (drawn**2).mean(axis=0) - mean**2)
    scatter = np.where(c.kind == MASKED, np.sqrt(3 * variance / c.groups) / mean, 0)
    blocks = ceil_div(known_rows(c), height)
    weights = expected_weights(c)
    higher = np.maximum(weights, known_rows(c) / height + weights * (1 - ALIGNMENT / height) / 2)
    aligned = np.where(ALIGNMENT % height == 0, blocks, higher)
    real = ceil_div(sizes_of_groups(expected_expert_rows(c)), 64).mean(axis=0) * weights
    aligned = np.where(height == 64, real, aligned)
    kinds = [c.kind == MASKED, c.kind == KGROUPED, c.kind == CONTIGUOUS]
    return np.select(kinds, [mean * c.groups, blocks * c.groups, aligned], blocks), scatter


def expected_expert_rows(c: Configs) -> np.ndarray:
    """Without padding."""
    return np.where(c.kind == MASKED, c.expected_m, known_rows(c) / expected_weights(c) - (ALIGNMENT - 1) / 2)


def expected_row_steps(c: Configs) -> np.ndarray:
    """Times 64 rows that tiles of 256 rows multiply where padding is left out; one by itself takes as long as two."""
    steps = ceil_div(sizes_of_groups(expected_expert_rows(c)), 64)
    return np.mean(steps + (steps % 4 == 1), axis=0) * expected_weights(c)


def most_blocks(c: Configs, height: np.ndarray) -> np.ndarray:
    lower = np.where(c.kind == CONTIGUOUS, np.minimum(height, ALIGNMENT), height)
    return ceil_div(c.m, lower) * np.where((c.kind == MASKED) | (c.kind == KGROUPED), c.groups, 1)


def expected_waves(tiles_per_cta: np.ndarray, scatter: np.ndarray) -> np.ndarray:
    return np.maximum(1, sum(np.ceil(tiles_per_cta * factor) for factor in (1 - scatter, 1, 1 + scatter)) / 3)


def expected_weights(c: Configs) -> np.ndarray:
    contiguous = np.minimum(c.groups, ceil_div(c.m, ALIGNMENT))
    return np.select([c.kind == CONTIGUOUS, (c.kind == MASKED) | (c.kind == KGROUPED)], [contiguous, c.groups], 1)


# What a config costs: csrc/config/sm90/cost.hpp.


def promotion_cycles(x: dict[str, float], c: Configs) -> np.ndarray:
    """Cycles that promoting one K block takes in a warpgroup, for each 64 rows."""
    held = 8 * c.held_col_groups / c.cols
    product = held * x["promote_held_product_cycles"] + (1 - held) * x["promote_product_cycles"]
    kinds = [c.wgmma_products, c.per_row_b, c.per_row_cols]
    of_kind = [x["promote_wgmma_product_cycles"], product, x["promote_col_cycles"]]
    each = np.select(kinds, of_kind, x["promote_cycles"])
    runs = np.where(c.per_row_cols, 0, c.block_scales)
    return np.where(c.bf16, 0, c.cols / 2 * each + np.where(runs > 3, runs * x["run_cycles"], 0))


def block_cycles(x: dict[str, float], c: Configs, busy: np.ndarray) -> np.ndarray:
    """Cycles that one K block takes in a CTA. `busy`: CTAs over SMs."""
    multiplies = c.rows / 64
    wgmma_cycles = 2 * c.cols * np.where(c.wgmma_products, 1.25, 1) * x["slower_products"]
    tensor = multiplies * wgmma_cycles
    smem = (multiplies * (64 + c.cols) + c.rows + c.cols) * 128 / x["smem_bytes_per_cycle"]
    sizes = [c.row_alignment == size for size in (128, 64, 32)]
    copies = np.maximum(1, busy * np.select(sizes, [1, x["copy_64"], x["copy_32"]], x["copy_16"]))
    bytes_per_cycle = x["l2_bytes_per_cycle"] * (1 + x["spare_l2"] * (1 - busy))
    l2 = copies * (c.rows / c.cluster_cols + c.cols / c.cluster_rows) * 128 / bytes_per_cycle
    alone = c.m <= np.where(c.swap_ab == 1, c.cols, c.rows)
    l2 = l2 * np.where(c.k_ctas == 1, 1, np.where(alone, x["split_copies"], x["split_shared_copies"]))
    waits = np.select(
        [c.overlaps_blocks | c.bf16, c.issues_in_order, c.looks_ahead],
        [x["overlap_cycles"], x["ordered_cycles"], x["ahead_cycles"]],
        x["chain_cycles"],
    )
    chain = c.subtiles * (wgmma_cycles + promotion_cycles(x, c) + waits)
    held = c.k_warpgroups * np.where(c.overlaps_blocks, 2, 1)
    late = x["fetch_cycles"] / np.maximum(c.stages - held, 0.5)
    hidden = np.where(c.k_warpgroups > 1, x["hidden_cycles"], 0)
    cycles = norm(x["block_norm"], tensor, smem, l2, chain / c.k_warpgroups, late) - hidden
    pair = np.where(c.subtiles > 1, x["multicast_tall_cycles"], x["multicast_cycles"])
    cycles = cycles + np.where(c.multicasts, pair, 0) + np.where(c.skips_padding, x["padding_cycles"], 0)
    return cycles + np.where(c.shares_last, x["shared_cycles"], 0)


def wave_by_wave_us(
    x: dict[str, float], waves: np.ndarray, wave_us: np.ndarray, sharers: np.ndarray, memory_us: np.ndarray
) -> np.ndarray:
    """Waves of tiles, each with its own share of the memory's time, and the last one, of fewer tiles."""
    full = np.floor(waves)
    part = waves - full
    last = np.where(part > 0, norm(x["overlap_norm"], wave_us / sharers, memory_us * part / waves), 0)
    return full * norm(x["overlap_norm"], wave_us, memory_us / waves) + last


def estimate_us(x: dict[str, float], c: Configs, num_sms: int = HOPPER_SMS) -> np.ndarray:
    """Estimated time of each config."""
    swapped = c.swap_ab == 1
    cluster = c.cluster_rows * c.cluster_cols * c.cluster_k
    tile_m, tile_n = np.where(swapped, c.cols, c.rows), np.where(swapped, c.rows, c.cols)
    step_m = np.where(swapped, c.cluster_cols, c.cluster_rows)
    step_n = np.where(swapped, c.cluster_rows, c.cluster_cols)
    n_blocks = ceil_div(c.n, tile_n * step_n)
    together = np.where(c.shares_last, 1, cluster)  # CTAs that walk the same tiles
    ctas = ceil_div(most_blocks(c, tile_m), step_m) * n_blocks * cluster
    num_ctas = np.minimum(ctas, resident_ctas(num_sms, cluster))
    blocks, scatter = expected_blocks(c, tile_m * step_m)
    full = expected_row_steps(c) * 64 / tile_m
    wanted = np.where(c.skips_padding & (c.kind == MASKED), full / blocks, 1)
    blocks = np.where(c.skips_padding & (c.kind != MASKED), full, blocks)
    tiles = blocks * n_blocks
    walks = tiles / (num_ctas // together)
    waves = wanted * np.where(c.shares_last, np.floor(walks) + 1 / c.cluster_k, expected_waves(walks, scatter))
    k = np.where(c.kind == KGROUPED, np.maximum(1, c.k // c.groups), c.k)
    k_blocks = ceil_div(ceil_div(k * c.operand_bytes, 128), c.k_ctas)
    elements = c.rows * c.cols
    adds = c.per_row_b  # these benchmarks add to D in place
    late_added = x["fp32_cycles_per_element"] + x["late_plain_fp32_cycles_per_element"]
    late_added = late_added - x["plain_fp32_cycles_per_element"]
    late = np.where(c.subtiles > 1, x["late_tall_cycles_per_element"], x["late_cycles_per_element"])
    of_element = np.select(
        [adds & c.looks_ahead & c.wgmma_products, adds & c.looks_ahead, adds, c.looks_ahead],
        [x["late_fp32_cycles_per_element"], late_added, x["fp32_cycles_per_element"], late],
        x["tile_cycles_per_element"],
    )
    area = num_ctas // c.k_ctas * elements
    of_padding = np.where(c.skips_padding, x["padding_tile_cycles"], 0)
    tile = x["tile_cycles"] + of_padding + elements * of_element
    wave_us = (k_blocks * block_cycles(x, c, num_ctas / num_sms) + tile) / x["clock_mhz"]
    compute_us = waves * wave_us
    rows = expected_rows(c)
    power_us = 2e-6 * rows * c.n * k / x["tflops"]
    stored = rows * c.n * c.output_bytes
    operands = (expected_weights(c) * c.n + rows) * k * c.operand_bytes
    narrow = ~swapped & ~adds & (c.cols * c.output_bytes % 128 != 0)
    pieces_of_d = np.where(narrow, x["narrow_pieces"], 1)
    moved = operands + stored * (pieces_of_d + np.where(adds, 1, 0))
    read_us = moved / x["memory_gb_per_s"] / 1e3
    idle = 1 - walks / np.where(c.shares_last, waves, np.ceil(walks)) * num_ctas / num_sms
    grouped = (c.kind == CONTIGUOUS) | (c.kind == MASKED)
    of_idle = np.where(adds, 0, np.where(grouped, x["idle_group_memory"], x["idle_memory"]))
    memory_us = read_us + np.maximum(0, read_us - x["idle_from_us"]) * idle * of_idle
    straight = np.where(c.has_store_warp, x["added_gb_per_s"], x["added_unfetched_gb_per_s"])
    added_us = np.where(adds, stored, 0) / np.where(swapped, x["added_swapped_gb_per_s"], straight) / 1e3
    split = np.where(c.k_ctas > 1, x["split_us"] + x["part_us"] * (c.k_ctas - 2), 0)
    split = split + np.where(c.shares_last, x["shared_us"], 0)
    split = split + x["turn_us"] * (c.k_warpgroups - 1) + x["split_us_per_element"] * elements * (1 - 1 / c.k_parts)
    last_us = area * c.output_bytes * pieces_of_d / x["last_gb_per_s"] / 1e3
    pair = np.where(c.multicasts, x["multicast_us"], 0)
    by_wave = (c.kind == DENSE) | (c.kind == BF16)
    waves_us = wave_by_wave_us(x, walks, wave_us, np.where(c.shares_last, 2, 1), memory_us)
    busy_us = np.where(by_wave, waves_us, norm(x["overlap_norm"], compute_us, memory_us))
    hidden = norm(x["overlap_norm"], busy_us, power_us, added_us)
    waits_for_last = (c.kind == MASKED) & (waves > 1)
    last_wave_us = np.where(waits_for_last, x["idle_last_wave"] * wave_us * (np.ceil(walks) - walks), 0)
    return x["launch_us"] + last_wave_us + pair + split + last_us + hidden
