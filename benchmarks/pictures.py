"""Draws docs/images/*.svg: timelines of the kernel's roles (modelled), and measured results.

    python benchmarks/pictures.py

Efficiency and the cost model's errors are measurements (benchmarks/results/). The timelines are arithmetic: each role
is played with the cycle counts of the cost model's constants, the tensor cores serving one warpgroup at a time. They
show what waits for what, not how long a GPU took. Needs matplotlib.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import paths  # noqa: F401
from estimates import constants_of

matplotlib.use("svg")
import matplotlib.pyplot as plt
from machine import read_result
from short_svg import save

from deep_gemm._targets import HOPPER_TARGET

HERE = Path(__file__).resolve().parent
RESULTS, IMAGES = HERE / "results", HERE.parent / "docs" / "images"
BLUE, GREEN, ORANGE, RED, GREY = "#4878a8", "#5a9a68", "#d08a3c", "#c04030", "#b0b0b0"


@dataclass
class Timeline:
    """One CTA with two math warpgroups and `tiles` tiles of `k_blocks` K blocks each, in cycles."""

    rows: int
    cols: int
    k_blocks: int
    stages: int
    overlapped: bool
    tiles: int = 2
    copy_latency: int = 900  # from issue to arrival, from L2
    store_cycles: int = 450  # convert and stage D; the copy engine then writes it on its own
    bars: list[tuple[str, float, float, str]] = field(default_factory=list)  # lane, begin, cycles, colour
    end: float = 0

    def play(self) -> Timeline:
        x = constants_of("dense", {"m": 4096, "n": 4096, "k": 7168}, HOPPER_TARGET)
        self.multiply = 2.0 * self.cols  # cycles that 64 rows of a K block keep the tensor cores
        self.promote = self.cols / 2 * x["promote_cycles"]
        self.wait = x["overlap_cycles"] / 2 if self.overlapped else x["chain_cycles"]
        self.between_copies = (self.rows + self.cols) * 128 / x["l2_bytes_per_cycle"]
        self.copy_free = self.tensor_free = 0.0
        self.full: list[float] = []
        self.released: list[list[float]] = [[], []]  # by each warpgroup
        groups = [self.run_warpgroup(group) for group in range(2)]
        asking = {group: next(steps) for group, steps in enumerate(groups)}
        while asking:  # whoever asks first gets the tensor cores
            self.copy_ahead()
            group = min(asking, key=lambda g: self.ready(*asking[g]))
            begin = max(self.ready(*asking[group]), self.tensor_free)
            self.bars.append((f"math {group}: wgmma", begin, self.multiply, RED))
            self.tensor_free = begin + self.multiply
            try:
                asking[group] = groups[group].send(begin)
            except StopIteration:
                del asking[group]
        return self

    def ready(self, at: float, block: int) -> float:
        return max(at, self.full[block]) if block < len(self.full) else float("inf")

    def copy_ahead(self) -> None:
        """Copies into every stage that both warpgroups have let go."""
        while len(self.full) < min(self.tiles * self.k_blocks, min(map(len, self.released)) + self.stages):
            earlier = len(self.full) - self.stages
            free = max(times[earlier] for times in self.released) if earlier >= 0 else 0.0
            begin = max(self.copy_free, free)
            self.bars.append(("copy", begin, self.between_copies, BLUE))
            self.copy_free = begin + self.between_copies
            self.full.append(begin + max(self.between_copies, self.copy_latency))

    def run_warpgroup(self, group: int) -> Generator[tuple[float, int], float, None]:
        """Yields (when, block) where it wants to multiply, and is sent when that began."""
        at, lane = 0.0, f"math {group}: promote"
        subtiles = self.rows // 128
        for tile in range(self.tiles):
            pending = None  # overlapped: when the block under way is done
            for block in range(tile * self.k_blocks, (tile + 1) * self.k_blocks):
                for subtile in range(subtiles):
                    begin = yield at + self.wait / 2, block
                    done = begin + self.multiply
                    if self.overlapped:
                        done, pending = pending, done
                        at = max(at, begin if done is None else at)
                    if done is None:
                        continue
                    at = max(at, done) + self.wait / 2
                    if subtile == subtiles - 1:
                        self.released[group].append(at)
                    self.bars.append((lane, at, self.promote, GREEN))
                    at += self.promote
            if pending is not None:
                at = max(at, pending) + self.wait / 2
                self.released[group].append(at)
                self.bars.append((lane, at, self.promote, GREEN))
                at += self.promote
            self.bars.append((lane, at, self.store_cycles, ORANGE))
            at += self.store_cycles
        self.end = max(self.end, at)

    def busy(self) -> float:
        return sum(cycles for lane, _, cycles, _ in self.bars if lane.endswith("wgmma")) / self.end

    def draw(self, axes: plt.Axes, title: str) -> None:
        lanes = ["copy", "math 0: wgmma", "math 0: promote", "math 1: wgmma", "math 1: promote"]
        for lane, begin, cycles, colour in self.bars:
            axes.barh(
                lanes.index(lane), cycles, left=begin, height=0.75, color=colour, edgecolor="white", linewidth=0.5
            )
        axes.set_yticks(
            range(len(lanes)),
            ["copy (TMA)", *(lane.replace("promote", "promote, store D") for lane in lanes[1:])],
            fontsize=8,
        )
        axes.invert_yaxis()
        axes.set_title(title, fontsize=9, loc="left")
        axes.grid(axis="x", alpha=0.3)


def draw_timelines() -> None:
    figure, axes = plt.subplots(2, 1, figsize=(11, 5), constrained_layout=True, sharex=True)
    in_turn = Timeline(256, 128, k_blocks=4, stages=4, overlapped=False).play()
    in_turn.draw(
        axes[0], "tile 256x128, K = 512, two tiles: promotion in turn; the other warpgroup multiplies meanwhile"
    )
    overlapped = Timeline(128, 128, k_blocks=4, stages=6, overlapped=True, tiles=3).play()
    overlapped.draw(
        axes[1], "tile 128x128, K = 512, three tiles: the next K block is multiplied while this one is promoted"
    )
    axes[1].set_xlabel(
        "cycles of the model (red: multiply, green: promote, orange: convert and stage D, blue: issue copies)",
        fontsize=8,
    )
    save(figure, IMAGES / "timeline.svg")


def public_cases() -> tuple[list[dict], str]:
    """Rows of the public cases on an H200, and which DeepGEMM was timed in turn with them."""
    document = read_result(RESULTS / "h200_gemm.json")
    return document["rows"], document["settings"]["deepgemm"]


def draw_efficiency() -> None:
    """Efficiency by M, a line for each weight shape."""
    rows, theirs = public_cases()
    lines: dict[tuple[int, int], dict[int, tuple[float, float]]] = {}
    for row in rows:
        kind, *sizes = row["case"]
        if kind == "dense" and row.get("efficiency"):
            m, n, k = sizes
            other = row["floor_us"] / row["deepgemm_us"] if row.get("deepgemm_us") else float("nan")
            lines.setdefault((n, k), {})[m] = (row["efficiency"], other)
    # Only weight shapes with a whole sweep over M; the others have one or two points.
    lines = {shape: points for shape, points in sorted(lines.items()) if len(points) >= 5}
    columns = 4
    height = -(-len(lines) // columns)
    figure, axes = plt.subplots(
        height, columns, figsize=(11, 2.6 * height), constrained_layout=True, sharex=True, sharey=True
    )
    for axis, ((n, k), points) in zip(axes.flat, lines.items(), strict=False):
        m = sorted(points)
        axis.plot(m, [points[value][0] for value in m], "o-", color=BLUE, markersize=3, label="deep_gemm")
        axis.plot(m, [points[value][1] for value in m], "s--", color=GREY, markersize=3, label=theirs)
        axis.set_xscale("log", base=2)
        axis.set_title(f"N = {n}, K = {k}", fontsize=9)
        axis.set_ylim(0, 1.05)
        axis.grid(alpha=0.3)
    for axis in axes.flat[len(lines) :]:
        axis.axis("off")
    axes.flat[0].legend(fontsize=7)
    figure.supxlabel("M", fontsize=9)
    figure.supylabel("efficiency = floor / time", fontsize=9)
    save(figure, IMAGES / "efficiency_by_m.svg")


def draw_against_deepgemm() -> None:
    """Each case's time over DeepGEMM's in the same run, by DeepGEMM's, a colour for each class."""
    rows, theirs = public_cases()
    rows = [row for row in rows if row.get("us") and row.get("deepgemm_us")]
    figure, axis = plt.subplots(figsize=(9, 4.2), constrained_layout=True)
    colours = plt.get_cmap("tab20")
    for index, name in enumerate(dict.fromkeys(row["class"] for row in rows)):
        own = [row for row in rows if row["class"] == name]
        axis.scatter(
            [row["deepgemm_us"] for row in own],
            [row["us"] / row["deepgemm_us"] for row in own],
            s=16,
            color=colours(index % 20),
            label=name,
        )
    axis.axhline(1, color=GREY, linewidth=0.8)
    axis.set_xscale("log")
    axis.set_xlabel(f"time of {theirs}, us", fontsize=9)
    axis.set_ylabel("our time / its time: below 1 is faster", fontsize=9)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7, ncols=2)
    save(figure, IMAGES / "against_deepgemm.svg")


def draw_model_error() -> None:
    """Estimated over measured time of each config, against how far the config is from the best one of its problem."""
    from calibrate import Data

    data = Data(*sorted(RESULTS.glob("calibration_h200*.json")))
    ratio = data.estimate_us({}) / data.us
    figure, axis = plt.subplots(figsize=(7, 3.2), constrained_layout=True)
    few = data.m <= 128
    for chosen, colour, label in ((few, ORANGE, "M <= 128"), (~few, BLUE, "M > 128")):
        axis.scatter(
            data.us[chosen] / data.best[chosen], ratio[chosen], s=3, color=colour, label=label, rasterized=True
        )
    axis.axhline(1, color=GREY, linewidth=0.8)
    axis.set_xlim(0.98, 2)
    axis.set_ylim(0.6, 1.5)
    axis.set_xlabel("measured time / best time of the problem", fontsize=9)
    axis.set_ylabel("estimate / measured", fontsize=9)
    axis.legend(fontsize=8)
    save(figure, IMAGES / "model_error.svg", dpi=110)


def draw_training() -> None:
    """The losses of examples/train_moe.py, FP8 beside BF16."""
    losses = read_result(RESULTS / "h200_train_moe.json")["losses"]
    figure, axis = plt.subplots(figsize=(7, 3), constrained_layout=True)
    for precision, colour, style in (("bf16", ORANGE, "-"), ("fp8", BLUE, "--")):
        axis.plot(losses[precision], style, color=colour, linewidth=0.9, label=precision.upper())
    axis.set_xlabel("step", fontsize=9)
    axis.set_ylabel("loss", fontsize=9)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    save(figure, IMAGES / "train_moe.svg")


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    plt.rcParams["svg.hashsalt"] = "deep_gemm"  # equal pictures, equal files
    plt.rcParams["svg.fonttype"] = "none"
    draw_timelines()
    draw_efficiency()
    draw_against_deepgemm()
    draw_model_error()
    draw_training()
    print(f"written: {IMAGES}")


if __name__ == "__main__":
    main()
