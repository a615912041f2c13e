"""Everything that the pair table says is multiplied: one case for each pair, grouping, scaling and output.

The table is the library's own (csrc/config/pairs.hpp), so that a new row is tested the day it is there. What a case is
compared with is not: inputs, calls and the FP64 reference are made here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import torch
from inputs import ceil_div
from packed_orders import PACKED
from scale_forms import LYING, WRITTEN, Form, draw, drawn_form, laid_out, written

import deep_gemm
from deep_gemm._extension import C

# Relative to sum |a||b|: of Hopper's FP8, whose tensor cores keep about 13 bits; of others; of the simulator.
TOLERANCES = {
    ("cuda", "sm90", "e4m3"): 6e-4,
    **{("cpu", arch, "e4m3"): 1e-6 for arch in ("sm80", "sm90", "sm100", "sm120")},
}
OTHER_TOLERANCES = {"cuda": 4e-5, "cpu": 2e-6}
DTYPES = {
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "s32": torch.int32,
    "s8": torch.int8,
}
# What the functions that take such an A are called; with rows of FP4 for B.
FAMILIES = {"bf16": "bf16", "e2m1r": "fp4", "e4m3": "fp8", "fp16": "bf16", "s8": "int8"}
FP4_FAMILY, FP4 = "fp8_fp4", "e2m1r"
FP4_VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
ALIGNMENT = 128  # of experts' rows
ADDED_TO = ("dense", "batched", "batch_sum", "k_contiguous")  # groupings that take C
ONE_RECIPE = ("batched", "k_contiguous")  # groupings whose calls have one granularity for both operands


@dataclass(frozen=True)
class Scaling:
    """Rows and K that share a scale of an operand; -1: all of them."""

    element: str
    rows: int
    k: int

    def __str__(self) -> str:
        return f"{self.element}:{self.rows}x{self.k}"

    def shape(self, rows: int, k: int) -> tuple[int, int]:
        return (
            1 if self.rows < 0 else ceil_div(rows, self.rows),
            1 if self.k < 0 else ceil_div(k, self.k),
        )


@dataclass(frozen=True)
class Pair:
    arch: str
    a: str
    b: str
    sum: str
    mn_major: str
    scalings_a: tuple[Scaling, ...]
    scalings_b: tuple[Scaling, ...]
    equal_scalings: str  # "1": only alike ones go together
    outputs: tuple[str, ...]
    groupings: tuple[str, ...]

    @property
    def is_fp8_fp4(self) -> bool:
        """Either of them FP4."""
        return FP4 in (self.a, self.b) and self.a != self.b

    @property
    def is_fp4(self) -> bool:
        return self.a == self.b == FP4


def _scalings(text: str) -> tuple[Scaling, ...]:
    found = []
    for part in filter(None, text.split(",")):
        element, sizes = part.split(":")
        found.append(Scaling(element, *map(int, sizes.split("x"))))
    return tuple(found)


def every_pair() -> list[Pair]:
    found = []
    for line in C.pairs().splitlines():
        row = dict(part.split("=") for part in line.split())
        lists = {name: tuple(row.pop(name).split(",")) for name in ("outputs", "groupings")}
        scalings = {name: _scalings(row.pop(name)) for name in ("scalings_a", "scalings_b")}
        found.append(Pair(**row, **lists, **scalings))
    return found


def pairs() -> list[Pair]:
    """Without weights that a call takes packed: tests/kernels/test_packed_products.py, test_bf16_weights.py."""
    return [pair for pair in every_pair() if pair.b not in PACKED]


def tolerance(pair: Pair, device: torch.device) -> float:
    return TOLERANCES.get((device.type, pair.arch, pair.a), OTHER_TOLERANCES[device.type])


@dataclass(frozen=True)
class Case:
    pair: Pair
    grouping: str
    scaling_a: Scaling | None
    scaling_b: Scaling | None
    output: str
    added: str  # C: "nothing", "c", "d" (C is D)

    @property
    def asks_for_fp32(self) -> bool:
        """Whether FP32 scales must be asked for: others would be taken for powers of two."""
        first = next(
            pair for pair in pairs() if (pair.arch, pair.a, pair.b) == (self.pair.arch, self.pair.a, self.pair.b)
        )
        return first.scalings_a != self.pair.scalings_a and self.takes_fp32_scales

    @property
    def takes_fp32_scales(self) -> bool:
        """Whether FP32 scales make it this case: there may be another one that multiplies them as they are."""
        by_bytes = self.scaling_a is not None and self.scaling_a.element == "ue8m0"
        return not by_bytes or self.pair.arch == "sm100" or self.pair.a == FP4

    def __str__(self) -> str:
        scales = "unscaled" if self.scaling_b is None else f"{self.scaling_a}-{self.scaling_b}"
        return f"{self.pair.a}-{self.pair.b}-{self.grouping}-{scales}-{self.output}-{self.added}"

    def recipe(self) -> dict[str, tuple[int, ...]]:
        """As the calls take it: one for both operands where they share K's granularity."""
        a, b = self.scaling_a, self.scaling_b
        if a is None or b is None or b.k < 0:
            return {}
        if self.pair.a == "s8":  # tokens' scales are told by their shape
            return {"recipe": (1, b.rows, b.k)}
        if a.k == b.k:
            return {"recipe": (a.rows, b.rows, a.k)}
        return {"recipe_a": (a.rows, a.k), "recipe_b": (b.rows, b.k)}


def cases(of: list[Pair] | None = None) -> Iterator[Case]:
    for pair in pairs() if of is None else of:
        scalings = product(pair.scalings_a or (None,), pair.scalings_b or (None,))
        together = [(a, b) for a, b in scalings if a == b or pair.equal_scalings == "0"]
        for grouping, (a, b), output in product(pair.groupings, together, pair.outputs):
            if output == "s32":
                a = b = None  # the sum itself
            if grouping in ONE_RECIPE and a is not None and a.k != b.k:
                continue
            if grouping == "k_contiguous" and b is not None and (b.rows != 1 or (b.element, b.k) == ("fp32", 32)):
                continue  # both operands of K groups have a scale for each row, of FP32 ones for 128 of K
            for added in ("nothing", "c", "d") if grouping in ADDED_TO else ("nothing",):
                yield Case(pair, grouping, a, b, output, added)


def values(element: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    if element == "s8":
        return torch.randint(-128, 128, shape, generator=generator, dtype=torch.int8)
    if element == FP4:
        return torch.randint(0, 16, shape, generator=generator, dtype=torch.uint8)
    return torch.randn(shape, generator=generator).to(DTYPES[element])


def decoded(element: str, data: torch.Tensor) -> torch.Tensor:
    if element != FP4:
        return data.double()
    return torch.cat((FP4_VALUES, -FP4_VALUES)).double()[data.long()]


def packed(codes: torch.Tensor) -> torch.Tensor:
    """Two of them a byte along the last dimension, the first one in the low nibble."""
    return (codes[..., ::2] | codes[..., 1::2] << 4).contiguous().view(torch.int8)


@dataclass
class Quantised:
    """Data [rows, K] with scales of their own, and both in FP64. Of FP4, codes."""

    data: torch.Tensor
    scales: torch.Tensor | None
    exact: torch.Tensor


def quantised(element: str, scaling: Scaling | None, rows: int, k: int, generator: torch.Generator) -> Quantised:
    data = values(element, (rows, k), generator)
    if scaling is None:
        return Quantised(data, None, decoded(element, data))
    shape = scaling.shape(rows, k)
    if scaling.element == "ue8m0":
        scales = torch.exp2(torch.randint(-7, 4, shape, generator=generator).float())
    elif scaling.element == "e4m3":
        scales = (torch.rand(shape, generator=generator) * 4).to(torch.float8_e4m3fn).float()
    else:
        shrink = 16 if element == "s8" else 1  # products of integers are large, and FP16 is to hold their sums
        scales = (torch.rand(shape, generator=generator) + 0.5) / shrink
    every = scales.double()
    if scaling.rows != -1:
        every = every.repeat_interleave(scaling.rows, 0)[:rows]
    if scaling.k != -1:
        every = every.repeat_interleave(scaling.k, 1)[:, :k]
    return Quantised(data, scales, decoded(element, data) * every)


@dataclass(frozen=True)
class Call:
    """A case, and what is drawn of how it is called: the layout, and the forms of scales."""

    case: Case
    layout: str
    form_a: Form
    form_b: Form
    recipe: dict[str, Any]
    padding: int  # elements between rows of operands
    fp4_mn_major: bool  # codes of FP4 lie two a byte along N, not K
    sets_fp32_scales: bool = False  # the setting instead of the argument

    def function(self, name: str) -> Any:
        family = FP4_FAMILY if self.case.pair.is_fp8_fp4 else FAMILIES[self.case.pair.a]
        return getattr(deep_gemm, name.format(family, self.layout))


# Layouts of the calls of each grouping.
LAYOUTS = {"dense": ("nt", "nn", "tn", "tt"), "m_contiguous": ("nt", "nn"), "m_psum": ("nt", "nn")}


def layouts(case: Case) -> tuple[str, ...]:
    if case.grouping == "k_contiguous":
        return {"e4m3": ("tn", "nt"), FP4: ("nt",)}.get(case.pair.a, ("tn",))
    return ("nt",) if case.pair.a == "s8" or case.pair.is_fp4 else LAYOUTS.get(case.grouping, ("nt",))


def forms(case: Case, generator: torch.Generator) -> tuple[Form, Form]:
    """Of A's and B's scales. Blocks are no words, and neither is E8M0 of K groups taken."""
    if case.scaling_a is None or case.scaling_b is None:
        return Form(), Form()
    if case.pair.is_fp4:
        kinds = ("e4m3", "e4m3 words") if case.scaling_a.element == "e4m3" else WRITTEN
        return drawn_form(generator, kinds), drawn_form(generator, kinds)
    if case.scaling_a.element != "ue8m0":
        return Form(lying=draw(LYING, generator)), Form(lying=draw(LYING, generator))
    kinds = tuple(kind for kind in WRITTEN if kind != "fp32" or case.takes_fp32_scales)
    if case.grouping == "k_contiguous":
        kind = draw(tuple(kind for kind in kinds if kind != "e8m0"), generator)
        return drawn_form(generator, (kind,)), drawn_form(generator, (kind,))
    of_b = tuple(kind for kind in kinds if kind != "words" or case.scaling_b.rows == 1)
    return drawn_form(generator, kinds), drawn_form(generator, of_b)


def default_recipe(case: Case, form_a: Form, form_b: Form) -> tuple[int, int, int]:
    if case.pair.is_fp4:
        return (1, 1, 16 if form_a.written == "e4m3" else 32)
    words = form_b.written == "words" and case.grouping != "batched"  # einsum has one default for all
    return (1, 1 if case.grouping == "k_contiguous" or words else 128, 128)


def drawn_recipe(case: Case, form_a: Form, form_b: Form, generator: torch.Generator) -> dict[str, tuple[int, ...]]:
    """As a call may say it: once, for each operand, or not at all where it is the default."""
    both = case.recipe()
    if case.pair.is_fp8_fp4:
        is_default = case.pair.b == FP4 and (case.scaling_a.k, case.scaling_b.k) == (128, 32)
        return draw((both, {}), generator) if is_default else both
    if "recipe" not in both or case.pair.a == "s8":
        return both
    ways = [both]
    if both["recipe"] == default_recipe(case, form_a, form_b):
        ways.append({})
    if case.grouping not in ONE_RECIPE:
        rows_a, rows_b, k = both["recipe"]
        ways.append({"recipe_a": (rows_a, k), "recipe_b": (rows_b, k)})
    return draw(tuple(ways), generator)


@contextmanager
def settings_of(call: Call, device: torch.device) -> Iterator[None]:
    before = deep_gemm.get_fp32_scales(device)
    deep_gemm.set_fp32_scales(call.sets_fp32_scales, device)
    yield
    deep_gemm.set_fp32_scales(before, device)


def drawn_call(case: Case, generator: torch.Generator) -> Call:
    call = drawn_arguments(case, generator)
    if not case.asks_for_fp32:
        return call
    if case.grouping in ONE_RECIPE or draw((True, False), generator):
        return replace(call, sets_fp32_scales=True)
    return replace(call, recipe=call.recipe | {"disable_ue8m0_cast": True})


def drawn_arguments(case: Case, generator: torch.Generator) -> Call:
    scaling = case.scaling_b
    spread = scaling is not None and (scaling.element == "ue8m0" or (case.pair.b == "e4m3" and scaling.k == 32))
    takes_blocks = spread and case.grouping != "k_contiguous"
    takes_blocks = takes_blocks and case.pair.b != FP4
    if takes_blocks and draw((True, False, False), generator):
        # Not in the table, whose kernels want a scale for each row: the calls spread them.
        rows = draw((32, 128), generator) if scaling.k == 32 else 128
        case = replace(case, scaling_b=replace(scaling, rows=rows))
    form_a, form_b = forms(case, generator)
    layout, recipe = draw(layouts(case), generator), drawn_recipe(case, form_a, form_b, generator)
    padding, mn_major = draw((0, 16, 8, 3), generator), draw((False, True), generator)
    return Call(case, layout, form_a, form_b, recipe, padding, mn_major and case.pair.is_fp8_fp4)


# How the operands of all groups become one tensor.
JOINS = {"groups": torch.stack, "rows": partial(torch.cat, dim=0), "k": partial(torch.cat, dim=-1)}


def apart(data: torch.Tensor, padding: int) -> torch.Tensor:
    """The same in rows that are longer by `padding` elements, which are not finite, or -1."""
    wide = torch.empty((*data.shape[:-1], data.shape[-1] + padding), dtype=data.dtype, device=data.device)
    wide.view(torch.uint8).fill_(0xFF)
    return wide[..., : data.shape[-1]].copy_(data)


@dataclass
class Problem:
    """The matrices of a call, of each group."""

    call: Call
    generator: torch.Generator
    a: list[Quantised] = field(default_factory=list)
    b: list[Quantised] = field(default_factory=list)

    def add(self, m: int, n: int, k: int) -> None:
        case = self.call.case
        self.a.append(quantised(case.pair.a, case.scaling_a, m, k, self.generator))
        self.b.append(quantised(case.pair.b, case.scaling_b, n, k, self.generator))

    def expected(self, group: int) -> tuple[torch.Tensor, torch.Tensor]:
        """D without C, and sum |a||b|."""
        a, b = self.a[group].exact, self.b[group].exact
        return a @ b.T, a.abs() @ b.abs().T

    def handed_a(self, device: torch.device, join: str = "rows", transposed: bool = False) -> Any:
        return self._handed(self.a, self.call.case.pair.a, self.call.form_a, device, join, transposed)

    def handed_b(self, device: torch.device, join: str = "groups", transposed: bool = False) -> Any:
        return self._handed(self.b, self.call.case.pair.b, self.call.form_b, device, join, transposed)

    def _handed(
        self, parts: list[Quantised], element: str, form: Form, device: torch.device, join: str, transposed: bool
    ) -> Any:
        """What a public function takes. Transposed: [..., K, rows]."""
        joined = JOINS[join]([x.data for x in parts]).to(device)
        # Two rows along N are one line of bytes, which is read as one along K.
        along = self.call.fp4_mn_major and joined.shape[-2] % 2 == 0 and joined.shape[-2] > 2
        mn_major = along if element == FP4 else transposed
        lines = joined.mT if mn_major else joined
        data = apart(packed(lines) if element == FP4 else lines, self.call.padding)
        data = data if mn_major == transposed else data.mT
        scales = [written(x.scales, form) for x in parts if x.scales is not None]
        if not scales:
            return data
        laid = laid_out(JOINS[join](scales).to(device), form)
        return data, laid.mT if transposed else laid
