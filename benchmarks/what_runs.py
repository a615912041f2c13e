"""The tables of what runs where, out of the library's pair table.

    python benchmarks/what_runs.py

writes them between `<!-- begin what runs` and `<!-- end what runs -->`: a line a function into README.md, and a line a
pair of formats, with scales and outputs, into docs/formats.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tables import table

from deep_gemm._extension import C

ROOT = Path(__file__).resolve().parents[1]

# What the functions that take such an A are called, and what weights packed for it add to that.
ACTIVATIONS = {
    "bf16": ("BF16", "bf16"),
    "fp16": ("FP16", "bf16"),
    "e4m3": ("E4M3", "fp8"),
    "s8": ("INT8", "int8"),
    "e2m1r": ("FP4", "fp4"),
}
PACKED = {
    "s4": ("int4", "int4"),
    "s4m": ("int4", "int4"),
    "s4b": ("int4", "int4"),
    "u4": ("int4 with zero points", "int4"),
    "e2m1": ("FP4", "fp4"),
    "e2m1x": ("FP4", "fp4"),
    "e2m1r": ("FP4", "fp4"),
    "e4m3p": ("E4M3", "fp8"),
    "s8b": ("int8", "int8"),
    "u8": ("int8 with zero points", "int8"),
}
SPECIAL = {("e2m1r", "e4m3"): "`fp8_fp4_gemm`", ("e2m1r", "e2m1r"): "`fp4_gemm`"}
OUTPUTS = {"bf16": "BF16", "fp16": "FP16", "fp32": "FP32", "s32": "INT32"}
# A column each: groupings that are served together, or not at all.
CALLS = {
    "dense": ("dense",),
    "experts: contiguous, psum, masked": ("m_contiguous", "m_psum", "masked"),
    "K groups": ("k_contiguous",),
    "`einsum`": ("batched",),
    "`bmk,bnk->mn`": ("batch_sum",),
}

SHORT = {
    "dense": "dense",
    "experts: contiguous, psum, masked": "experts",
    "K groups": "K groups",
    "`einsum`": "`einsum`",
}


@dataclass(frozen=True)
class Row:
    """A line of the pair table."""

    arch: str
    a: str
    b: str
    scalings: tuple[str, str]
    outputs: tuple[str, ...]
    groupings: tuple[str, ...]

    @property
    def format(self) -> str:
        if self.b in PACKED:
            return f"{ACTIVATIONS[self.a][0]} x {PACKED[self.b][0]}"
        return f"{ACTIVATIONS[self.a][0]} x {ACTIVATIONS[self.b][0]}"

    @property
    def function(self) -> str:
        if (self.a, self.b) in SPECIAL:
            return SPECIAL[self.a, self.b]
        names = [ACTIVATIONS[self.a][1], *([PACKED[self.b][1]] if self.b in PACKED else [])]
        return f"`{'_'.join(names)}_gemm`"


def read_pairs(text: str) -> list[Row]:
    rows = []
    for line in text.splitlines():
        fields = dict(part.split("=") for part in line.split())
        lists = {name: tuple(filter(None, fields[name].split(","))) for name in ("outputs", "groupings")}
        scalings = (fields["scalings_a"], fields["scalings_b"])
        rows.append(Row(fields["arch"], fields["a"], fields["b"], scalings, **lists))
    return rows


def scaling_name(text: str) -> str:
    """Of "fp32:1x128", a scale's type and what shares it."""
    element, extents = text.split(":")
    rows, k = extents.split("x")
    shared = "row" if k == "-1" else f"{rows}x{k}"
    return {"fp32": "", "ue8m0": "2^n ", "ue5m3": "UE5M3 ", "e4m3": "E4M3 "}[element] + shared


def scalings_name(rows: list[Row], operand: int) -> str:
    texts = [text for row in rows for text in row.scalings[operand].split(",") if text]
    return ", ".join(dict.fromkeys(map(scaling_name, texts)))


def outputs_name(rows: list[Row]) -> str:
    return ", ".join(name for element, name in OUTPUTS.items() if any(element in row.outputs for row in rows))


def by_arch(rows: list[Row], describe: Callable[[list[Row]], str]) -> str:
    """What holds on each architecture; those on which the same does are named together, and not at all if all do."""
    archs = list(dict.fromkeys(row.arch for row in rows))
    held: dict[str, list[str]] = {}
    for arch in archs:
        held.setdefault(describe([row for row in rows if row.arch == arch]), []).append(arch.removeprefix("sm"))
    if len(held) == 1:
        return next(iter(held))
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in held.items() if text)


def archs_of(rows: list[Row], groupings: tuple[str, ...]) -> str:
    found = [row.arch.removeprefix("sm") for row in rows if set(groupings) <= set(row.groupings)]
    partly = [row.format for row in rows if set(groupings) & set(row.groupings) not in (set(), set(groupings))]
    if partly:
        raise SystemExit(f"{partly[0]} is multiplied for some of {groupings} only: give these columns of their own")
    return ", ".join(dict.fromkeys(found)) or "no"


def what_runs(pairs: str) -> str:
    formats: dict[str, list[Row]] = {}
    for row in read_pairs(pairs):
        formats.setdefault(row.format, []).append(row)
    lines = [
        [
            f"{name}: {rows[0].function}",
            *(archs_of(rows, groupings) for groupings in CALLS.values()),
            by_arch(rows, lambda some: scalings_name(some, 0)),
            by_arch(rows, lambda some: scalings_name(some, 1)),
            by_arch(rows, outputs_name),
        ]
        for name, rows in formats.items()
    ]
    return table(["A x B: function", *CALLS, "scales of A", "of B", "D"], lines)


def what_runs_in_short(pairs: str) -> str:
    """A line for each function, whatever the scales."""
    functions: dict[str, list[Row]] = {}
    for row in read_pairs(pairs):
        functions.setdefault(row.function, []).append(row)
    lines = []
    for function, rows in functions.items():
        formats = ", ".join(dict.fromkeys(row.format.removesuffix(" with zero points") for row in rows))
        lines.append([function, formats, *(archs_of(rows, CALLS[name]) for name in SHORT)])
    return table(["", "A x B", *SHORT.values()], lines)


def with_table(document: str, written: str) -> str:
    marked = re.compile(r"(<!-- begin what runs[^\n]*-->\n).*?(<!-- end what runs -->)", re.DOTALL)
    text, count = marked.subn(lambda found: f"{found[1]}\n{written.strip()}\n\n{found[2]}", document)
    if count != 1:
        raise SystemExit(f"the document has {count} places for the table of what runs where")
    return text


DOCUMENTS = {ROOT / "README.md": what_runs_in_short, ROOT / "docs" / "formats.md": what_runs}


if __name__ == "__main__":
    for path, make in DOCUMENTS.items():
        path.write_text(with_table(path.read_text(), make(C.pairs())))
