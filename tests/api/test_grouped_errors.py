"""Grouped calls that cannot be right are refused, saying what was wanted and what came; nothing is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from devices import FEW
from grouped_inputs import contiguous, masked
from inputs import GuardedOutput, Operand, misplaced

import deep_gemm

EXPERTS, N, K, MAX_M = 3, 136, 256, 40
FP8 = torch.float8_e4m3fn


class Call:
    """A right call, for a test to spoil one thing of. `kind` is "contiguous", "psum" or "masked"."""

    def __init__(self, kind: str, device: torch.device) -> None:
        self.kind = kind
        self.more: dict = {}
        if kind == "masked":
            case = masked([5, 0, 40], MAX_M, N, K, device)
            self.layout = case.counts
        else:
            case = contiguous([5, 0, 130], N, K, device)
            self.layout = case.layout(kind == "psum")
        self.a, self.b = case.a, case.b
        self.out: GuardedOutput = case.output()
        self.d = self.out.tensor

    def run(self) -> None:
        if self.kind == "masked":
            arguments = {"expected_m": 8, **self.more}
            deep_gemm.m_grouped_fp8_gemm_nt_masked(self.a, self.b, self.d, self.layout, **arguments)
        else:
            psum = self.kind == "psum"
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
                self.a, self.b, self.d, self.layout, use_psum_layout=psum, **self.more
            )

    def set(self, **changes: torch.Tensor) -> None:
        """a, b, sfa, sfb, d, layout"""
        self.a = Operand(changes.get("a", self.a.data), changes.get("sfa", self.a.scales))
        self.b = Operand(changes.get("b", self.b.data), changes.get("sfb", self.b.scales))
        self.d = changes.get("d", self.d)
        self.layout = changes.get("layout", self.layout)


# What is spoiled, the exception, and what its message must say; first those that all kinds share.
ANY: dict[str, tuple[Callable[[Call], None], type[Exception], str]] = {
    "a is bf16": (lambda x: x.set(a=x.a.data.bfloat16()), TypeError, r"a must be float8_e4m3fn, got bfloat16"),
    "b is fp32": (lambda x: x.set(b=x.b.data.float()), TypeError, r"b must be float8_e4m3fn, got float32"),
    "d is fp64": (
        lambda x: x.set(d=x.d.double()),
        TypeError,
        r"d must be bfloat16, float32 or float16, got float64",
    ),
    "layout is int64": (lambda x: x.set(layout=x.layout.long()), TypeError, r"must be int32, got int64"),
    "layout is too short": (
        lambda x: x.set(layout=x.layout[:-1]),
        ValueError,
        r"must be \[\w+\].* = \[\d+\], got shape",
    ),
    "layout has gaps": (
        lambda x: x.set(layout=x.layout.repeat_interleave(2)[::2]),
        ValueError,
        r"must be contiguous, got stride 2",
    ),
    "b is one matrix": (
        lambda x: x.set(b=x.b.data[0]),
        ValueError,
        r"b must be \[G, N, K\], got shape \[136, 256\]",
    ),
    "k differs": (lambda x: x.set(b=x.b.data[:, :, :128].contiguous()), ValueError, r"b has K=128 but a has K=256"),
    "d is too narrow": (lambda x: x.set(d=x.d[..., :-8]), ValueError, r"d must be \[.*136\], got shape \[.*128\]"),
    "d is column-major": (
        lambda x: x.set(d=x.d.transpose(-1, -2).contiguous().transpose(-1, -2)),
        ValueError,
        r"d must have N contiguous",
    ),
    "scales of a for fewer rows": (
        lambda x: x.set(sfa=x.a.scales[..., :-1, :]),
        ValueError,
        r"a's scales must be \[.*2\]",
    ),
    "scales of b for one expert": (
        lambda x: x.set(sfb=x.b.scales[:1]),
        ValueError,
        r"b's scales must be \[3, 2, 2\].*\[1, 2, 2\]",
    ),
    "scales of b per row": (
        lambda x: x.set(sfb=torch.ones((EXPERTS, N, 2), device=x.d.device)),
        ValueError,
        r"b's scales must be \[3, 2, 2\] \(one float32 per 128 rows and 128 of K of b\), got shape \[3, 136, 2\]",
    ),
    "scales of a are words of too little K": (
        lambda x: x.set(sfa=x.a.scales.to(torch.int32)),
        ValueError,
        r"a's scales must be \[.*1\] \(one int32 of 4 exponents per row and 512 of K of a\)",
    ),
    "scales of b are bf16": (
        lambda x: x.set(sfb=x.b.scales.bfloat16()),
        TypeError,
        r"b's scales must be float32, float8_e8m0fnu or int32 \(packed UE8M0 exponents\), got bfloat16",
    ),
    "recipe with 64 of k": (lambda x: x.more.update(recipe=(1, 128, 64)), ValueError, r"along K must be 128"),
    "recipe for blocks of a": (lambda x: x.more.update(recipe=(128, 128, 128)), ValueError, r"a's scales must be"),
    "unknown dimension": (lambda x: x.more.update(compiled_dims="q"), ValueError, r"compiled_dims.*'q'"),
    "k is no multiple of 16": (
        lambda x: x.set(
            a=x.a.data[..., :200].contiguous(),
            b=x.b.data[..., :200].contiguous(),
        ),
        ValueError,
        r"K must be a multiple of 16, got 200",
    ),
}

CONTIGUOUS = {
    "a is grouped": (lambda x: x.set(a=x.a.data[None]), ValueError, r"a must be \[M, K\], got shape \[1, "),
    "d has too few rows": (lambda x: x.set(d=x.d[:-1]), ValueError, r"d must be \[M, N\] = \[384, 136\]"),
    "layout is missing": (lambda x: x.set(layout=None), TypeError, r"grouped_layout is missing"),
    "layout is given twice": (lambda x: x.more.update(m_indices=x.layout), TypeError, r"m_indices is the older name"),
}
PSUM = {
    "hint is negative": (
        lambda x: x.more.update(expected_m_for_psum_layout=-1),
        ValueError,
        r"expected_m_for_psum_layout must not be negative, got -1",
    ),
    "layout has an entry a row": (
        lambda x: x.set(layout=torch.zeros(384, dtype=torch.int32, device=x.d.device)),
        ValueError,
        r"grouped_layout must be \[experts\] in the psum layout = \[3\], got shape \[384\]",
    ),
}
MASKED = {
    "a is one matrix": (
        lambda x: x.set(a=x.a.data[0]),
        ValueError,
        r"a must be \[G, max_m, K\], got shape \[40, 256\]",
    ),
    "b has other experts": (lambda x: x.set(b=x.b.data[:2]), ValueError, r"b has 2 experts but a has 3"),
    "d has other experts": (lambda x: x.set(d=x.d[:2]), ValueError, r"d must be \[G, max_m, N\] = \[3, 40, 136\]"),
    "d's experts overlap": (
        lambda x: x.set(d=x.d[:1].expand(3, -1, -1)),
        ValueError,
        r"d's groups overlap: group stride 0",
    ),
    "hint is negative": (
        lambda x: x.more.update(expected_m=-1),
        ValueError,
        r"expected_m must not be negative, got -1",
    ),
    "counts are on the meta device": (lambda x: x.set(layout=x.layout.to("meta")), Exception, r"."),
}

REFUSALS = [
    *(
        pytest.param(kind, *what, id=f"{kind}: {name}")
        for kind in ("contiguous", "psum", "masked")
        for name, what in ANY.items()
    ),
    *(
        pytest.param(kind, *what, id=f"{kind}: {name}")
        for kind in ("contiguous", "psum")
        for name, what in CONTIGUOUS.items()
    ),
    *(pytest.param("psum", *what, id=f"psum: {name}") for name, what in PSUM.items()),
    *(pytest.param("masked", *what, id=f"masked: {name}") for name, what in MASKED.items()),
]


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize(("kind", "spoil", "exception", "message"), REFUSALS)
def test_refused(device, kind, spoil, exception, message) -> None:
    call = Call(kind, device)
    spoil(call)
    with pytest.raises(exception, match=message):
        call.run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    call.out.assert_untouched()


@pytest.mark.parametrize("kind", ["contiguous", "psum", "masked"])
def test_a_layout_that_starts_between_numbers_is_refused(kind) -> None:
    call = Call(kind, torch.device("cpu"))
    call.set(layout=misplaced(torch.int32, tuple(call.layout.shape)))
    with pytest.raises(ValueError, match=r"must be aligned to 4 bytes"):
        call.run()
    call.out.assert_untouched()


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("kind", ["contiguous", "psum", "masked"])
def test_the_call_that_these_spoil_is_right(device, kind) -> None:
    call = Call(kind, device)
    call.run()
    assert not call.d[..., :5, :].isnan().all()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["contiguous", "psum", "masked"])
@pytest.mark.parametrize("name", ["b", "sfa", "sfb", "d", "layout"])
def test_tensors_on_different_devices(cuda, kind, name) -> None:
    call = Call(kind, cuda)
    value = {"b": call.b.data, "sfa": call.a.scales, "sfb": call.b.scales, "d": call.d, "layout": call.layout}[name]
    call.set(**{name: value.cpu()})
    with pytest.raises(ValueError, match=r"is on cpu but a is on cuda:"):
        call.run()
    torch.cuda.synchronize()
    call.out.assert_untouched()
