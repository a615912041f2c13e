"""Operands of every kind that is multiplied, drawn row by row: what random_calls.py places in tensors and hands over.

A row of activations does not know where it will lie: the same ones are placed in contiguous and masked layouts, alone
and among others. What lies between them is not finite, or huge.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import bf16_weight_inputs
import packed_products
import torch
from matrix import (
    DTYPES,
    FP4,
    Call,
    Case,
    Pair,
    Problem,
    Quantised,
    Scaling,
    cases,
    drawn_arguments,
    quantised,
    tolerance,
)
from matrix import layouts as layouts_of
from scale_forms import drawn_form

import deep_gemm
from deep_gemm._products import function_name

NAMES = {name: function_name("{}", name, "{}") for name in ("dense", "m_contiguous", "m_psum", "masked")}
NO_INTEGERS = ("sm_100f", "sm_103a")  # of SM100's targets
FLOATS = ("bf16", "fp32", "fp16")
HUGE = {torch.uint8: 15, torch.int8: 127, torch.int32: 99}


@dataclass
class Place:
    """Where some of the rows lie: in tensors [*shape, K], one each `at`."""

    shape: tuple[int, ...]
    rows: torch.Tensor
    at: torch.Tensor

    def put(self, values: torch.Tensor, huge: int | None = None) -> torch.Tensor:
        """[*shape, ...] of [rows, ...]; between them NaN, or of integers a huge one."""
        filled = torch.empty((*self.shape, *values.shape[1:]), dtype=values.dtype)
        if values.is_floating_point():
            filled.view(torch.uint8).fill_(0xFF)
        else:
            filled.fill_(HUGE[values.dtype] if huge is None else huge)
        filled.view(-1, *values.shape[1:])[self.at] = values[self.rows]
        return filled


@dataclass
class Handed:
    """What a public function takes; its name is in the words of NAMES."""

    function: Any
    a: Any
    b: Any
    more: dict[str, Any]


class Operands:
    """Rows of A, [rows, K], and matrices of B, [experts, N, K]."""

    exact_a: torch.Tensor  # FP64, as are the others
    size_a: torch.Tensor  # of what is added up, where that is not the value
    exact_b: torch.Tensor
    output: str
    adds_bias: bool
    groupings: tuple[str, ...]

    def takes_gate(self, layout: str) -> bool:
        """With gates and ups there among the rows of B."""
        return True  # of packed weights: they were packed for it

    def hand(self, grouping: str, place: Place, experts: slice, device: torch.device) -> Handed:
        raise NotImplementedError

    def tolerance(self, device: torch.device) -> float:
        raise NotImplementedError

    def __str__(self) -> str:
        raise NotImplementedError


def drawn_zeros(r: random.Random, rows: int, seed: torch.Generator) -> torch.Tensor | None:
    return torch.randint(-128, 128, (rows,), generator=seed, dtype=torch.int32) if r.random() < 0.3 else None


def described_call(call: Call) -> str:
    case = call.case
    scales = f" {case.scaling_a}, {case.scaling_b} as {call.form_a}, {call.form_b}, {call.recipe}"
    asks = " set_fp32_scales" if call.sets_fp32_scales else ""
    layout = f"{case.output} {call.layout}{' FP4 along N' if call.fp4_mn_major else ''}{asks}"
    return f"{case.pair.a} x {case.pair.b}: {layout}{scales if case.scaling_b else ''}"


class Tensors(Operands):
    """Both operands are tensors, with scales or without."""

    def __init__(self, r: random.Random, call: Call, rows: int, n: int, k: int, experts: int, seed: torch.Generator):
        self.call, case = call, call.case
        self.a = quantised(case.pair.a, case.scaling_a, rows, k, seed)
        self.b = [quantised(case.pair.b, case.scaling_b, n, k, seed) for _ in range(experts)]
        self.exact_a, self.size_a = self.a.exact, self.a.exact.abs()
        self.exact_b = torch.stack([x.exact for x in self.b])
        self.output, integers = case.output, case.pair.a == "s8" and case.output != "s32"
        self.adds_bias = integers or (case.pair.a != case.pair.b and not case.pair.is_fp8_fp4)
        self.groupings = tuple(grouping for grouping in case.pair.groupings if grouping in NAMES)
        self.m_major = case.pair.a in ("bf16", "fp16") and case.pair.a == case.pair.b and r.random() < 0.3
        self.zeros, self.hands_sums = None, r.random() < 0.5
        if integers and case.scaling_a.k < 0:
            self.zeros = drawn_zeros(r, rows, seed)
        if self.zeros is not None:
            shift = self.zeros.double()[:, None] * self.a.scales.double()
            self.exact_a, self.size_a = self.exact_a - shift, self.size_a + shift.abs()

    def hand(self, grouping: str, place: Place, experts: slice, device: torch.device) -> Handed:
        case = replace(self.call.case, grouping=grouping)
        layout = self.call.layout if self.call.layout in layouts_of(case) else "nt"
        call = replace(self.call, case=case, layout=layout)
        problem = Problem(call, torch.Generator(), self._placed(place), self.b[experts])
        a = problem.handed_a(device, "groups" if grouping == "masked" else "rows", transposed=layout[0] == "t")
        if self.m_major and grouping in ("m_contiguous", "m_psum"):
            a = a.mT.contiguous().mT
        b = problem.handed_b(device, "rows" if grouping == "dense" else "groups", transposed=layout[1] == "n")
        more = dict(call.recipe)
        if self.zeros is not None:
            a = (*a, place.put(self.zeros).to(device))
            if self.hands_sums:
                sums = deep_gemm.int8_row_sums(*b, more["recipe"]) if more else deep_gemm.int8_row_sums(b[0])
                more["b_sums" if grouping == "dense" else "w_sums"] = sums
        return Handed(self._function(call, grouping), a, b, more)

    def takes_gate(self, layout: str) -> bool:
        case, n = self.call.case, self.exact_b.shape[1]
        if case.pair.mn_major == "refused" or case.output == "s32" or self.call.layout != "nt" or n % 2:
            return False
        blocks = case.scaling_b is not None and case.scaling_b.rows > 1
        return not (blocks and layout == "halves" and n % 256)

    def _function(self, call: Call, grouping: str) -> Any:
        pair = call.case.pair
        if pair.b == "e4m3" and pair.a in ("bf16", "fp16"):  # a pair that each call packs
            return getattr(deep_gemm, NAMES[grouping].format("bf16_fp8", "nt"))
        return call.function(NAMES[grouping])

    def _placed(self, place: Place) -> list[Quantised]:
        data = place.put(self.a.data)
        scales = None if self.a.scales is None else place.put(self.a.scales)
        if len(place.shape) == 1:
            return [Quantised(data, scales, data)]
        return [Quantised(x, None if scales is None else scales[i], x) for i, x in enumerate(data)]

    def tolerance(self, device: torch.device) -> float:
        return tolerance(self.call.case.pair, device)

    def __str__(self) -> str:
        m_major = "M-major where contiguous" if self.m_major else ""
        zeros = "zero points" if self.zeros is not None else ""
        return " ".join(filter(None, [described_call(self.call), zeros, m_major]))


class Packed(Operands):
    """Weights that were packed ahead, beside FP8 and integers."""

    groupings = tuple(NAMES)
    adds_bias = True

    def __init__(
        self,
        r: random.Random,
        name: str,
        rows: int,
        n: int,
        k: int,
        experts: int,
        seed: torch.Generator,
        gate_up: str | None = None,
    ):
        self.name, self.kind, self.output = name, packed_products.KINDS[name], r.choice(FLOATS)
        tokens = packed_products.Tokens(self.kind, (rows, k), seed)
        self.data, self.scales = tokens.data, tokens.scales
        self.exact_a, self.size_a = tokens.exact, tokens.exact.abs()
        self.w, self.exact_b = packed_products.weights(self.kind, (experts, n, k), seed, gate_up)
        self.zeros = None
        if self.kind.activations != "fp8" and self.kind.scales != "k_groups":
            self.zeros = drawn_zeros(r, rows, seed)
        if self.zeros is not None:
            scales = self.scales if isinstance(self.scales, float) else self.scales.double()[:, None]
            shift = self.zeros.double()[:, None] * scales
            self.exact_a, self.size_a = self.exact_a - shift, self.size_a + shift.abs()

    def hand(self, grouping: str, place: Place, experts: slice, device: torch.device) -> Handed:
        data = place.put(self.data, packed_products.HUGE[self.kind.activations])
        if self.kind.activations == "int4":
            data = packed_products.apart(deep_gemm.pack_int4(data))
        scales = self.scales if isinstance(self.scales, float) else place.put(self.scales).to(device)
        zeros = () if self.zeros is None else (place.put(self.zeros).to(device),)
        w = (self.w[0] if grouping == "dense" else self.w[experts]).to(device)
        name = NAMES[grouping].replace("_gemm_{}", "_gemm_nt")
        return Handed(self.kind.function(name), (data.to(device), scales, *zeros), w, {})

    def tolerance(self, device: torch.device) -> float:
        return packed_products.TOLERANCES[device.type, self.kind.activations]

    def __str__(self) -> str:
        zeros = " zero points" if self.zeros is not None else ""
        return f"{self.kind.activations} x packed {self.name}: {self.output}{zeros}"


class Wide(Operands):
    """Weights that were packed ahead, beside BF16 and FP16."""

    groupings = tuple(NAMES)
    adds_bias = True

    def __init__(
        self,
        r: random.Random,
        name: str,
        rows: int,
        n: int,
        k: int,
        experts: int,
        seed: torch.Generator,
        gate_up: str | None = None,
    ):
        self.name, self.kind, self.output = name, bf16_weight_inputs.KINDS[name], r.choice(FLOATS)
        self.data = bf16_weight_inputs.activations((rows, k), DTYPES[r.choice(["bf16", "fp16"])], seed)
        self.exact_a, self.size_a = self.data.double(), self.data.double().abs()
        self.w, self.exact_b = bf16_weight_inputs.weights(self.kind, (experts, n, k), seed, gate_up)

    def hand(self, grouping: str, place: Place, experts: slice, device: torch.device) -> Handed:
        w = (self.w[0] if grouping == "dense" else self.w[experts]).to(device)
        name = NAMES[grouping].replace("_gemm_{}", "_gemm_nt")
        return Handed(self.kind.function(name), place.put(self.data).to(device), w, {})

    def tolerance(self, device: torch.device) -> float:
        return bf16_weight_inputs.TOLERANCE[device.type]

    def __str__(self) -> str:
        return f"{str(self.data.dtype).removeprefix('torch.')} x packed {self.name}: {self.output}"


@cache
def table(arch: str, target: str) -> dict[str, dict[str, list[Case]]]:
    """Cases of each pair that the target multiplies, and of each of its groupings."""
    found: dict[str, dict[str, list[Case]]] = {}
    for case in cases():
        if case.pair.arch != arch or (target in NO_INTEGERS and case.pair.sum == "s32"):
            continue
        name = f"{case.pair.a} {case.pair.b} {case.asks_for_fp32}"
        found.setdefault(name, {}).setdefault(case.grouping, []).append(case)
    return found


def drawn_case(r: random.Random, arch: str, target: str) -> Case:
    groupings = r.choice([*table(arch, target).values()])
    return r.choice(r.choice([*groupings.values()]))


def packed_names(target: str) -> list[tuple[type[Packed] | type[Wide], str]]:
    of_integers = target not in NO_INTEGERS
    names = [(Packed, name) for name, kind in packed_products.KINDS.items() if of_integers or kind.activations == "fp8"]
    return [*names, *((Wide, name) for name in bf16_weight_inputs.KINDS)]


def drawn_pair(r: random.Random, arch: str, seed: torch.Generator) -> Call:
    """Of a pair of tensors that each call packs, so that the table has it not: FP8 by FP4, 16 bits by FP8."""
    groupings, outputs = tuple(NAMES), FLOATS
    if arch != "sm100" and r.random() < 0.5:
        pair = Pair(arch, "e4m3", FP4, "fp32", "refused", (), (), "0", outputs, groupings)
        scalings, forms = (Scaling("fp32", 1, 128), Scaling("ue8m0", 1, 32)), ("words", "fp32", "e8m0")
    else:
        element = r.choice(["fp32", "ue8m0"])
        pair = Pair(arch, r.choice(["bf16", "fp16"]), "e4m3", "fp32", "refused", (), (), "0", outputs, groupings)
        scalings, forms = (None, Scaling(element, 128, 128)), ("fp32", "e8m0") if element == "ue8m0" else ("fp32",)
    case = Case(pair, r.choice(groupings), *scalings, r.choice(outputs), r.choice(["nothing", "c", "d"]))
    call = drawn_arguments(case, seed)
    return replace(call, case=case, layout="nt", form_b=drawn_form(seed, forms), fp4_mn_major=False)
