"""Builds each benchmark case: inputs, call, check against FP64, and how many operations and bytes it must cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType

import paths  # noqa: F401
import torch
from inputs import FP8, Operand, ceil_div, is_blackwell, random_values
from inputs import quantise_blocks as blocks_of
from inputs import quantise_rows as rows_of
from reference import product_nt
from shapes import ALIGNMENT, MASKED_MAX_M, draw

import deep_gemm

# An H200's (summary.KNOWN_GPU): efficiency is given for no other.
FP8_FLOPS, BF16_FLOPS = 1.5e15, 0.8e15
MEMORY_BYTES = 4.3e12
LAUNCH_SECONDS = 2e-6


class NotAvailable(Exception):
    """The library has no such function (yet)."""


@dataclass
class Problem:
    name: str  # of the library's function
    arguments: tuple
    poison: Callable[[], None]  # makes what an earlier call left useless
    check: Callable[[], float]  # after one call: how far the result is from the reference (calc_diff)
    flops: int
    bytes: int
    peak: float = FP8_FLOPS
    cublas: Callable[[], None] | None = None
    keywords: dict = field(default_factory=dict)
    call: Callable[[], None] = field(init=False)  # of our library

    def __post_init__(self) -> None:
        self.call = self.call_of(deep_gemm)

    def call_of(self, library: ModuleType) -> Callable[[], None]:
        """The same call of another library with this API, with the same tensors."""
        function = getattr(library, self.name, None)
        if function is None:
            raise NotAvailable(f"{library.__name__} has no {self.name}")
        arguments = [tuple(a) if isinstance(a, Operand) else a for a in self.arguments]
        return lambda: function(*arguments, **self.keywords)

    @property
    def floor_seconds(self) -> float:
        return max(self.bytes / MEMORY_BYTES, self.flops / self.peak) + LAUNCH_SECONDS


def calc_diff(x: torch.Tensor, y: torch.Tensor) -> float:
    """1 - 2<x, y> / (<x, x> + <y, y>): zero for equal tensors; NaN where a NaN is."""
    x, y = x.double(), y.double()
    total = (x * x + y * y).sum()
    return 0.0 if total == 0 else (1 - 2 * (x * y).sum() / total).item()


def nbytes(*tensors: torch.Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def quantise_rows(x: torch.Tensor) -> Operand:
    """With scales as the device multiplies them: on a Blackwell, powers of two."""
    return rows_of(x, is_blackwell(x.device))


def quantise_blocks(x: torch.Tensor) -> Operand:
    return blocks_of(x, is_blackwell(x.device))


def aligned_scales(operand: Operand) -> Operand:
    """Scales as a serving stack holds them, so that a call launches one kernel: MN-major and padded, on a Blackwell as
    words of exponents."""
    scales = operand.scales
    if is_blackwell(scales.device):
        return Operand(operand.data, deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(scales))
    *groups, mn, k = scales.shape
    padded = torch.zeros((*groups, k, ceil_div(mn, 4) * 4), dtype=scales.dtype, device=scales.device)
    padded[..., :mn] = scales.transpose(-1, -2)
    return Operand(operand.data, padded[..., :mn].transpose(-1, -2))


def loaded_weights(b: Operand) -> Operand:
    """Weights with a scale for each 128x128, as a model keeps them once it is loaded."""
    if not is_blackwell(b.data.device):
        return b
    *groups, n, k = b.data.shape
    scales = deep_gemm.transform_sf_into_required_layout(b.scales, n, k, (128, 128), *groups)
    return Operand(b.data, scales)


def cublas_block_scaled(a: Operand, b: Operand, d: torch.Tensor) -> Callable[[], None]:
    """cuBLASLt's own block-scaled FP8 product through torch, where that torch and CUDA have it. A Blackwell's has a
    power of two for each 32 of K, in its own order; here all are one, and time is all that is compared."""
    if is_blackwell(d.device):
        k_scales = ceil_div(a.data.shape[1], 128) * 4
        scales_a, scales_b = (
            torch.full((ceil_div(len(x.data), 128) * 128 * k_scales,), 127, dtype=torch.uint8, device=d.device).view(
                torch.float8_e8m0fnu
            )
            for x in (a, b)
        )
    else:
        scales_a, scales_b = a.scales.T.contiguous().T, b.scales.T

    def call() -> None:
        torch._scaled_mm(a.data, b.data.T, scale_a=scales_a, scale_b=scales_b, out_dtype=d.dtype, out=d)

    return call


def dense(m: int, n: int, k: int, device: torch.device, seed: int, **_) -> Problem:
    a = quantise_rows(random_values((m, k), device, seed))
    b = quantise_blocks(random_values((n, k), device, seed + 1))
    d = torch.empty((m, n), dtype=torch.bfloat16, device=device)
    a_aligned = aligned_scales(a)
    return Problem(
        "fp8_gemm_nt",
        (a_aligned, loaded_weights(b), d),
        poison=lambda: d.fill_(float("nan")),
        check=lambda: calc_diff(d, product_nt(a, b, magnitude=False).value),
        flops=2 * m * n * k,
        bytes=nbytes(*a, *b, d),
        cublas=cublas_block_scaled(a, b, torch.empty_like(d)),
    )


def wgrad(m: int, k: int, n: int, device: torch.device, seed: int, **_) -> Problem:
    a = quantise_rows(random_values((m, k), device, seed))
    b = quantise_rows(random_values((n, k), device, seed + 1))
    c = random_values((m, n), device, seed + 2) * k**0.5
    d = torch.empty_like(c)
    a_aligned, b_aligned = aligned_scales(a), aligned_scales(b)
    return Problem(
        "fp8_gemm_nt",
        (a_aligned, b_aligned, d),
        keywords={"c": d, "recipe": (1, 1, 128)},
        poison=lambda: d.copy_(c),
        check=lambda: calc_diff(d - c, product_nt(a, b, magnitude=False).value),
        flops=2 * m * n * k,
        bytes=nbytes(*a, *b, d, d),
    )


def expert_weights(groups: int, n: int, k: int, device: torch.device, seed: int) -> Operand:
    """One expert at a time: the FP32 values of all of them would not fit."""
    data = torch.empty((groups, n, k), dtype=FP8, device=device)
    scales = torch.empty((groups, ceil_div(n, 128), ceil_div(k, 128)), dtype=torch.float32, device=device)
    for group in range(groups):
        data[group], scales[group] = quantise_blocks(random_values((n, k), device, seed + group))
    return Operand(data, scales)


def worst(differences: Sequence[float]) -> float:
    return float("nan") if any(value != value for value in differences) else max(differences)


def expert_rows(
    counts: Sequence[int], k: int, device: torch.device, seed: int
) -> tuple[torch.Tensor, torch.Tensor, list[slice]]:
    """Values of a contiguous layout, zero in the padding; the layout; and where each expert's rows are."""
    alignment = deep_gemm.get_mk_alignment_for_contiguous_layout()
    m = sum(ceil_div(count, alignment) * alignment for count in counts)
    values = torch.zeros((m, k), dtype=torch.float32, device=device)
    layout = torch.full((m,), -1, dtype=torch.int32, device=device)
    parts, start = [], 0
    for group, count in enumerate(counts):
        parts.append(slice(start, start + count))
        values[parts[-1]] = random_values((count, k), device, seed + group)
        layout[parts[-1]] = group
        start += ceil_div(count, alignment) * alignment
    return values, layout, parts


def contiguous(
    groups: int, tokens: int, n: int, k: int, device: torch.device, seed: int, total: int | None = None, **_
) -> Problem:
    counts = draw(groups, tokens, total, seed)
    values, layout, parts = expert_rows(counts, k, device, seed)
    m = len(values)
    a = quantise_rows(values)
    del values
    b = expert_weights(groups, n, k, device, seed + 1000)
    d = torch.empty((m, n), dtype=torch.bfloat16, device=device)
    a_aligned = aligned_scales(a)
    rows = sum(counts)

    def check() -> float:
        found = []
        for group, part in enumerate(parts):
            expert = Operand(b.data[group], b.scales[group])
            expected = product_nt(Operand(a.data[part], a.scales[part]), expert, magnitude=False).value
            found.append(calc_diff(d[part], expected))
        return worst(found)

    return Problem(
        "m_grouped_fp8_gemm_nt_contiguous",
        (a_aligned, loaded_weights(b), d, layout),
        poison=lambda: d.fill_(float("nan")),
        check=check,
        flops=2 * rows * n * k,
        bytes=rows * (k + ceil_div(k, 128) * 4 + n * 2) + nbytes(*b),
    )


def masked(
    groups: int, tokens: int, n: int, k: int, device: torch.device, seed: int, total: int | None = None, **_
) -> Problem:
    counts = draw(groups, tokens, total, seed)
    max_m = max(MASKED_MAX_M if device.type == "cuda" else 0, ceil_div(max(counts), 64) * 64)
    # What lies behind the valid rows is whatever an earlier step left there: NaN, to be sure that nobody uses it.
    data = torch.full((groups, max_m, k), 0x7F, dtype=torch.uint8, device=device).view(FP8)
    scales = torch.full((groups, ceil_div(k, 128), max_m), float("nan"), device=device).transpose(1, 2)
    for group, count in enumerate(counts):
        rows = quantise_rows(random_values((count, k), device, seed + group))
        data[group, :count], scales[group, :count] = rows
    b = expert_weights(groups, n, k, device, seed + 1000)
    d = torch.empty((groups, max_m, n), dtype=torch.bfloat16, device=device)
    masked_m = torch.tensor(counts, dtype=torch.int32, device=device)
    rows = sum(counts)

    def check() -> float:
        found = []
        for group, count in enumerate(counts):
            part = Operand(data[group, :count], scales[group, :count])
            expected = product_nt(part, Operand(b.data[group], b.scales[group]), magnitude=False).value
            found.append(calc_diff(d[group, :count], expected))
        return worst(found)

    def poison() -> None:
        for group, count in enumerate(counts):
            d[group, :count] = float("nan")

    return Problem(
        "m_grouped_fp8_gemm_nt_masked",
        ((data, scales), loaded_weights(b), d, masked_m, tokens),
        poison=poison,
        check=check,
        flops=2 * rows * n * k,
        bytes=rows * (k + ceil_div(k, 128) * 4 + n * 2) + nbytes(*b),
    )


def kgrouped(
    groups: int, m: int, n: int, mean_k: int, device: torch.device, seed: int, total: int | None = None, **_
) -> Problem:
    ks = draw(groups, mean_k, total, seed, multiple=ALIGNMENT)
    a_parts = [quantise_rows(random_values((m, k), device, seed + g)) for g, k in enumerate(ks)]
    b_parts = [quantise_rows(random_values((n, k), device, seed + 100 + g)) for g, k in enumerate(ks)]

    def flat(parts: list[Operand]) -> Operand:
        scales = torch.cat([part.scales.T for part in parts]).contiguous()
        return Operand(torch.cat([part.data.flatten() for part in parts]), scales)

    a, b = flat(a_parts), flat(b_parts)
    ks_tensor = torch.tensor(ks, dtype=torch.int32, device=device)
    c = random_values((groups, m, n), device, seed + 2) * mean_k**0.5
    d = torch.empty_like(c)

    def check() -> float:
        pairs = zip(a_parts, b_parts, strict=True)
        return worst(
            [calc_diff(d[g] - c[g], product_nt(x, y, magnitude=False).value) for g, (x, y) in enumerate(pairs)]
        )

    return Problem(
        "k_grouped_fp8_gemm_nt_contiguous",
        (a, b, d, ks, ks_tensor),
        keywords={"c": d},
        poison=lambda: d.copy_(c),
        check=check,
        flops=2 * m * n * sum(ks),
        bytes=nbytes(*a, *b, d, d),
    )


# Operands of BF16: no scales.


def bf16(m: int, n: int, k: int, device: torch.device, seed: int, **_) -> Problem:
    a = random_values((m, k), device, seed).bfloat16()
    b = random_values((n, k), device, seed + 1).bfloat16()
    d = torch.empty((m, n), dtype=torch.bfloat16, device=device)
    other = torch.empty_like(d)
    return Problem(
        "bf16_gemm_nt",
        (a, b, d),
        poison=lambda: d.fill_(float("nan")),
        check=lambda: calc_diff(d, product_nt(a, b, magnitude=False).value),
        flops=2 * m * n * k,
        bytes=nbytes(a, b, d),
        peak=BF16_FLOPS,
        cublas=lambda: torch.matmul(a, b.T, out=other),
    )


def bf16_weights(groups: int, n: int, k: int, device: torch.device, seed: int) -> torch.Tensor:
    """One expert at a time, as `expert_weights`."""
    b = torch.empty((groups, n, k), dtype=torch.bfloat16, device=device)
    for group in range(groups):
        b[group] = random_values((n, k), device, seed + group)
    return b


def bf16_contiguous(
    groups: int, tokens: int, n: int, k: int, device: torch.device, seed: int, total: int | None = None, **_
) -> Problem:
    values, layout, parts = expert_rows(draw(groups, tokens, total, seed), k, device, seed)
    a, b = values.bfloat16(), bf16_weights(groups, n, k, device, seed + 1000)
    d = torch.empty((len(a), n), dtype=torch.bfloat16, device=device)
    rows = sum(part.stop - part.start for part in parts)

    def check() -> float:
        pairs = zip(parts, b, strict=True)
        return worst([calc_diff(d[part], product_nt(a[part], x, magnitude=False).value) for part, x in pairs])

    return Problem(
        "m_grouped_bf16_gemm_nt_contiguous",
        (a, b, d, layout),
        poison=lambda: d.fill_(float("nan")),
        check=check,
        flops=2 * rows * n * k,
        bytes=rows * (k + n) * 2 + nbytes(b),
        peak=BF16_FLOPS,
    )


def bf16_masked(
    groups: int, tokens: int, n: int, k: int, device: torch.device, seed: int, total: int | None = None, **_
) -> Problem:
    counts = draw(groups, tokens, total, seed)
    max_m = max(MASKED_MAX_M if device.type == "cuda" else 0, ceil_div(max(counts), 64) * 64)
    a = torch.full((groups, max_m, k), float("nan"), dtype=torch.bfloat16, device=device)
    for group, count in enumerate(counts):
        a[group, :count] = random_values((count, k), device, seed + group)
    b = bf16_weights(groups, n, k, device, seed + 1000)
    d = torch.empty((groups, max_m, n), dtype=torch.bfloat16, device=device)
    masked_m = torch.tensor(counts, dtype=torch.int32, device=device)
    rows = sum(counts)

    def check() -> float:
        return worst(
            [
                calc_diff(d[g, :count], product_nt(a[g, :count], b[g], magnitude=False).value)
                for g, count in enumerate(counts)
            ]
        )

    return Problem(
        "m_grouped_bf16_gemm_nt_masked",
        (a, b, d, masked_m, tokens),
        poison=lambda: d.fill_(float("nan")),
        check=check,
        flops=2 * rows * n * k,
        bytes=rows * (k + n) * 2 + nbytes(b),
        peak=BF16_FLOPS,
    )


def bf16_kgrouped(
    groups: int, m: int, n: int, mean_k: int, device: torch.device, seed: int, total: int | None = None, **_
) -> Problem:
    ks = draw(groups, mean_k, total, seed, multiple=ALIGNMENT)
    a, b = (random_values((sum(ks), extent), device, seed + i).bfloat16() for i, extent in enumerate((m, n)))
    ks_tensor = torch.tensor(ks, dtype=torch.int32, device=device)
    c = random_values((groups, m, n), device, seed + 2) * mean_k**0.5
    d = torch.empty_like(c)

    def check() -> float:
        pairs = zip(a.split(ks), b.split(ks), strict=True)
        return worst(
            [calc_diff(d[g] - c[g], product_nt(x.T, y.T, magnitude=False).value) for g, (x, y) in enumerate(pairs)]
        )

    return Problem(
        "k_grouped_bf16_gemm_tn_contiguous",
        (a, b, d, ks, ks_tensor),
        keywords={"c": d},
        poison=lambda: d.copy_(c),
        check=check,
        flops=2 * m * n * sum(ks),
        bytes=nbytes(a, b, d, d),
        peak=BF16_FLOPS,
    )


BUILDERS = {
    "dense": dense,
    "bf16": bf16,
    "bf16_contiguous": bf16_contiguous,
    "bf16_masked": bf16_masked,
    "bf16_kgrouped": bf16_kgrouped,
    "wgrad": wgrad,
    "contiguous": contiguous,
    "masked": masked,
    "kgrouped": kgrouped,
}


def build(case: Sequence, device: torch.device, seed: int = 0, total: int | None = None) -> Problem:
    kind, *sizes = case
    if kind not in BUILDERS:
        raise ValueError(f"unknown kind of case '{kind}': one of {', '.join(BUILDERS)}")
    return BUILDERS[kind](*sizes, device=device, seed=seed, total=total)
