"""The cost model of csrc/config/sm90.hpp in numpy, over many configs at once: what calibrate.py fits and pictures show.

Names and formulas are those of `struct CostModel` there. The constants are read from that file, so that they stand in
one place; the formulas stand in two, and `python benchmarks/calibrate.py check` compares what they give.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

HEADER = Path(__file__).resolve().parent.parent / "csrc" / "config" / "sm90.hpp"
MATH_REGISTERS = 232  # of a thread, with two math warpgroups (plan.cuh)


@dataclass
class Configs:
    """Problems and configs for them, one per index of each array. FP8, BF16 output, scales per row and per block."""

    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    swap_ab: np.ndarray
    rows: np.ndarray
    cols: np.ndarray
    cluster_rows: np.ndarray
    cluster_cols: np.ndarray
    cluster_k: np.ndarray

    @classmethod
    def of(cls, lines: list) -> Configs:
        """From lines of [m, n, k, swap_ab, rows, cols, cluster rows, cluster cols, cluster k]."""
        columns = np.array(lines, dtype=float).T
        return cls(*columns[: len(fields(cls))])


def constants() -> dict[str, float]:
    """The constants that selection uses now."""
    struct = HEADER.read_text().split("struct CostModel {")[1].split("/// Cycles that")[0]
    code = re.sub(r"//.*", "", struct)
    return {name: float(value) for name, value in re.findall(r"(\w+) = ([\d.e+-]+)", code)}


def ceil_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.ceil(a / b)


def norm(power: float, *values: np.ndarray) -> np.ndarray:
    """1 adds the values up; infinity takes the largest."""
    return sum(value**power for value in values) ** (1 / power)


def resident_ctas(num_sms: int, cluster: np.ndarray) -> np.ndarray:
    sms = np.where(cluster <= 2, num_sms, num_sms * 10 // 11)
    return sms // cluster * cluster


def block_cycles(x: dict[str, float], c: Configs) -> np.ndarray:
    """Cycles that one K block takes in a CTA of a busy machine."""
    swapped = c.swap_ab == 1
    subtiles = c.rows / np.where(c.rows == 64, 1, 2) / 64  # of one math warpgroup
    multiplies = c.rows / 64
    tensor = multiplies * c.cols * 2
    smem = (multiplies * (64 + c.cols) + c.rows + c.cols) * 128 / x["smem_bytes_per_cycle"]
    l2 = (c.rows / c.cluster_cols + c.cols / c.cluster_rows) * 128 / x["l2_bytes_per_cycle"]
    runs = np.where(swapped, 0, c.cols / np.gcd(c.cols.astype(int), 128))
    per_col = np.where(c.cols > 64, x["promote_smem_cycles"], x["promote_col_cycles"])
    promote = c.cols / 2 * np.where(swapped, per_col, x["promote_cycles"])
    promote = promote + np.where(runs > 3, runs * x["run_cycles"], 0)
    scale_registers = np.where(swapped, np.where(c.cols > 64, 1, c.cols / 4), runs)
    overlaps = (subtiles == 1) & (1.5 * c.cols + 2 * scale_registers <= MATH_REGISTERS - 36)
    overlapped = norm(x["overlap_block_norm"], 2 * c.cols, promote) + x["overlap_cycles"]
    chain = np.where(overlaps, overlapped, subtiles * (2 * c.cols + promote + x["chain_cycles"]))
    shared = c.cluster_rows * c.cluster_cols > 1
    return np.maximum.reduce([tensor, smem, l2, chain]) * np.where(shared, x["multicast_factor"], 1)


def estimate_us(x: dict[str, float], c: Configs, num_sms: int = 132) -> np.ndarray:
    """Estimated time of each config."""
    swapped = c.swap_ab == 1
    cluster = c.cluster_rows * c.cluster_cols * c.cluster_k
    super_rows, super_cols = c.rows * c.cluster_rows, c.cols * c.cluster_cols
    m_blocks = ceil_div(c.m, np.where(swapped, super_cols, super_rows))
    n_blocks = ceil_div(c.n, np.where(swapped, super_rows, super_cols))
    tiles = m_blocks * n_blocks
    num_ctas = np.minimum(tiles * cluster, resident_ctas(num_sms, cluster))
    waves = np.ceil(tiles / (num_ctas // cluster))
    k_blocks = ceil_div(ceil_div(c.k, 128), c.cluster_k)
    elements = c.rows * c.cols
    tile = x["tile_cycles"] + x["tile_cycles_per_element"] * elements
    compute_us = waves * (k_blocks * block_cycles(x, c) + tile) / x["clock_mhz"]
    memory_us = (c.n * c.k + c.m * c.k + 2 * c.m * c.n) / x["memory_gb_per_s"] / 1e3
    power_us = 2 * c.m * c.n * c.k / x["tflops"] / 1e6
    split = np.where(c.cluster_k > 1, x["split_us"] * c.cluster_k + x["split_us_per_element"] * elements, 0)
    return x["launch_us"] + split + norm(x["overlap_norm"], compute_us, memory_us, power_us)
