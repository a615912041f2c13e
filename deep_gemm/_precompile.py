"""Which kernels calls will need, and compiling them beforehand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from . import jit
from ._extension import C
from ._numbers import integer
from ._products import DEFAULT_PRODUCT, GROUPINGS, PACKED, PRODUCTS
from ._progress import progress as with_progress
from ._recorded_calls import RecordedCalls
from ._recording import Machine, RecordedKernel, Recording, record, sms_of
from ._targets import HOPPER_TARGET
from .settings import get_mk_alignment_for_contiguous_layout

_FP4_GROUPS = (32, 16)  # MXFP4, NVFP4
OUTPUTS = ("bf16", "fp16", "fp32")
BIASES = ("bf16", "fp32")

DEFAULT = "default"
_PACKED_FLAGS = ("token_scales", "minus_eight", "zero_points", "far_exponents")
_MAX_SINGLE_ROWS, _ROW_STEP = 8192, 64
_CALLS_A_PART = 512  # recorded by one thread, one after the other


def _require_one_of(name: str, given: str, known: Iterable[str], or_none: str = "") -> None:
    if given not in known:
        raise ValueError(f"{name} must be {or_none}one of {', '.join(known)}, got {given!r}")


@dataclass(frozen=True)
class Operands:
    """What is multiplied, and how it is packed and scaled."""

    product: str = DEFAULT_PRODUCT
    group_size: int | str | None = DEFAULT
    token_scales: bool = False
    minus_eight: bool = False
    zero_points: bool = False
    far_exponents: bool = False
    fp32_scales: bool = False
    # `gran_k_a` and `gran_k_b`, the K that shares one; `packs_scales_a` and `_b`, that they come as float32 on SM100;
    # `per_row_b`, that blocks of B have one row; `asymmetric_a`, that tokens have zero points.
    scales: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_one_of("product", self.product, PRODUCTS)
        of_packed = {"group_size": DEFAULT} | dict.fromkeys(_PACKED_FLAGS, False)
        for name, default in of_packed.items() if self.product not in PACKED else ():
            if getattr(self, name) != default and (name, self.product) != ("group_size", "fp4"):
                raise ValueError(f"{name} is of products with packed weights ({', '.join(PACKED)}), not {self.product}")
        if self.fp32_scales and self.product != "fp8":
            raise ValueError(f"fp32_scales is of FP8 operands, not of {self.product}")
        if self.product == "fp4" and self.scale_group() not in _FP4_GROUPS:
            raise ValueError(f"group_size of FP4 operands must be 32 (MXFP4) or 16 (NVFP4), got {self.scale_group()}")

    def scale_group(self) -> int | None:
        """The K of packed weights, or of FP4 operands, that shares a scale."""
        size = PRODUCTS[self.product].group_size if self.group_size == DEFAULT else self.group_size
        return None if size is None else integer("group_size", size)


@dataclass(frozen=True)
class Result:
    """What happens to sums, and what D is: None for the product's own dtype."""

    output: str | None = None
    add_c: bool = False
    bias: str | None = None
    alpha: bool = False
    row_scale: bool = False

    def __post_init__(self) -> None:
        for name, dtypes in (("output", OUTPUTS), ("bias", BIASES)):
            if getattr(self, name) is not None:
                _require_one_of(name, getattr(self, name), dtypes, "None or ")


@dataclass(frozen=True)
class Calls:
    """Calls of one function with one kind of arguments."""

    operands: Operands = Operands()
    grouping: str = "dense"
    experts: int = 1
    expected_m: int = 0
    result: Result = Result()

    def __post_init__(self) -> None:
        _require_one_of("grouping", self.grouping, GROUPINGS)
        if self.grouping == "dense" and self.experts != 1:
            raise ValueError(f"experts go with a grouping, but the grouping is 'dense' and experts are {self.experts}")

    def row_counts(self, max_m: int) -> list[int]:
        """Numbers of rows up to `max_m`, and expected ones of masked experts, as far as kernels may differ."""
        if self.grouping in ("dense", "masked"):
            return _row_counts(max_m)
        alignment = get_mk_alignment_for_contiguous_layout()
        return [*range(alignment, max(max_m, alignment) + 1, alignment)]


def _row_counts(most: int) -> list[int]:
    """Values of M that meet every kernel of a weight: all of them, beyond 8192 in steps of a tile's rows."""
    single = min(most, _MAX_SINGLE_ROWS)
    return [*range(1, single + 1), *range(_MAX_SINGLE_ROWS + _ROW_STEP, most + 1, _ROW_STEP)]


@dataclass(frozen=True)
class Part:
    """Calls that one thread records: `make(count)` for each of the counts."""

    make: Callable[[int], object]
    counts: Sequence[int]


def parts_of(calls: Calls, n: int, k: int, max_m: int, target: str) -> list[Part]:
    """Of a weight. Calls that cannot be are refused here, before anything is chosen."""
    rows = calls.row_counts(max_m)
    return _in_parts(RecordedCalls(calls, n, k, max(max_m, rows[-1]), target).make, rows)


def _in_parts(make: Callable[[int], object], counts: Sequence[int]) -> list[Part]:
    return [Part(make, counts[first : first + _CALLS_A_PART]) for first in range(0, len(counts), _CALLS_A_PART)]


def record_parts(
    parts: Sequence[Part], machine: Machine, *, layouts: bool = False, progress: bool = True
) -> list[list[RecordedKernel]]:
    """The kernels of each, those that rearrange operands and scales only with `layouts`."""

    def record_part(part: Part) -> list[RecordedKernel]:
        others: list[RecordedKernel] = []
        with record(machine.target, machine.num_sms, machine.gpu) as recording:
            for count in part.counts:
                part.make(count)
                if layouts:
                    named = C.recorded_layout_kernels()
                    others += [RecordedKernel(name, text, machine.target) for name, text in named.items()]
        return [*others, *recording.kernels]

    # Choosing goes on without Python's lock, so that threads beyond the cores would only wait for it.
    with jit.worker_threads(len(os.sched_getaffinity(0))) as pool:
        return [*with_progress(pool.map(record_part, parts), "choosing kernels", "parts", len(parts), progress)]


def each_once(found: Iterable[Sequence[RecordedKernel]]) -> list[RecordedKernel]:
    return list(dict.fromkeys(kernel for some in found for kernel in some))


def kernels_of(
    calls: Calls,
    weights: Sequence[tuple[int, int]],
    max_m: int,
    machine: Machine,
    *,
    layouts: bool = False,
    progress: bool = True,
) -> list[RecordedKernel]:
    """Each kernel that calls with weights `(N, K)` can need."""
    parts = [part for n, k in weights for part in parts_of(calls, n, k, max_m, machine.target)]
    return each_once(record_parts(parts, machine, layouts=layouts, progress=progress))


def output_for(newer_gpu: bool) -> str:
    return "driver_ptx" if newer_gpu else "cubin"


def precompile(
    call: Callable[[int], object],
    rows: int | Iterable[int],
    *,
    target: str = HOPPER_TARGET,
    num_sms: int | None = None,
    gpu: str | None = None,
    newer_gpu: bool = False,
    progress: bool = False,
) -> list[jit.CompileResult]:
    """Compile every kernel that calls will need into the disk cache, with or without a GPU.

    The calls are made, as they will be, on tensors of the CPU whose values nobody reads (`jit.placeholder`,
    `PackedWeights.placeholder`), and none of them runs (`jit.record`):

        a, b, d = (jit.placeholder(*s, dtype=torch.bfloat16) for s in ((4096, K), (N, K), (4096, N)))
        deep_gemm.precompile(lambda m: deep_gemm.bf16_gemm_nt(a[:m], b, d[:m]), 4096)

    Args:
        call: makes any calls of this package with so many rows. Several threads call it at the same time.
        rows: the numbers of rows that will come; or the largest: then all of them, beyond 8,192 in steps of 64, among
            which is each kernel's. Contiguous experts want multiples of their alignment, `range(128, 4097, 128)`.
        target, num_sms, gpu: what to compile for, SMs that kernels may use, and which GPU (`jit.record`). By default
            all of an H200; on another GPU some calls pick other kernels, and compile them when they are first made.
        newer_gpu: make what a newer GPU loads that stands in for the target (`set_target`, `DG_TARGET`), or that has no
            target of its own: PTX, which its driver translates, in the place of machine code.
        progress: show progress bars.

    Returns:
        a result for each kernel: see `jit.compile_many`.

    Raises:
        ValueError: an argument cannot be right, or no call was recorded; nothing was compiled. Or what `call` raises.
    """
    counts = _row_counts(integer("rows", rows, smallest=1)) if isinstance(rows, int) else [*rows]
    for count in counts:
        integer("rows", count, smallest=1)
    machine = Machine(target, sms_of(target, num_sms, gpu), gpu)
    kernels = each_once(record_parts(_in_parts(call, counts), machine, progress=progress))
    if not kernels:
        raise ValueError("call must make calls of deep_gemm on CPU tensors, but none needed a kernel")
    return jit.compile_recorded(Recording(target, kernels), output=output_for(newer_gpu), progress=progress)
