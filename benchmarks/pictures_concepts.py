"""Draws the pictures of docs/concepts.md into docs/images/: by Graphviz (`dot`) what the repository says of itself, by
matplotlib what the library's functions return.

    python benchmarks/pictures_concepts.py
"""

from __future__ import annotations

import itertools
import re
import subprocess
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import torch
from short_svg import save

import deep_gemm

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
FONT = 'fontname="Helvetica,Arial,sans-serif"; fontsize=11'
matplotlib.rcParams.update({"svg.hashsalt": "deep_gemm", "font.size": 9, "svg.fonttype": "none"})


def draw_graph(name: str, text: str) -> None:
    made = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True).stdout
    (IMAGES / f"{name}.svg").write_text(re.sub(r"<!--.*?-->\n?", "", made, flags=re.S))


def journey() -> None:
    """From the table of docs/architecture.md."""
    text = (ROOT / "docs/architecture.md").read_text()
    table = text.partition("## The journey of a call")[2].partition("\n\n`precompile`")[0]
    rows = re.findall(r"^\| ([\w ]+) \| `([^`]+)`", table, flags=re.M)
    select, operands = ([step for step, _ in rows].index(step) for step in ("select", "operands"))
    columns = [rows[:select], rows[select:operands], rows[operands:]]
    skips = {"know again": "launch", "look up": "operands"}
    lines = [f"digraph {{ nodesep=0.4; ranksep=0.2; node [shape=box, style=rounded, {FONT}]; edge [{FONT}];"]
    lines += [f'"{step}" [label=<<b>{step}</b><br/>{place}>];' for step, place in rows]
    lines.append("{ rank=same; " + " ".join(f'"{column[0][0]}";' for column in columns) + " }")
    for column in columns:
        lines += [f'"{a}" -> "{b}";' for (a, _), (b, _) in itertools.pairwise(column)]
    for before, after in itertools.pairwise(columns):
        lines.append(f'"{before[-1][0]}" -> "{after[0][0]}" [constraint=false];')
    lines += [f'"{a}" -> "{b}" [label=" found", style=dashed, constraint=false];' for a, b in skips.items()]
    draw_graph("concept_journey", "\n".join([*lines, "}"]))


def epilogue() -> None:
    """From the lists of epilogue/steps.cuh."""
    text = (ROOT / "deep_gemm/include/deep_gemm/epilogue/steps.cuh").read_text()
    lists = re.findall(r"using (\w+)Steps = StepsInOrder<([^>]*)>;", text)
    labels = {
        "Sum": "sums",
        "Product": "elements of A B, in FP32",
        "Gate": "two elements to one",
        "Result": "elements of D",
    }
    lines = [
        f"digraph {{ nodesep=0.2; ranksep=0.15; node [shape=box, style=filled, fillcolor=white, height=0.3, {FONT}];"
    ]
    chain = ["complete sums"]
    for name, steps in lists:
        inside = [step.strip() for step in steps.split(",")]
        nodes = " ".join(f'"{step}";' for step in inside)
        box = f'label="{labels[name]}"; labeljust=l; style=filled; color="#e8eef7"; {FONT}'
        lines.append(f"subgraph cluster_{name} {{ {box}; {nodes} }}")
        chain += inside
    lines += [f'"{a}" -> "{b}";' for a, b in zip(chain, [*chain[1:], "D in memory"], strict=True)]
    draw_graph("concept_epilogue", "\n".join([*lines, "}"]))


def operands() -> None:
    """Scales that the casts make of random numbers: one colour is one scale."""
    m, n, k = 16, 256, 512
    a = deep_gemm.utils.per_token_cast_to_fp8(torch.randn(m, k), use_ue8m0=False)[1]
    b = deep_gemm.utils.per_block_cast_to_fp8(torch.randn(n, k), use_ue8m0=False)[1]
    figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), width_ratios=[2, 2, 1])
    parts = [("A", a, (m, k), "M", "K"), ("B", b, (n, k), "N", "K")]
    for axis, (name, scales, extents, rows, cols) in zip(axes, parts, strict=False):
        numbers = torch.arange(scales.numel()).view(scales.shape)
        axis.imshow((numbers * 7) % 20, cmap="tab20", aspect="auto", extent=(0, extents[1], extents[0], 0))
        block = [extents[0] // scales.shape[0], extents[1] // scales.shape[1]]
        axis.set(
            title=f"{name}: a scale for {block[0]} x {block[1]}",
            xlabel=f"{cols} = {extents[1]}",
            ylabel=f"{rows} = {extents[0]}",
        )
        axis.set_xticks(range(0, extents[1] + 1, 128))
    axes[2].imshow(torch.ones(1, 1), cmap="Greys", vmin=0, vmax=8, aspect="auto", extent=(0, n, m, 0))
    axes[2].set(title="D = A B, no scales", xlabel=f"N = {n}", ylabel=f"M = {m}")
    figure.tight_layout()
    save(figure, IMAGES / "concept_operands.svg", bbox_inches="tight")


def groupings() -> None:
    """Where routing.route puts the rows of four experts."""
    ids = torch.tensor([[0], [2], [2], [0], [3], [2], [0], [2], [3], [2], [0], [1]], dtype=torch.int32)
    experts, step = 4, 8
    indices = deep_gemm.routing.route(ids, num_experts=experts, alignment=step).indices
    psum = deep_gemm.routing.route(ids, num_experts=experts, kind="psum", alignment=step)
    masked = deep_gemm.routing.route(ids, num_experts=experts, kind="masked", max_m=step, alignment=step)
    rows = -(-int(psum.ends[-1]) // step) * step
    of_psum = torch.full((rows,), -1)
    begin = 0
    for expert, end in enumerate(psum.ends.tolist()):
        of_psum[begin:end] = expert
        begin = -(-end // step) * step
    of_masked = torch.full((experts * step,), -1)
    for expert, count in enumerate(masked.ends.tolist()):
        of_masked[expert * step : expert * step + count] = expert
    parts = [
        ("contiguous: an index a row", indices[:rows]),
        (f"psum: ends {psum.ends.tolist()}", of_psum),
        (f"masked: counts {masked.ends.tolist()}", of_masked),
    ]
    colours = matplotlib.colors.ListedColormap(["#dddddd", "#4878cf", "#6acc65", "#d65f5f", "#b47cc7"])
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.4))
    for axis, (title, owner) in zip(axes, parts, strict=True):
        axis.imshow(owner.view(-1, 1) + 1, cmap=colours, vmin=0, vmax=4, aspect="auto", extent=(0, 1, owner.numel(), 0))
        axis.set(title=title, xticks=[], ylabel="rows of A and D")
        axis.set_yticks(range(0, owner.numel() + 1, step))
        axis.grid(axis="y", color="white")
    names = ["padding", *(f"expert {i}" for i in range(experts))]
    figure.legend([plt.Rectangle((0, 0), 1, 1, color=c) for c in colours.colors], names, loc="lower center", ncols=5)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    save(figure, IMAGES / "concept_groupings.svg", bbox_inches="tight")


if __name__ == "__main__":
    for draw in (journey, epilogue, operands, groupings):
        draw()
