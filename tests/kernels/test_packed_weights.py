"""Products with packed int4 weights, against FP64 products of what they stand for."""

from __future__ import annotations

import pytest
import torch
from devices import FEW
from grouped_inputs import alignment_of
from inputs import GuardedOutput, ceil_div

import deep_gemm

COUNTS = [5, 0, 130, 1]  # experts' rows
HEIGHT = 136
SIZES = [(1, 136, 272), (7, 24, 640), (129, 280, 144)]
# Relative to sum |a||w|: of Hopper's FP8, whose tensor cores keep about 13 bits; of exact sums, scaled in FP32.
TOLERANCES = {("cuda", "fp8"): 6e-4, ("cuda", "int8"): 4e-7, ("cpu", "fp8"): 1e-6, ("cpu", "int8"): 4e-7}
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-23}


class Tokens:
    """Activations [..., rows, K] with scales of a kind, and both in FP64."""

    def __init__(self, activations: str, shape: tuple[int, ...], scales: str, generator: torch.Generator) -> None:
        *rows, k = shape
        if activations == "fp8":
            self.data = torch.randn(shape, generator=generator).to(torch.float8_e4m3fn)
        else:
            self.data = torch.randint(-128, 128, shape, generator=generator, dtype=torch.int8)
        if scales == "number":
            self.scales = 0.0625
            self.exact = self.data.double() * self.scales
            return
        groups = ceil_div(k, 128) if scales == "k_groups" else 1
        self.scales = (torch.rand((*rows, groups), generator=generator) + 0.5) / 64
        every = self.scales.double().repeat_interleave(128 if scales == "k_groups" else k, -1)[..., :k]
        self.exact = self.data.double() * every
        if scales == "rows":
            self.scales = self.scales[..., 0]

    def to(self, device: torch.device):
        return self.data.to(device), self.scales if isinstance(self.scales, float) else self.scales.to(device)


def weights(activations: str, shape: tuple[int, ...], smallest: int, generator: torch.Generator):
    """PackedWeights; their values are as `pack_weights` was told them, not as it packed them."""
    *groups, n, k = shape
    values = torch.randint(smallest, 8, shape, generator=generator, dtype=torch.int8)
    size = None if activations == "int8" else 128
    scales = (torch.rand((*groups, n, ceil_div(k, 128) if size else 1), generator=generator) + 0.5) / 16
    exact = values.double() * scales.double().repeat_interleave(128 if size else k, -1)[..., :k]
    if k % 128:  # groups divide K
        size = None
        scales = scales[..., :1]
        exact = values.double() * scales.double()
    packed = deep_gemm.pack_weights(
        values, scales if size else scales[..., 0], element="int4", activations=activations, group_size=size
    )
    return packed, exact


def check(d: torch.Tensor, a: torch.Tensor, w: torch.Tensor, activations: str, added: torch.Tensor | float = 0) -> None:
    expected, magnitude = a @ w.mT + added, a.abs() @ w.abs().mT
    allowed = TOLERANCES[d.device.type, activations] * magnitude + ROUNDING[d.dtype] * expected.abs() + 1e-6
    found = d.double().cpu()
    wrong = ((found - expected).abs() > allowed) | ~found.isfinite()
    assert not wrong.any(), f"{wrong.sum().item()} of {wrong.numel()} elements are wrong"


KINDS = [
    pytest.param("fp8", -7, "k_groups", id="fp8"),
    pytest.param("fp8", -7, "rows", id="fp8-token-scales"),
    pytest.param("fp8", -8, "number", id="fp8-with-minus-eight"),
    pytest.param("int8", -8, "rows", id="int8"),
    pytest.param("int8", -8, "number", id="int8-one-scale"),
]


@pytest.mark.sampled(30)
@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("dtype", [*ROUNDING], ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("added", ["nothing", "c", "d"])
@pytest.mark.parametrize(("activations", "smallest", "scales"), KINDS)
def test_dense(device, activations, smallest, scales, added, size, dtype) -> None:
    m, n, k = size
    generator = torch.Generator().manual_seed(m)
    a = Tokens(activations, (m, k), scales, generator)
    w, exact = weights(activations, (n, k), smallest, generator)
    assert w.holds_minus_eight == (activations == "fp8" and smallest == -8)
    d = GuardedOutput((m, n), dtype, device)
    c = None if added == "nothing" else torch.randn((m, n), generator=generator).to(dtype).to(device)
    if added == "d":
        d.tensor.copy_(c)
    function = getattr(deep_gemm, f"{activations}_int4_gemm_nt")
    function(a.to(device), w.to(device), d.tensor, d.tensor if added == "d" else c)
    d.check()
    check(d.tensor, a.exact, exact, activations, 0 if c is None else c.double().cpu())


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("dtype", [*ROUNDING], ids=str)
@pytest.mark.parametrize(("activations", "smallest", "scales"), KINDS[1:4])
def test_bias(device, activations, smallest, scales, dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    a = Tokens(activations, (20, 256), scales, generator)
    w, exact = weights(activations, (72, 256), smallest, generator)
    bias = torch.randn(72, generator=generator).to(dtype)
    d = GuardedOutput((20, 72), dtype, device)
    getattr(deep_gemm, f"{activations}_int4_gemm_nt")(a.to(device), w.to(device), d.tensor, bias=bias.to(device))
    d.check()
    check(d.tensor, a.exact, exact, activations, bias.double())


@pytest.mark.sampled(12)
@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("dtype", [*ROUNDING], ids=str)
@pytest.mark.parametrize(("n", "k"), [(136, 272), (24, 640)])
@pytest.mark.parametrize(("activations", "smallest", "scales"), KINDS)
def test_masked(device, activations, smallest, scales, n, k, dtype) -> None:
    """Counts above the hint, an expert without rows, rows behind counts that are not finite or huge."""
    generator = torch.Generator().manual_seed(2)
    a = Tokens(activations, (len(COUNTS), HEIGHT, k), scales, generator)
    for group, count in enumerate(COUNTS):
        a.data[group, count:] = float("nan") if activations == "fp8" else 127
    w, exact = weights(activations, (len(COUNTS), n, k), smallest, generator)
    d = GuardedOutput((len(COUNTS), HEIGHT, n), dtype, device)
    counts = torch.tensor(COUNTS, dtype=torch.int32, device=device)
    call = getattr(deep_gemm, f"m_grouped_{activations}_int4_gemm_nt_masked")
    call(a.to(device), w.to(device), d.tensor, counts, 40)
    d.check(complete=False)
    for group, count in enumerate(COUNTS):
        if count:
            check(d.tensor[group, :count], a.exact[group, :count], exact[group], activations)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("dtype", [*ROUNDING], ids=str)
@pytest.mark.parametrize(("n", "k"), [(136, 272), (24, 640)])
@pytest.mark.parametrize("psum", [False, True])
@pytest.mark.parametrize(("activations", "smallest", "scales"), KINDS)
def test_contiguous(device, activations, smallest, scales, psum, n, k, dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    heights = [ceil_div(count, 128) * 128 for count in COUNTS]
    starts = [sum(heights[:group]) for group in range(len(COUNTS))]
    a = Tokens(activations, (sum(heights), k), scales, generator)
    layout = torch.full((sum(heights),), -1, dtype=torch.int32)
    for expert, (start, count) in enumerate(zip(starts, COUNTS, strict=True)):
        layout[start : start + count] = expert
        a.data[start + count : start + heights[expert]] = float("nan") if activations == "fp8" else 127
    if psum:
        layout = torch.tensor([start + count for start, count in zip(starts, COUNTS, strict=True)], dtype=torch.int32)
    w, exact = weights(activations, (len(COUNTS), n, k), smallest, generator)
    d = GuardedOutput((sum(heights), n), dtype, device)
    call = getattr(deep_gemm, f"m_grouped_{activations}_int4_gemm_nt_contiguous")
    with alignment_of(128):
        call(a.to(device), w.to(device), d.tensor, layout.to(device), use_psum_layout=psum)
    d.check()
    for expert, (start, count) in enumerate(zip(starts, COUNTS, strict=True)):
        rows = slice(start, start + count)
        if count:
            check(d.tensor[rows], a.exact[rows], exact[expert], activations)
        assert not d.tensor[start + count : start + heights[expert]].any(), "padding becomes zero"


@pytest.mark.parametrize("activations", ["fp8", "int8"])
def test_weights_for_other_activations_are_refused(activations) -> None:
    generator = torch.Generator().manual_seed(4)
    other = "int8" if activations == "fp8" else "fp8"
    a = Tokens(activations, (8, 128), "rows", generator)
    w, _ = weights(other, (16, 128), -7, generator)
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    with pytest.raises(ValueError, match=f"w is packed for '{other}' activations"):
        getattr(deep_gemm, f"{activations}_int4_gemm_nt")(a.to("cpu"), w, d.tensor)
    d.assert_untouched()
