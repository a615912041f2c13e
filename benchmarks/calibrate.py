"""Measures configs on a GPU and fits the constants of the cost model (csrc/config/sm90.hpp) to what was measured.

    python benchmarks/calibrate.py measure --out new.json      # on the GPU: legal configs of each problem, timed
    python benchmarks/calibrate.py fit benchmarks/results/calibration_h200.json
    python benchmarks/calibrate.py regret benchmarks/results/calibration_h200.json   # with the constants in force
    python benchmarks/calibrate.py check                        # that cost_model.py and sm90.hpp agree

`measure` takes the configs whose estimate is within a factor of the best one, so a model that is badly wrong hides good
configs from its own calibration: raise --within when the kernel has changed much. `fit` prints the constants as the
header wants them, and *regret*: the time of the config that the model picks, over the best one measured. It needs
scipy; look at the largest regret before taking its constants over.

benchmarks/results/calibration_h200.json was measured before two changes of the kernel, and the constants are from it:
  - parts of a split K went to the other CTA by ordinary stores and a released arrival, not yet through st.async;
  - kernels were compiled without problem extents (compiled_dims=""), while calls now compile N and K in by default.
It should be measured again; `split_us` and `tile_cycles` will probably change most.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
from pathlib import Path

import cost_model
import numpy as np
from cost_model import Configs

DEFAULT_M = "1,16,32,64,128,256,512,1024,4096"
DEFAULT_NK = "2112x7168,576x7168,24576x1536,32768x512,7168x16384,4096x7168,7168x2048,4096x4096,2048x5120,6144x2048"
COLUMNS = ["swap_ab", "rows", "cols", "cluster_rows", "cluster_cols", "cluster_k", "us"]
# Held fixed by `fit`: it only scales the other cycle counts.
FIXED = ("clock_mhz",)
# Cluster shapes that were measured once and are no candidates any more.
CLUSTERS = {(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 1, 3), (1, 1, 4), (1, 1, 8)}


# Measuring


def candidates(m: int, n: int, k: int, num_sms: int) -> list[tuple[list[int], float]]:
    """Legal configs with selection's estimate in microseconds, cheapest first."""
    from deep_gemm._extension import C

    line = re.compile(r"(straight|swapped) (\d+)x(\d+) cluster (\d+)x(\d+)x(\d+) .*: ([\d.e+-]+) us$")
    found = []
    for text in C.explain(m, n, k, num_sms).splitlines():
        match = line.match(text)
        if match:
            found.append(([int(match[1] == "swapped"), *map(int, match.groups()[1:6])], float(match[7])))
    return found


def measure(arguments: argparse.Namespace) -> int:
    import paths  # noqa: F401
    import torch
    from inputs import quantise_blocks, quantise_rows
    from machine import describe
    from timing import Timer

    import deep_gemm
    from deep_gemm._extension import C

    device = torch.device(arguments.device)
    on_gpu = device.type == "cuda"
    num_sms = torch.cuda.get_device_properties(device).multi_processor_count if on_gpu else 132
    timer = Timer(device, int(arguments.flush_gb * 1e9), arguments.calls)
    generator = torch.Generator(device).manual_seed(0)
    problems = []
    for nk, m in itertools.product(arguments.nk.split(","), arguments.m.split(",")):
        m, (n, k) = int(m), map(int, nk.split("x"))
        a = quantise_rows(torch.randn(m, k, device=device, generator=generator))
        b = quantise_blocks(torch.randn(n, k, device=device, generator=generator))
        sfa = deep_gemm.get_mn_major_tma_aligned_tensor(a.scales)  # else each call would do it
        d = torch.empty(m, n, dtype=torch.bfloat16, device=device)
        found = candidates(m, n, k, num_sms)
        chosen = [config for config, estimate in found if estimate <= arguments.within * found[0][1]][: arguments.most]

        def call(config: list[int], a=a, sfa=sfa, b=b, d=d, size=(m, n, k)) -> None:
            C.force_config(not on_gpu, 0, *size, *config, 1)
            deep_gemm.fp8_gemm_nt((a.data, sfa), (b.data, b.scales), d, compiled_dims="")

        lines = []
        try:
            for config in chosen:
                call(config)  # compile
                [timing] = timer.time(lambda config=config, call=call: call(config))
                lines.append([*config, round(timing.median * 1e6, 2)])
        finally:
            C.force_config(not on_gpu, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)
        lines.sort(key=lambda line: line[-1])
        problems.append({"m": m, "n": n, "k": k, "rows": lines})
        print(f"{m}x{n}x{k}: {len(lines)} configs, best {lines[0]}", flush=True)
    document = {
        "what": "calibration",
        "machine": describe(),
        "settings": {"calls": arguments.calls, "flush_gb": arguments.flush_gb, "method": timer.method},
        "columns": COLUMNS,
        "problems": problems,
    }
    write(document, arguments.out)
    return 0


def write(document: dict, path: Path) -> None:
    """One problem a line: readable, and a small diff."""
    problems = document.pop("problems")
    head = json.dumps(document, indent=1)[:-2]
    lines = ",\n  ".join(json.dumps(problem, separators=(",", ":")) for problem in problems)
    path.write_text(f'{head},\n "problems": [\n  {lines}\n ]\n}}\n')


# Fitting


class Data:
    """Measured configs as arrays, and the best time of each one's problem."""

    def __init__(self, path: Path) -> None:
        document = json.loads(path.read_text())
        assert document["columns"] == COLUMNS, f"{path} has other columns"
        lines, self.problem = [], []
        self.sizes = []
        for index, problem in enumerate(document["problems"]):
            self.sizes.append((problem["m"], problem["n"], problem["k"]))
            for *config, us in problem["rows"]:
                if tuple(config[3:]) in CLUSTERS:
                    lines.append([*self.sizes[-1], *config, us])
                    self.problem.append(index)
        self.lines = np.array(lines, dtype=float)
        self.problem = np.array(self.problem)
        self.configs = Configs.of(lines)
        self.us = self.lines[:, -1]
        best = np.full(len(self.sizes), np.inf)
        np.minimum.at(best, self.problem, self.us)
        self.best = best[self.problem]
        self.num_sms = document["machine"].get("num_sms", 132)


def residuals(x: dict[str, float], data: Data) -> np.ndarray:
    return np.log(cost_model.estimate_us(x, data.configs, data.num_sms) / data.us)


def fit(arguments: argparse.Namespace) -> int:
    from scipy.optimize import least_squares

    data = Data(arguments.file)
    start = cost_model.constants()
    names = [name for name in start if name not in FIXED]
    # Slow configs are never picked: it matters little what the model says of them.
    weight = np.clip((data.best / data.us) ** 2, 0.05, 1)

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
    print_regret(cost_model.constants(), Data(arguments.file), arguments.worst)
    return 0


def print_regret(x: dict[str, float], data: Data, worst: int) -> None:
    estimates = cost_model.estimate_us(x, data.configs, data.num_sms)
    error = np.log(estimates / data.us)
    near = data.us < 1.1 * data.best
    print(
        f"{len(data.us)} configs of {len(data.sizes)} problems; error of the estimate (rms of the logarithm): all "
        f"{rms(error):.3f}, those within 10 % of the best {rms(error[near]):.3f}"
    )
    picks = []
    for index, size in enumerate(data.sizes):
        own = np.flatnonzero(data.problem == index)
        pick, best = own[np.argmin(estimates[own])], own[np.argmin(data.us[own])]
        picks.append((data.us[pick] / data.us[best], size, pick, best))
    picks.sort(key=lambda entry: -entry[0])
    regrets = np.array([entry[0] for entry in picks])
    print(
        f"regret: mean {regrets.mean():.3f}, median {np.median(regrets):.3f}, largest {regrets.max():.3f}; "
        f"{(regrets < 1.02).sum()} of {len(regrets)} below 1.02"
    )
    for ratio, size, pick, best in picks[:worst]:
        print(
            f"  {ratio:.3f} {'x'.join(map(str, size)):18s} picked {name_of(data, pick)} {data.us[pick]:.1f} us "
            f"(estimate {estimates[pick]:.1f}), best {name_of(data, best)} {data.us[best]:.1f} us "
            f"(estimate {estimates[best]:.1f})"
        )


def name_of(data: Data, index: int) -> str:
    swap_ab, rows, cols, *cluster = data.lines[index, 3:9].astype(int)
    return f"{'swapped ' if swap_ab else ''}{rows}x{cols} cluster {'x'.join(map(str, cluster))}"


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def check(arguments: argparse.Namespace) -> int:
    """Compares the estimates of all candidates. `explain` prints six digits."""
    import paths  # noqa: F401

    largest = 0.0
    for m, n, k in [(1, 576, 7168), (64, 2112, 7168), (300, 4096, 4096), (512, 7168, 2048), (4096, 32768, 512)]:
        found = candidates(m, n, k, 132)
        ours = cost_model.estimate_us(cost_model.constants(), Configs.of([[m, n, k, *config] for config, _ in found]))
        theirs = np.array([estimate for _, estimate in found])
        largest = max(largest, float(np.abs(ours / theirs - 1).max()))
    print(
        f"largest relative difference from C.explain: {largest:.1e}"
        + ("" if largest < 1e-4 else "; is deep_gemm/_C.so older than sm90.hpp, or has its formula changed?")
    )
    return int(largest >= 1e-4)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("measure", help="time configs on a GPU")
    command.add_argument("--m", default=DEFAULT_M)
    command.add_argument("--nk", default=DEFAULT_NK, help="NxK, several with commas")
    command.add_argument("--within", type=float, default=1.6, help="configs with estimates up to this times the best")
    command.add_argument("--most", type=int, default=80, help="configs of a problem")
    command.add_argument("--calls", type=int, default=5)
    command.add_argument("--flush-gb", type=float, default=4.0)
    command.add_argument("--device", default="cuda")
    command.add_argument("--out", type=Path, required=True)
    command.set_defaults(run=measure)
    for name, run, worst in (("fit", fit, 10), ("regret", regret, 20)):
        command = commands.add_parser(name)
        command.add_argument("file", type=Path)
        command.add_argument("--worst", type=int, default=worst, help="how many of the worst picks to print")
        command.set_defaults(run=run)
    commands.add_parser("check").set_defaults(run=check)
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
