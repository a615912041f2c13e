"""Builds each benchmark case: inputs, call, check against FP64, and how many operations and bytes it must cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType

import paths  # noqa: F401
import torch
from inputs import Operand, ceil_div, is_blackwell, random_values
from inputs import quantise_blocks as blocks_of
from inputs import quantise_rows as rows_of
from reference import product_nt
from shapes import ALIGNMENT, MASKED_MAX_M, draw

import deep_gemm
from deep_gemm._products import function_name
from deep_gemm.testing import calc_diff, count_bytes

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


Parts = tuple[torch.Tensor, ...]  # an operand's data, and its scales where it has some


def whole(parts: Parts) -> torch.Tensor | Operand:
    """As calls and references take it."""
    return parts[0] if len(parts) == 1 else Operand(*parts)


def part_of(parts: Parts, where: slice | int) -> torch.Tensor | Operand:
    return whole(tuple(part[where] for part in parts))


def difference(d: torch.Tensor, a: torch.Tensor | Operand, b: torch.Tensor | Operand) -> float:
    return calc_diff(d, product_nt(a, b, magnitude=False).value)


def worst(differences: Iterable[float]) -> float:
    found = [*differences]
    return float("nan") if any(value != value for value in found) else max(found)


def fp8_rows(x: torch.Tensor) -> Parts:
    """With scales as the device multiplies them: on a Blackwell, powers of two."""
    return rows_of(x, is_blackwell(x.device))


def fp8_blocks(x: torch.Tensor) -> Parts:
    return blocks_of(x, is_blackwell(x.device))


def aligned(operand: Parts) -> Parts:
    """Scales as a serving stack holds them, so that a call launches one kernel: MN-major and padded, on a Blackwell as
    words of exponents."""
    data, scales = operand
    if is_blackwell(scales.device):
        return data, deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(scales)
    *groups, mn, k = scales.shape
    padded = torch.zeros((*groups, k, ceil_div(mn, 4) * 4), dtype=scales.dtype, device=scales.device)
    padded[..., :mn] = scales.transpose(-1, -2)
    return data, padded[..., :mn].transpose(-1, -2)


def loaded(b: Parts) -> Parts:
    """Weights with a scale for each 128x128, as a model keeps them once it is loaded."""
    data, scales = b
    if not is_blackwell(data.device):
        return b
    *groups, n, k = data.shape
    return data, deep_gemm.transform_sf_into_required_layout(scales, n, k, (128, 128), *groups)


def cublas_block_scaled(a: Parts, b: Parts, d: torch.Tensor) -> Callable[[], None]:
    """cuBLASLt's own block-scaled FP8 product through torch, where that torch and CUDA have it. A Blackwell's has a
    power of two for each 32 of K, in its own order; here all are one, and time is all that is compared."""
    (a_data, a_scales), (b_data, b_scales) = a, b
    if is_blackwell(d.device):
        k_scales = ceil_div(a_data.shape[1], 128) * 4
        scales_a, scales_b = (
            torch.full((ceil_div(len(x), 128) * 128 * k_scales,), 127, dtype=torch.uint8, device=d.device).view(
                torch.float8_e8m0fnu
            )
            for x in (a_data, b_data)
        )
    else:
        scales_a, scales_b = a_scales.T.contiguous().T, b_scales.T

    def call() -> None:
        torch._scaled_mm(a_data, b_data.T, scale_a=scales_a, scale_b=scales_b, out_dtype=d.dtype, out=d)

    return call


def cublas_plain(a: Parts, b: Parts, d: torch.Tensor) -> Callable[[], None]:
    return lambda: torch.matmul(a[0], b[0].T, out=d)


@dataclass(frozen=True)
class Numbers:
    """What is multiplied: how operands are made, what of them a call gets, and the same product of cuBLAS."""

    name: str
    peak: float
    rows: Callable[[torch.Tensor], Parts]
    weights: Callable[[torch.Tensor], Parts]
    given_rows: Callable[[Parts], Parts]
    given_weights: Callable[[Parts], Parts]
    cublas: Callable[[Parts, Parts, torch.Tensor], Callable[[], None]]


def bf16_rows(x: torch.Tensor) -> Parts:
    return (x.bfloat16(),)


def as_they_are(parts: Parts) -> Parts:
    return parts


FP8 = Numbers("fp8", FP8_FLOPS, fp8_rows, fp8_blocks, aligned, loaded, cublas_block_scaled)
BF16 = Numbers("bf16", BF16_FLOPS, bf16_rows, bf16_rows, as_they_are, as_they_are, cublas_plain)


def dense(numbers: Numbers, m: int, n: int, k: int, device: torch.device, seed: int, **_) -> Problem:
    a = numbers.rows(random_values((m, k), device, seed))
    b = numbers.weights(random_values((n, k), device, seed + 1))
    d = torch.empty((m, n), dtype=torch.bfloat16, device=device)
    return Problem(
        function_name(numbers.name, "dense"),
        (whole(numbers.given_rows(a)), whole(numbers.given_weights(b)), d),
        poison=lambda: d.fill_(float("nan")),
        check=lambda: difference(d, whole(a), whole(b)),
        flops=2 * m * n * k,
        bytes=count_bytes(a, b, d),
        peak=numbers.peak,
        cublas=numbers.cublas(a, b, torch.empty_like(d)),
    )


def wgrad(m: int, k: int, n: int, device: torch.device, seed: int, **_) -> Problem:
    a = fp8_rows(random_values((m, k), device, seed))
    b = fp8_rows(random_values((n, k), device, seed + 1))
    c = random_values((m, n), device, seed + 2) * k**0.5
    d = torch.empty_like(c)
    return Problem(
        "fp8_gemm_nt",
        (whole(aligned(a)), whole(aligned(b)), d),
        keywords={"c": d, "recipe": (1, 1, 128)},
        poison=lambda: d.copy_(c),
        check=lambda: difference(d - c, whole(a), whole(b)),
        flops=2 * m * n * k,
        bytes=count_bytes(a, b, d, d),
    )


def expert_weights(numbers: Numbers, groups: int, n: int, k: int, device: torch.device, seed: int) -> Parts:
    """One expert at a time: the FP32 values of all of them would not fit."""
    parts: Parts = ()
    for group in range(groups):
        expert = numbers.weights(random_values((n, k), device, seed + group))
        parts = parts or tuple(part.new_empty((groups, *part.shape)) for part in expert)
        for part, values in zip(parts, expert, strict=True):
            part[group] = values
    return parts


def expert_bytes(a: Parts, b: Parts, d: torch.Tensor, rows: int) -> int:
    """Of the rows that count, and of all weights."""
    return rows * sum(part.shape[-1] * part.element_size() for part in (*a, d)) + count_bytes(b)


def contiguous(
    numbers: Numbers,
    groups: int,
    tokens: int,
    n: int,
    k: int,
    device: torch.device,
    seed: int,
    total: int | None = None,
    **_,
) -> Problem:
    """What is padding is zero."""
    alignment = deep_gemm.get_mk_alignment_for_contiguous_layout()
    counts = draw(groups, tokens, total, seed)
    m = sum(ceil_div(count, alignment) * alignment for count in counts)
    values = torch.zeros((m, k), dtype=torch.float32, device=device)
    layout = torch.full((m,), -1, dtype=torch.int32, device=device)
    parts, start = [], 0
    for group, count in enumerate(counts):
        parts.append(slice(start, start + count))
        values[parts[-1]] = random_values((count, k), device, seed + group)
        layout[parts[-1]] = group
        start += ceil_div(count, alignment) * alignment
    a = numbers.rows(values)
    del values
    b = expert_weights(numbers, groups, n, k, device, seed + 1000)
    d = torch.empty((m, n), dtype=torch.bfloat16, device=device)
    rows = sum(counts)
    return Problem(
        function_name(numbers.name, "contiguous"),
        (whole(numbers.given_rows(a)), whole(numbers.given_weights(b)), d, layout),
        poison=lambda: d.fill_(float("nan")),
        check=lambda: worst(difference(d[where], part_of(a, where), part_of(b, g)) for g, where in enumerate(parts)),
        flops=2 * rows * n * k,
        bytes=expert_bytes(a, b, d, rows),
        peak=numbers.peak,
    )


def masked(
    numbers: Numbers,
    groups: int,
    tokens: int,
    n: int,
    k: int,
    device: torch.device,
    seed: int,
    total: int | None = None,
    **_,
) -> Problem:
    """What lies behind the valid rows is whatever an earlier step left there: NaN, to be sure that nobody uses it."""
    counts = draw(groups, tokens, total, seed)
    max_m = max(MASKED_MAX_M if device.type == "cuda" else 0, ceil_div(max(counts), 64) * 64)
    room: Parts = ()
    for group, count in enumerate(counts):
        made = numbers.rows(random_values((count, k), device, seed + group))
        room = room or tuple(room_for(part, i > 0, groups, max_m) for i, part in enumerate(made))
        for part, rows in zip(room, made, strict=True):
            part[group, :count] = rows
    b = expert_weights(numbers, groups, n, k, device, seed + 1000)
    d = torch.empty((groups, max_m, n), dtype=torch.bfloat16, device=device)
    masked_m = torch.tensor(counts, dtype=torch.int32, device=device)

    def check() -> float:
        firsts = (tuple(part[g, :count] for part in (d, *room)) for g, count in enumerate(counts))
        return worst(difference(of_d, whole(of_a), part_of(b, g)) for g, (of_d, *of_a) in enumerate(firsts))

    return Problem(
        function_name(numbers.name, "masked"),
        (whole(room), whole(numbers.given_weights(b)), d, masked_m, tokens),
        poison=lambda: d.fill_(float("nan")),
        check=check,
        flops=2 * sum(counts) * n * k,
        bytes=expert_bytes(room, b, d, sum(counts)),
        peak=numbers.peak,
    )


def room_for(part: torch.Tensor, mn_major: bool, groups: int, rows: int) -> torch.Tensor:
    shape = (groups, part.shape[1], rows) if mn_major else (groups, rows, part.shape[1])
    room = torch.full(shape, float("nan"), dtype=part.dtype, device=part.device)
    return room.transpose(1, 2) if mn_major else room


def kgrouped(
    numbers: Numbers,
    groups: int,
    m: int,
    n: int,
    mean_k: int,
    device: torch.device,
    seed: int,
    total: int | None = None,
    **_,
) -> Problem:
    """FP8 has each group K-major behind the one before; BF16 has K first."""
    ks = draw(groups, mean_k, total, seed, multiple=ALIGNMENT)
    flat = numbers is FP8
    given: list[Parts] = []
    by_group: list[list[torch.Tensor | Operand]] = []
    for i, extent in enumerate((m, n)):
        if flat:
            made = [fp8_rows(random_values((extent, k), device, seed + 100 * i + g)) for g, k in enumerate(ks)]
            scales = torch.cat([part.T for _, part in made]).contiguous()
            given.append((torch.cat([data.flatten() for data, _ in made]), scales))
            by_group.append([whole(parts) for parts in made])
        else:
            (data,) = bf16_rows(random_values((sum(ks), extent), device, seed + i))
            given.append((data,))
            by_group.append([part.T for part in data.split(ks)])
    c = random_values((groups, m, n), device, seed + 2) * mean_k**0.5
    d = torch.empty_like(c)
    layout = torch.tensor(ks, dtype=torch.int32, device=device)
    return Problem(
        f"k_grouped_{numbers.name}_gemm_{'nt' if flat else 'tn'}_contiguous",
        (*map(whole, given), d, ks, layout),
        keywords={"c": d},
        poison=lambda: d.copy_(c),
        check=lambda: worst(difference(d[g] - c[g], x, y) for g, (x, y) in enumerate(zip(*by_group, strict=True))),
        flops=2 * m * n * sum(ks),
        bytes=count_bytes(*given, d, d),
        peak=numbers.peak,
    )


BUILDERS = {"dense": partial(dense, FP8), "bf16": partial(dense, BF16), "wgrad": wgrad}
for _kind in (contiguous, masked, kgrouped):
    BUILDERS |= {_kind.__name__: partial(_kind, FP8), f"bf16_{_kind.__name__}": partial(_kind, BF16)}


def build(case: Sequence, device: torch.device, seed: int = 0, total: int | None = None) -> Problem:
    kind, *sizes = case
    if kind not in BUILDERS:
        raise ValueError(f"unknown kind of case '{kind}': one of {', '.join(BUILDERS)}")
    return BUILDERS[kind](*sizes, device=device, seed=seed, total=total)
