"""A small right call of every public product: what tests of all of them begin with."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from inputs import random_blocks, random_rows, random_values

import deep_gemm

M, N, K, EXPERTS = 24, 136, 256, 2
ROWS = 128 * EXPERTS  # of contiguous layouts: each expert has one block of the alignment


@dataclass
class ProductCall:
    """Arguments by name, as a user gives them; `d` holds NaN."""

    name: str
    arguments: dict[str, Any]

    @property
    def function(self) -> Callable[..., None]:
        return getattr(deep_gemm, self.name)

    @property
    def d(self) -> torch.Tensor:
        return self.arguments["d"]

    def __call__(self, **changes: Any) -> torch.Tensor:
        """Runs it, returns D."""
        arguments = {**self.arguments, **changes}
        self.function(**arguments)
        return arguments["d"]

    def fresh(self) -> ProductCall:
        """The same call with memory of its own."""
        return copy.deepcopy(self)

    def flat(self) -> dict[str, Any]:
        """The arguments as the operator takes them."""
        flat = {}
        for name, value in self.arguments.items():
            if name in ("a", "b", "w") and isinstance(value, tuple):
                flat[name], flat[f"{name}_scales"] = value
                if name == "a" and "int8" in self.name:
                    flat["a_zeros"] = None
            else:
                flat[name] = value
        return flat


def _poisoned(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.full(shape, float("nan"), dtype=dtype)


def _flipped(pair: tuple[torch.Tensor, ...], flip: bool) -> tuple[torch.Tensor, ...]:
    pair = tuple(pair)
    return tuple(tensor.transpose(-1, -2).contiguous() for tensor in pair) if flip else pair


def _dense(name: str, bf16: bool, layout: str) -> ProductCall:
    a, b = random_rows((M, K), "cpu", 0), random_blocks((N, K), "cpu", 1)
    if bf16:
        a, b = (random_values(shape, "cpu", 0).bfloat16() for shape in ((M, K), (N, K)))
        a, b = (_flipped((x,), flip)[0] for x, flip in ((a, layout[0] == "t"), (b, layout[1] == "n")))
    else:
        a, b = _flipped(a, layout[0] == "t"), _flipped(b, layout[1] == "n")
    return ProductCall(name, {"a": a, "b": b, "d": _poisoned(M, N)})


def _quantised(shape: tuple[int, ...], seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    data = torch.randint(-128, 128, shape, dtype=torch.int8, generator=generator)
    return data, random_values(shape[:-1], "cpu", seed).abs() / 100


def _integers(name: str) -> ProductCall:
    bias = random_values((N,), "cpu", 2)
    return ProductCall(
        name, {"a": _quantised((M, K), 0), "b": _quantised((N, K), 1), "d": _poisoned(M, N), "bias": bias}
    )


def _integer_experts(name: str) -> ProductCall:
    masked = name.endswith("masked")
    rows = (EXPERTS, M) if masked else (ROWS,)
    arguments = {"a": _quantised((*rows, K), 0), "w": _quantised((EXPERTS, N, K), 1), "d": _poisoned(*rows, N)}
    if masked:
        grouping = {"masked_m": torch.full((EXPERTS,), M, dtype=torch.int32), "expected_m": M}
    else:
        grouping = {"grouped_layout": torch.arange(EXPERTS, dtype=torch.int32).repeat_interleave(128)}
    return ProductCall(name, {**arguments, **grouping, "bias": random_values((EXPERTS, N), "cpu", 2)})


def _experts(name: str, bf16: bool, rows: tuple[int, ...], flip: bool = False) -> dict[str, Any]:
    a, b = random_rows((*rows, K), "cpu", 0), random_blocks((EXPERTS, N, K), "cpu", 1)
    if bf16:
        a, b = random_values((*rows, K), "cpu", 0).bfloat16(), random_values((EXPERTS, N, K), "cpu", 1).bfloat16()
        b = _flipped((b,), flip)[0]
    else:
        a, b = tuple(a), _flipped(b, flip)
    return {"a": a, "b": b, "d": _poisoned(*rows, N)}


def _contiguous(name: str, bf16: bool, layout: str) -> ProductCall:
    owners = torch.arange(EXPERTS, dtype=torch.int32).repeat_interleave(128)
    return ProductCall(name, {**_experts(name, bf16, (ROWS,), layout == "nn"), "grouped_layout": owners})


def _masked(name: str, bf16: bool) -> ProductCall:
    counts = torch.full((EXPERTS,), M, dtype=torch.int32)
    return ProductCall(name, {**_experts(name, bf16, (EXPERTS, M)), "masked_m": counts, "expected_m": M})


def _k_grouped(name: str, bf16: bool, layout: str) -> ProductCall:
    sizes = [128] * EXPERTS
    data = [random_values((rows, sum(sizes)), "cpu", seed) for seed, rows in enumerate((M, N))]
    if bf16:
        operands: list[Any] = [x.T.contiguous().bfloat16() for x in data]
    else:
        quantised = [random_rows(x.shape, "cpu", seed) for seed, x in enumerate(data)]
        if layout == "tn":
            operands = [(q.data.T.contiguous(), q.scales.T.contiguous()) for q in quantised]
        else:
            operands = [
                (torch.cat([part.flatten() for part in q.data.split(sizes, dim=1)]), q.scales.T.contiguous())
                for q in quantised
            ]
    arguments = {"a": operands[0], "b": operands[1], "d": _poisoned(EXPERTS, M, N, dtype=torch.float32)}
    counts = torch.tensor(sizes, dtype=torch.int32)
    return ProductCall(name, {**arguments, "ks_cpu": sizes, "grouped_layout": counts})


def _einsum(name: str) -> ProductCall:
    expr = "bhr,hdr->bhd"
    if name == "einsum":
        a, b = (random_values(shape, "cpu", 0).bfloat16() for shape in ((M, EXPERTS, K), (EXPERTS, N, K)))
        return ProductCall(name, {"expr": expr, "a": a, "b": b, "d": _poisoned(M, EXPERTS, N)})
    a, b = tuple(random_rows((M, EXPERTS, K), "cpu", 0)), tuple(random_blocks((EXPERTS, N, K), "cpu", 1))
    return ProductCall(name, {"expr": expr, "a": a, "b": b, "d": _poisoned(M, EXPERTS, N)})


def make(name: str) -> ProductCall:
    """The right call of a product."""
    if name == "fp8_gemm_nt_skip_head_mid":
        call = _dense("fp8_gemm_nt", False, "nt")
        return ProductCall(name, {**call.arguments, "head_splits": (64, 0, N - 64)})
    if name.endswith("einsum"):
        return _einsum(name)
    bf16, layout = "bf16" in name, next(part for part in ("nt", "nn", "tn", "tt") if f"_{part}" in name)
    if name.startswith("k_grouped"):
        return _k_grouped(name, bf16, layout)
    if "int8" in name:
        return _integer_experts(name) if "m_grouped" in name else _integers(name)
    if name.endswith("masked"):
        return _masked(name, bf16)
    return _contiguous(name, bf16, layout) if "m_grouped" in name else _dense(name, bf16, layout)


# One name for each function, however many names it has.
PRODUCTS = [
    *(f"{kind}_gemm_{layout}" for kind in ("fp8", "bf16") for layout in ("nt", "nn", "tn", "tt")),
    "int8_gemm_nt",
    *(f"m_grouped_{kind}_gemm_{layout}_contiguous" for kind in ("fp8", "bf16") for layout in ("nt", "nn")),
    *(f"m_grouped_{kind}_gemm_nt_masked" for kind in ("fp8", "bf16", "int8")),
    "m_grouped_int8_gemm_nt_contiguous",
    *("k_grouped_fp8_gemm_tn_contiguous", "k_grouped_fp8_gemm_nt_contiguous", "k_grouped_bf16_gemm_tn_contiguous"),
    *("einsum", "fp8_einsum", "fp8_gemm_nt_skip_head_mid"),
]
OTHER_NAMES = {
    **{f"fp8_fp4_gemm_{layout}": f"fp8_gemm_{layout}" for layout in ("nt", "nn", "tn", "tt")},
    **{
        f"m_grouped_fp8_fp4_gemm_{rest}": f"m_grouped_fp8_gemm_{rest}"
        for rest in ("nt_contiguous", "nn_contiguous", "nt_masked")
    },
    **{f"{kind}_m_grouped_gemm_nt_masked": f"m_grouped_{kind}_gemm_nt_masked" for kind in ("fp8", "bf16")},
}
