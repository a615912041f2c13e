"""What must hold of one call of a kind: right rows, untouched memory, the same bits in another run, alone and placed
elsewhere. Each function draws the rest of its call, makes it several times, and raises AssertionError."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from drawn_layouts import Layout, drawn_layout
from drawn_operands import Handed, Operands, Place
from drawn_steps import FP8, Out, Steps
from inputs import GuardedOutput
from matrix import DTYPES
from reference import MIN_ROUNDING, ROUNDING

import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C

COMPILED = [*[""] * 6, "nk", "mnk", "n", "mn"]  # calls share kernels
TILE_ROWS, TILE_COLS = (64, 128, 192, 256), (16, 32, 64, 96, 128, 192, 256)
SCHEDULES = ["lazy", "eager", "random"]
Run = Callable[[str], torch.Tensor]  # of compiled dimensions, to D on the CPU


@contextmanager
def settings(device: torch.device, **values: int) -> Iterator[None]:
    """Of calls, as `deep_gemm.settings` names them; the simulator's `schedule`."""
    where = device.type == "cpu", device.index or 0
    before = {name: C.get_call_setting(*where, name) for name in values}
    try:
        for name, value in values.items():
            C.set_call_setting(*where, name, value)
        yield
    finally:
        for name, value in before.items():
            C.set_call_setting(*where, name, value)


@contextmanager
def described(what: str) -> Iterator[None]:
    """Errors say of which call, in `call`."""
    try:
        yield
    except Exception as error:
        error.call = " ".join(filter(None, [what, getattr(error, "call", "")]))  # type: ignore[attr-defined]
        raise


def assert_near(
    found: torch.Tensor,
    expected: torch.Tensor,
    magnitude: torch.Tensor,
    tolerance: float,
    more: torch.Tensor | float = 0.0,
) -> None:
    """Rows of D against FP64. more: how much further away they may be."""
    if found.dtype == torch.int32:
        wrong = found.double() != expected
    else:
        rounding = (ROUNDING[found.dtype] * expected.abs()).clamp(min=MIN_ROUNDING[found.dtype])
        allowed = tolerance * magnitude + rounding + more + 1e-6
        wrong = ((found.double() - expected).abs() > allowed) | ~found.isfinite()
        largest = torch.finfo(found.dtype).max  # gates and ups multiply past that of FP16
        wrong &= ~((expected.abs() > 0.999 * largest) & (found.abs() >= largest) & (found.sign() == expected.sign()))
    if not wrong.any():
        return
    rows = wrong.any(-1).nonzero().flatten().tolist() if wrong.dim() == 2 else wrong.nonzero()[:4].tolist()
    raise AssertionError(f"{int(wrong.sum())} of {wrong.numel()} elements are wrong, in rows {rows[:12]}")


def assert_same(found: torch.Tensor, other: torch.Tensor, what: str) -> None:
    bits = {2: torch.int16, 4: torch.int32}[found.dtype.itemsize]
    differ = found.contiguous().view(bits) != other.contiguous().view(bits)
    assert not differ.any(), f"{what}: {int(differ.sum())} of {differ.numel()} elements have other bits"


def assert_equal_again(r: random.Random, run: Run, first: torch.Tensor, device: torch.device) -> None:
    """Of the same call with other constants compiled in, under another order of asynchronous work."""
    with simulator.options(schedule=r.choice(SCHEDULES), seed=r.randrange(1 << 30)):
        assert_same(run(r.choice(COMPILED)), first, "the same call with other compiled_dims and another schedule")


def under_another_tile(
    r: random.Random, device: torch.device, sizes: tuple[int, int, int], run: Run
) -> torch.Tensor | None:
    """D by a tile that selection would hardly pick; None where no such one serves the call."""
    where = device.type == "cpu", device.index or 0
    try:
        C.force_config(*where, *sizes, int(r.random() < 0.3), r.choice(TILE_ROWS), r.choice(TILE_COLS), 1, 1, 1, 1, 0)
        return run("")
    except ValueError as error:
        if re.search("knows no such config|config cannot serve|config is refused", str(error)):
            return None
        raise
    finally:
        C.force_config(*where, *sizes, 0, 0, 0, 1, 1, 1, 1, 0)


def guarded(r: random.Random, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> GuardedOutput:
    """Rows apart, the first one anywhere."""
    return GuardedOutput(shape, dtype, device, shape[-1] + r.choice([0, 0, 8, 3]), r.choice([64, 64, 8, 65]))


def output(r: random.Random, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, steps: Steps) -> Out:
    *lead, n = shape
    shape = (*lead, steps.columns(n))
    return Out(guarded(r, shape, dtype if steps.scales is None else FP8, device), steps)


def drawn_bias(r: random.Random, operands: Operands, seed: torch.Generator) -> torch.Tensor | None:
    """[experts, N], in one of three dtypes."""
    if not operands.adds_bias or r.random() < 0.6:
        return None
    experts, n, _ = operands.exact_b.shape
    return torch.randn((experts, n), generator=seed).to(DTYPES[r.choice(["bf16", "fp16", "fp32"])])


def check_experts(
    r: random.Random, operands: Operands, rows: list[torch.Tensor], steps: Steps, device: torch.device
) -> str:
    """A call of experts; some rows of neighbours among them once more, in another layout. Returns the first's name."""
    seed = torch.Generator().manual_seed(r.randrange(1 << 30))
    bias, dtype = drawn_bias(r, operands, seed), DTYPES[operands.output]
    groupings = [grouping for grouping in operands.groupings if grouping != "dense"]

    def call(grouping: str, rows: list[torch.Tensor], experts: slice) -> tuple[torch.Tensor, Run, Handed, Steps, int]:
        """What the rows become, in the order of `rows`; what makes that call again; its arguments; its M."""
        layout = drawn_layout(r, grouping, rows)
        handed = operands.hand(grouping, layout.place, experts, device)
        more = {**handed.more, **layout.more} | ({} if bias is None else {"bias": bias[experts].to(device)})
        taken = steps.for_function(handed.function, more)
        more |= {} if taken.is_plain else {"epilogue": taken.epilogue()}

        def run(compiled_dims: str) -> torch.Tensor:
            d = output(r, (*layout.place.shape, operands.exact_b.shape[1]), dtype, device, taken)
            told = (x.to(device) if isinstance(x, torch.Tensor) else x for x in layout.told)
            with described(f"[{handed.function.__name__}, {grouping}, compiled_dims={compiled_dims!r}]"):
                handed.function(handed.a, handed.b, d.given, *told, compiled_dims=compiled_dims, **more)
                d.check(complete=False)
                values = d.values()
                check_padding(values, d.d.pattern, layout)
            return values.reshape(-1, values.shape[-1])[layout.place.at]

        found = run(r.choice(COMPILED))
        if r.random() < 0.4:
            assert_equal_again(r, run, found, device)
        return found, run, handed, taken, layout.place.shape[-1]

    first, run, handed, taken, m = call(r.choice(groupings), rows, slice(0, len(rows)))
    parts = [of_expert(operands, expert, mine, bias, taken) for expert, mine in enumerate(rows)]
    expected, size = (torch.cat(each) for each in zip(*parts, strict=True))
    near = operands.tolerance(device)
    expected, size = taken.of_sums(expected, size, near)
    assert_near(first, expected, size, near, taken.rounding(expected))
    sizes = m, *operands.exact_b.shape[1:]
    if r.random() < 0.3 and (tiled := under_another_tile(r, device, sizes, run)) is not None:
        assert_near(tiled, expected, size, near, taken.rounding(expected))
    if r.random() < 0.5:
        start = r.randrange(len(rows))
        experts = slice(start, r.randint(start + 1, len(rows)))
        some = [mine[sorted(r.sample(range(len(mine)), r.randint(0, len(mine))))] for mine in rows[experts]]
        grouping = r.choice(groupings)
        assert_same(call(grouping, some, experts)[0], first[torch.cat(some)], f"rows alone, in the layout {grouping}")
    return handed.function.__name__


def of_expert(
    operands: Operands, expert: int, rows: torch.Tensor, bias: torch.Tensor | None, steps: Steps
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums of these rows with an expert's weights, times the factor, and the size of what is added up."""
    b = operands.exact_b[expert].T
    value, size = steps.factor(operands.exact_a[rows] @ b, operands.size_a[rows] @ b.abs())
    if bias is None:
        return value, size
    added = bias[expert].double()
    return value + added, size + added.abs()


def check_padding(values: torch.Tensor, pattern: int, layout: Layout) -> None:
    found = values.flatten(0, -2)
    zero = (found == 0).all(1)
    untouched = (found.isnan() if found.is_floating_point() else found == pattern).all(1)
    for what, places, holds in (
        ("become zeros", layout.zeros, zero),
        ("stay as they are", layout.untouched, untouched),
        ("become zeros or stay as they are", layout.zeros_or_untouched, zero | untouched),
    ):
        wrong = (places & ~holds).nonzero().flatten().tolist()
        assert not wrong, f"{len(wrong)} rows that must {what} do not, the first is {wrong[0]}"


def check_dense(
    r: random.Random, operands: Operands, heads: tuple[int, int, int] | None, steps: Steps, device: torch.device
) -> str:
    """A dense call with C or without; with batch invariance, some of its rows alone. Returns the function's name."""
    m, n = operands.exact_a.shape[0], operands.exact_b.shape[1]
    seed, dtype = torch.Generator().manual_seed(r.randrange(1 << 30)), DTYPES[operands.output]
    bias = None if heads else drawn_bias(r, operands, seed)
    kinds = ["nothing", "c", "d"] if steps.gate is None else ["nothing", "c"] if steps.scales is None else ["nothing"]
    added = "nothing" if heads else r.choice(kinds)
    c = None if added == "nothing" else (torch.randn((m, n), generator=seed) * 10).to(dtype)
    columns = torch.arange(steps.columns(n)) if heads is None else columns_of(n, heads)
    width = n if heads is None else n // (heads[0] + heads[2]) * sum(heads)

    def call(rows: torch.Tensor) -> tuple[Run, str, Steps]:
        handed = operands.hand("dense", Place((len(rows),), rows, torch.arange(len(rows))), slice(0, 1), device)
        more: dict[str, Any] = handed.more | ({} if bias is None else {"bias": bias[0].to(device)})
        if heads is not None:
            more |= {"head_splits": heads}

        function = handed.function if heads is None else deep_gemm.fp8_gemm_nt_skip_head_mid
        taken = steps.for_function(function, more)
        more |= {} if taken.is_plain else {"epilogue": taken.epilogue()}

        def run(compiled_dims: str) -> torch.Tensor:
            d = output(r, (len(rows), width), dtype, device, taken)
            if c is not None:
                more["c"] = d.d.tensor if added == "d" else guarded(r, (len(rows), n), dtype, device).tensor
                more["c"].copy_(c[rows])
            with described(f"[{function.__name__}, C {added}, compiled_dims={compiled_dims!r}]"):
                function(handed.a, handed.b, d.given, compiled_dims=compiled_dims, **more)
                d.check(complete=heads is None)
                values = d.values()
                left = values.isnan().sum() if heads else 0
                assert left == len(rows) * (width - n if heads else 0), "columns between heads changed"
            return values[:, columns]

        return run, function.__name__, taken

    whole, name, taken = call(torch.arange(m))
    found = whole(r.choice(COMPILED))
    expected, size = of_expert(operands, 0, torch.arange(m), bias, taken)
    if c is not None:
        expected, size = expected + c.double(), size + c.double().abs()
    near = operands.tolerance(device)
    expected, size = taken.of_sums(expected, size, near)
    assert_near(found, expected, size, near, taken.rounding(expected))
    if r.random() < 0.4:
        assert_equal_again(r, whole, found, device)
    sizes = m, *operands.exact_b.shape[1:]
    if r.random() < 0.3 and (tiled := under_another_tile(r, device, sizes, whole)) is not None:
        assert_near(tiled, expected, size, near, taken.rounding(expected))
    if deep_gemm.get_batch_invariant(device):
        first = r.randrange(m)
        rows = torch.arange(first, r.randint(first + 1, m))
        assert_same(call(rows)[0](r.choice(COMPILED)), found[rows], "rows alone")
    return name


def columns_of(n: int, heads: tuple[int, int, int]) -> torch.Tensor:
    left, skipped, right = heads
    every = torch.arange(n // (left + right) * sum(heads)).view(-1, sum(heads))
    return torch.cat([every[:, :left], every[:, left + skipped :]], 1).flatten()
