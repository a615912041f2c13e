"""Fits the cost model's constants to measured configs, and says what its picks lose: `calibrate.py fit`, `regret`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import cost_model
import numpy as np
from cost_model import Configs
from shapes import KINDS, sizes_of

COLUMNS = ["swap_ab", "rows", "cols", "cluster_rows", "cluster_cols", "cluster_k", "turns", "us"]
# Held fixed by `fit`: it only scales the other cycle counts.
FIXED = ("clock_mhz",)
# Cluster shapes that were measured once and are no candidates any more.
CLUSTERS = {(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 1, 3), (1, 1, 4), (1, 1, 8)}


class Data:
    """Measured configs as arrays, and the best time of each one's problem."""

    def __init__(self, *paths: Path, kinds: tuple[str, ...] = KINDS) -> None:
        pairs, times, owners = [], [], []
        self.cases: list[list] = []
        for path in paths:
            document = json.loads(path.read_text())
            without_turns = document["columns"] == [name for name in COLUMNS if name != "turns"]  # November 2026
            assert without_turns or document["columns"] == COLUMNS, f"{path} has other columns"
            for problem in document["problems"]:
                # Files of before November 2026 have dense problems only, without a case.
                case = problem.get("case") or ["dense", problem["m"], problem["n"], problem["k"]]
                rows = [row for row in problem["rows"] if tuple(row[3:6]) in CLUSTERS]
                if case[0] not in kinds or not rows:
                    continue
                sizes = sizes_of(case, problem.get("total"), problem.get("seed", 0))
                for *config, us in rows:
                    pairs.append((sizes, (*config, 1) if without_turns else tuple(config)))
                    times.append(us)
                    owners.append(len(self.cases))
                self.cases.append(case)
            self.num_sms = document["machine"].get("num_sms", 132)
        self.pairs = pairs
        self.configs = Configs.of(pairs)
        self.problem = np.array(owners, dtype=int)
        self.us = np.array(times)
        best = np.full(len(self.cases), np.inf)
        np.minimum.at(best, self.problem, self.us)
        self.best = best[self.problem]

    def name(self, index: int) -> str:
        swap_ab, rows, cols, *cluster, turns = self.pairs[index][1]
        text = f"{'swapped ' if swap_ab else ''}{rows}x{cols} cluster {'x'.join(map(str, cluster))}"
        return text if turns == 1 else f"{text} turns {turns}"


def residuals(x: dict[str, float], data: Data) -> np.ndarray:
    return np.log(cost_model.estimate_us(x, data.configs, data.num_sms) / data.us)


def fit(arguments: argparse.Namespace) -> int:
    from scipy.optimize import least_squares

    data = Data(*arguments.files, kinds=tuple(arguments.kinds.split(",")))
    start = cost_model.constants()
    names = [name for name in start if name not in FIXED]
    # Slow configs are never picked: it matters little what the model says of them. A problem with many configs counts
    # no more than one with few.
    weight = np.clip((data.best / data.us) ** 2, 0.05, 1) / np.sqrt(np.bincount(data.problem))[data.problem]

    def to_constants(logs: np.ndarray) -> dict[str, float]:
        return start | dict(zip(names, np.exp(logs), strict=True))

    first = np.log([start[name] for name in names])
    spread = np.log(2)  # a constant that wants to move further means that its term is wrong
    solution = least_squares(
        lambda logs: residuals(to_constants(logs), data) * weight,
        first,
        bounds=(first - spread, first + spread),
        loss="soft_l1",
        f_scale=0.05,
    )
    found = to_constants(solution.x)
    for name, value in found.items():
        edge = name in names and abs(abs(np.log(value / start[name])) - spread) < 1e-3
        print(f"    double {name} = {value:.4g};" + ("  // at the edge of the range searched" if edge else ""))
    print("\nin force:")
    print_regret(start, data, 0)
    print("\nfitted:")
    print_regret(found, data, arguments.worst)
    return 0


def regret(arguments: argparse.Namespace) -> int:
    data = Data(*arguments.files, kinds=tuple(arguments.kinds.split(",")))
    print_regret(cost_model.constants(), data, arguments.worst)
    return 0


def print_regret(x: dict[str, float], data: Data, worst: int) -> None:
    """How far the estimates are off, and what the picks lose, in all and by kind."""
    estimates = cost_model.estimate_us(x, data.configs, data.num_sms)
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
        print(
            f"  {ratio:.3f} {' '.join(map(str, case)):28s} picked {data.name(pick)} {data.us[pick]:.1f} us (estimate "
            f"{estimates[pick]:.1f}), best {data.name(best)} {data.us[best]:.1f} us (estimate {estimates[best]:.1f})"
        )


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))
