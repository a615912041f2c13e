"""Fits the constants of an architecture's cost model (csrc/config/*/cost_constants.hpp) to measured configs: SM80's,
SM100's, SM120's, all constants at once. (Hopper's, of which much was measured: ../fit.py.)

    python benchmarks/calibrate.py measure --out results                     # on the GPU: results/calibration.json
    python benchmarks/first_day/fit.py results/calibration.json --out results    # results/fit.json

The formulas are the library's own (C.estimates). What is minimised is the mean square of log(estimate /
time), and of what the model's picks lose. A constant may become a quarter of what it is or four times as much, no
more: beyond that the formula is wrong, and not its constant.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import paths  # noqa: F401
from estimates import Estimates, constants_of, text_of
from machine import read_calibration
from predict import fields_of
from shapes import sizes_of

FARTHEST = 4.0
REGRET_WEIGHT = 2.0  # of a pick's loss beside an estimate's error


@dataclass
class Problem:
    case: list
    grouping: str
    fields: dict[str, int]
    target: str
    us: dict[str, float]  # by config

    def __post_init__(self) -> None:
        self._estimates = Estimates()
        self.configs = list(self._estimates.add(self.grouping, self.fields, self.target, list(self.us)))

    def assumed(self) -> dict[str, float]:
        return constants_of(self.grouping, self.fields, self.target)

    def estimates(self, constants: dict[str, float]) -> dict[str, float]:
        """Of the configs that were measured and are legal."""
        return dict(zip(self.configs, self._estimates.us(constants), strict=True))

    def regret(self, constants: dict[str, float]) -> float:
        """Time of the config that the model would pick among those measured, over the best one's."""
        estimates = self.estimates(constants)
        return self.us[min(estimates, key=estimates.__getitem__)] / min(self.us[config] for config in estimates)


def problems_of(files: list[Path]) -> list[Problem]:
    found = []
    for path in files:
        document = read_calibration(path)
        machine = document["machine"]
        if not {"num_sms", "target"} <= machine.keys():
            raise SystemExit(f"{path} must say num_sms and target of its machine: measure it anew with calibrate.py")
        num_sms, target = machine["num_sms"], machine["target"]
        for entry in document["problems"]:
            sizes = sizes_of(entry["case"], entry.get("total"), entry.get("seed", 0))
            us = {text_of(config): time for *config, time in entry["rows"]}
            problem = Problem(entry["case"], *fields_of(sizes, num_sms), target, us)
            if problem.configs:
                found.append(problem)
    return found


def loss(problems: list[Problem], constants: dict[str, float]) -> float:
    total = 0.0
    for problem in problems:
        estimates = problem.estimates(constants)
        errors = [math.log(us / problem.us[config]) ** 2 for config, us in estimates.items()]
        pick, best = min(estimates, key=estimates.__getitem__), min(problem.us[config] for config in estimates)
        total += sum(errors) / len(errors) + REGRET_WEIGHT * math.log(problem.us[pick] / best) ** 2
    return total / len(problems)


def fit(problems: list[Problem], seconds: float, seed: int) -> dict[str, float]:
    """A random search that takes what is better, in ever smaller steps."""
    generator = random.Random(seed)
    start = problems[0].assumed()
    best, least = dict(start), loss(problems, start)
    begin = time.monotonic()
    while (spent := time.monotonic() - begin) < seconds:
        step = 0.5 * (1 - spent / seconds) + 0.01
        tried = dict(best)
        for name in generator.sample(sorted(start), k=generator.randint(1, 3)):
            factor = tried[name] / start[name] * math.exp(generator.gauss(0, step))
            tried[name] = start[name] * min(FARTHEST, max(1 / FARTHEST, factor))
        if (found := loss(problems, tried)) < least:
            best, least = tried, found
    return best


def summary(problems: list[Problem], constants: dict[str, float]) -> dict[str, float]:
    regrets = [problem.regret(constants) for problem in problems]
    return {
        "loss": loss(problems, constants),
        "mean_regret": sum(regrets) / len(regrets),
        "largest_regret": max(regrets),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="calibration.json")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=0, help="another one may find another optimum")
    parser.add_argument("--commit", help="taken, and not used: the report has it from elsewhere")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    problems = problems_of(arguments.files)
    if not problems:
        print("no measured config is one that selection has")
        return 1
    assumed = problems[0].assumed()
    fitted = fit(problems, arguments.seconds, arguments.seed)
    document = {
        "what": "fit",
        "target": problems[0].target,
        "problems": len(problems),
        "assumed": assumed,
        "fitted": fitted,
        "before": summary(problems, assumed),
        "after": summary(problems, fitted),
        "worst": sorted(([p.regret(fitted), p.case] for p in problems), reverse=True)[:10],
    }
    for name, value in fitted.items():
        print(f"{name:24s} {assumed[name]:10.4g} -> {value:10.4g}")
    print(f"before {document['before']}\nafter  {document['after']}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "fit.json").write_text(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
