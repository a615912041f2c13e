"""Fits the cost model's constants to measured configs, and says what its picks lose: `calibrate.py fit`, `regret`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import paths  # noqa: F401
from estimates import Estimates, constants_of, text_of
from machine import read_calibration
from predict import fields_of
from shapes import KINDS, sizes_of

from deep_gemm._targets import HOPPER_SMS, HOPPER_TARGET

FITTED_ON = "NVIDIA H200"
COLUMNS = ["swap_ab", "rows", "cols", "cluster_rows", "cluster_cols", "cluster_k", "k_warpgroups", "us"]
# Held fixed by `fit`: the clock, which only scales the other cycle counts, and what no calibration has, of D and BF16.
FIXED = (
    "clock_mhz",
    "slower_products",
    "plain_fp32_cycles_per_element",
    "late_plain_fp32_cycles_per_element",
    "c_cycles_per_element",
    "late_c_cycles_per_element",
    "swapped_c_cycles_per_element",
    "direct_cycles_per_element",
    "own_added_norm",
)
# All that `fit` may change for BF16 operands, whose calls have nothing to promote: the others are those of FP8.
OF_BF16 = (
    "clock_mhz",
    "memory_gb_per_s",
    "tflops",
    "last_gb_per_s",
    "overlap_norm",
    "smem_bytes_per_cycle",
    "l2_bytes_per_cycle",
    "spare_l2",
    "split_copies",
    "split_shared_copies",
    "overlap_cycles",
    "tile_cycles",
    "multicast_tall_cycles",
    "split_us",
    "part_us",
    "turn_us",
    "split_us_per_element",
)
# What a constant may be and still mean what its name says.
RANGES = {
    "clock_mhz": (1600, 1980),
    "launch_us": (1.5, 4.2),
    "memory_gb_per_s": (3000, 4600),
    "tflops": (700, 2500),
    "multicast_us": (0.05, 2),
    "last_gb_per_s": (2000, 100000),
    "added_gb_per_s": (900, 2400),  # that read and write twice as much
    "added_unfetched_gb_per_s": (900, 2400),
    "added_swapped_gb_per_s": (900, 1800),
    "idle_memory": (0.001, 1),
    "idle_group_memory": (0.001, 1),
    "idle_from_us": (5, 60),
    "idle_last_wave": (0.001, 1),
    "overlap_norm": (1.8, 12),
    "block_norm": (6, 9),
    "smem_bytes_per_cycle": (90, 256),
    "l2_bytes_per_cycle": (30, 130),
    "spare_l2": (0.001, 2),
    "split_copies": (1, 3),
    "split_shared_copies": (1, 3),
    "narrow_pieces": (1, 2),
    "copy_64": (1, 2),
    "copy_32": (1, 3),
    "copy_16": (1, 4),
    "promote_cycles": (1, 5),
    "multicast_cycles": (1, 200),
    "multicast_wide_cycles": (-60, 60),
    "multicast_tall_cycles": (-60, 60),  # fewer requests to the L2 may be worth more than the wait
    "promote_col_cycles": (0.1, 20),  # from 0, no factor leads anywhere
    "overlap_cycles": (1, 400),
    "hidden_cycles": (1, 60),
    "fetch_cycles": (10, 6000),
    "tile_cycles": (100, 2000),
    "tile_cycles_per_element": (0.01, 0.5),
    "late_tall_cycles_per_element": (0.001, 0.5),
    "fp32_cycles_per_element": (0.1, 0.5),
    "late_fp32_cycles_per_element": (0.03, 0.5),
    "padding_cycles": (1, 200),
    "padding_tile_cycles": (100, 4000),
    "split_us": (0.05, 4),
    "part_us": (0.001, 0.5),
    "turn_us": (0.02, 2),
}
LEASH = 0.004  # so much worse is a fit whose constants are off those in force by a factor of e, in the root mean square
SMALLEST = 1e-2  # of a constant that is 0, and that no factor would change
INDIFFERENCE = 0.012  # estimates that differ by so little, as a ratio, say nothing about which config is faster


class Data:
    """Measured configs as arrays, and the best time of each one's problem: those that selection still has."""

    def __init__(self, *files: Path, kinds: tuple[str, ...] = KINDS) -> None:
        self.cases: list[list] = []
        self.configs: list[str] = []
        self.gpu = ""
        self._estimates, self._calls = Estimates(), []
        times, owners, rows = [], [], []
        for path in files:
            document = read_calibration(path)
            assert document["columns"] == COLUMNS, f"{path} has other columns"
            gpu = document["machine"].get("gpu", FITTED_ON)  # the simulator stands for it
            assert self.gpu in ("", gpu), f"{path} is of another GPU than the files before"
            self.gpu = gpu
            for problem in document["problems"]:
                case = problem["case"]
                if case[0] not in kinds:
                    continue
                sizes = sizes_of(case, problem.get("total"), problem.get("seed", 0))
                call = (*fields_of(sizes, document["machine"].get("num_sms", HOPPER_SMS)), HOPPER_TARGET)
                us = {text_of(config): time for *config, time in problem["rows"]}
                legal = self._estimates.add(*call, list(us), gpu)
                if not legal:
                    continue
                self._calls.append(call)
                self.configs += legal
                times += [us[config] for config in legal]
                owners += [len(self.cases)] * len(legal)
                rows += [sizes.m] * len(legal)
                self.cases.append(case)
        self.problem = np.array(owners, dtype=int)
        self.us, self.m = np.array(times), np.array(rows)
        best = np.full(len(self.cases), np.inf)
        np.minimum.at(best, self.problem, self.us)
        self.best = best[self.problem]

    def estimate_us(self, constants: dict[str, float]) -> np.ndarray:
        """Of each config; constants that are not named are those in force for this GPU."""
        return np.array(self._estimates.us(constants))

    def constants(self) -> dict[str, float]:
        """In force, for operands as these."""
        return constants_of(*self._calls[0], self.gpu)


def weight_of(case: list) -> float:
    """How much a problem counts in `fit`: weight gradients and K groups are few here, and a percent of a long call is
    much time."""
    return 2.0 if case[0] in ("wgrad", "kgrouped") or (case[0] == "dense" and case[1] >= 1024) else 1.0


def badness(x: dict[str, float], data: Data) -> float:
    """What `fit` makes small: ten times the mean loss of picks, their expected loss, and a quarter of the error near
    the best.

    For the expected loss, which of several configs with nearly equal estimates is picked is chance, so each of them
    counts, the less the larger its estimate; a problem counts by its weight, however many configs it has.
    """
    weights = np.array([weight_of(case) for case in data.cases])
    estimates = data.estimate_us(x)
    first = np.flatnonzero(np.diff(data.problem, prepend=-1))
    lowest = np.minimum.reduceat(estimates, first)[data.problem]
    chance = (lowest / estimates) ** (1 / INDIFFERENCE)
    loss = np.add.reduceat(chance * data.us / data.best, first) / np.add.reduceat(chance, first) - 1
    near = data.us < 1.15 * data.best
    squares = np.add.reduceat(np.where(near, np.log(estimates / data.us) ** 2, 0), first)
    squares /= np.maximum(1, np.add.reduceat(near.astype(int), first))
    loss = np.minimum(loss, 0.5)
    error = float(np.sqrt(np.average(squares, weights=weights)))
    picked = np.maximum.reduceat(np.where(estimates <= lowest, data.us / data.best, 0), first)
    return float(10 * np.log(picked).mean() + np.average(loss + 2 * loss**2, weights=weights)) + 0.25 * error


def fit(arguments: argparse.Namespace) -> int:
    """A random search from the constants in force: a few of them change at a time, mostly by little and at times by
    much (Student's t), less and less, and what is better stays. The picks jump, so there is no gradient to follow."""
    kinds = tuple(arguments.kinds.split(","))
    if "bf16" in kinds and len(kinds) > 1:
        raise ValueError("BF16 has constants of its own: fit --kinds bf16, or the others")
    data = Data(*arguments.files, kinds=kinds)
    if data.gpu != FITTED_ON:
        raise ValueError(f"constants are those of an {FITTED_ON}, and {data.gpu} has others by its data sheet alone")
    start = data.constants()
    names = OF_BF16 if "bf16" in kinds else [name for name in start if name not in FIXED]
    if arguments.constants:
        names = arguments.constants.split(",")
        if unknown := set(names) - set(start):
            raise ValueError(f"the cost model has no {', '.join(sorted(unknown))}")
    generator = np.random.default_rng(arguments.seed)

    def score_of(trial: dict[str, float]) -> float:
        """What the data hardly tell apart had better stay."""
        steps = [np.log(max(trial[name], SMALLEST) / max(start[name], SMALLEST)) for name in names if start[name] >= 0]
        return badness(trial, data) + LEASH * float(np.mean(np.square(steps)))

    found, least = dict(start), score_of(start)
    begin = time.monotonic()
    while (passed := (time.monotonic() - begin) / arguments.seconds) < 1:
        trial, step = dict(found), max(0.01, 0.2 * (1 - passed))
        for name in generator.choice(names, min(len(names), generator.integers(1, 4)), replace=False):
            low, high = RANGES.get(name, (0, np.inf))
            change = np.clip(generator.standard_t(2) * step, -3, 3)
            value = found[name] + change * high if low < 0 else (found[name] or SMALLEST) * np.exp(change)
            trial[name] = float(np.clip(value, low, high))
        if (score := score_of(trial)) < least:
            found, least = trial, score
    for name, value in found.items():
        edge = value in RANGES.get(name, ())
        print(f"    double {name} = {value:.4g};" + ("  // at the edge of its range" if edge else ""))
    print("\nin force:")
    print_regret(start, data, 0)
    print("\nfitted:")
    print_regret(found, data, arguments.worst)
    return 0


def regret(arguments: argparse.Namespace) -> int:
    data = Data(*arguments.files, kinds=tuple(arguments.kinds.split(",")))
    print_regret({}, data, arguments.worst)
    return 0


def print_regret(x: dict[str, float], data: Data, worst: int) -> None:
    """How far the estimates are off, and what the picks lose, in all and by kind."""
    estimates = data.estimate_us(x)
    error = np.log(estimates / data.us)
    near = data.us < 1.1 * data.best
    picks = []
    for index, case in enumerate(data.cases):
        own = np.flatnonzero(data.problem == index)
        pick, best = own[np.argmin(estimates[own])], own[np.argmin(data.us[own])]
        picks.append((data.us[pick] / data.us[best], case, pick, best))
    print(
        f"{len(data.us)} configs of {len(data.cases)} problems; error of the estimate (rms of the logarithm): all "
        f"{rms(error):.3f}, those within 10 % of the best {rms(error[near]):.3f}"
    )
    regrets = np.array([entry[0] for entry in picks])
    print(
        f"regret: mean {regrets.mean():.3f}, median {np.median(regrets):.3f}, largest {regrets.max():.3f}; "
        f"{(regrets < 1.02).sum()} of {len(regrets)} below 1.02"
    )
    kinds = np.array([case[0] for case in data.cases])
    if len(set(kinds)) > 1:
        for kind in dict.fromkeys(kinds):
            own, rows = regrets[kinds == kind], near & (kinds[data.problem] == kind)
            print(
                f"  {kind:10s} {len(own):3d} problems: regret mean {own.mean():.3f}, largest {own.max():.3f}; near the "
                f"best the estimate is {np.exp(error[rows].mean()):.2f} times the time, {rms(error[rows]):.3f} off"
            )
    picks.sort(key=lambda entry: -entry[0])
    for ratio, case, pick, best in picks[:worst]:
        told = [f"{data.configs[x]} {data.us[x]:.1f} us (estimate {estimates[x]:.1f})" for x in (pick, best)]
        print(f"  {ratio:.3f} {' '.join(map(str, case)):28s} picked {told[0]}, best {told[1]}")


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))
