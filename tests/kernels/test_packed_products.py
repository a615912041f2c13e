"""Products with packed weights of four bits, against FP64 products of what they stand for."""

from __future__ import annotations

from dataclasses import dataclass

import checkpoints
import pytest
import torch
from devices import TAKE_PACKED
from grouped_inputs import alignment_of
from inputs import GuardedOutput, ceil_div
from torch.fx.experimental.proxy_tensor import make_fx

import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C
from deep_gemm._packed import NO_NUMBER, NO_ZERO
from deep_gemm.utils import pack_int4
from deep_gemm.weights.formats import ELEMENT_NUMBERS

COUNTS = [5, 0, 130, 1]  # experts' rows
HEIGHT = 136
SIZES = [(1, 136, 272), (7, 24, 640), (129, 280, 144), (9, 40, 2880)]
# Relative to sum |a||w|: of Hopper's FP8, whose tensor cores keep about 13 bits; of exact sums, scaled in FP32.
TOLERANCES = {("cuda", "fp8"): 6e-4, ("cuda", "int8"): 2e-6, ("cpu", "fp8"): 1e-6, ("cpu", "int8"): 2e-6}
TOLERANCES |= {(device, "int4"): 2e-6 for device in ("cuda", "cpu")}
HUGE = {"fp8": float("nan"), "int8": 127, "int4": 7}
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-23}


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


@dataclass(frozen=True)
class Kind:
    activations: str
    scales: str  # of tokens
    element: str = "int4"
    smallest: int = -7
    group: int | None = 128
    zeros: tuple[int, int] | None = None  # the least and the largest
    two_levels: bool = False  # of scales, those of groups integers
    powers: int = 0  # scales are of so many powers of two; 0: they are any numbers

    def function(self, name: str):
        weights = "fp4" if self.element == "e2m1" else "int4"
        return getattr(
            deep_gemm, name.format("int4" if self.activations == "int4" else f"{self.activations}_{weights}")
        )


KINDS = {
    "fp8": Kind("fp8", "k_groups"),
    "fp8-token-scales": Kind("fp8", "rows"),
    "fp8-with-minus-eight": Kind("fp8", "number", smallest=-8),
    "fp8-groups-of-64": Kind("fp8", "rows", group=64),
    "fp8-groups-of-32": Kind("fp8", "k_groups", group=32),
    "fp8-channels": Kind("fp8", "rows", group=None),
    "mxfp4": Kind("fp8", "rows", "e2m1", group=32),
    "mxfp4-k-groups": Kind("fp8", "k_groups", "e2m1", group=32),
    "mxfp4-near-exponents": Kind("fp8", "rows", "e2m1", group=32, powers=12),
    "mxfp4-near-exponents-k-groups": Kind("fp8", "k_groups", "e2m1", group=32, powers=3),
    "int8": Kind("int8", "rows", smallest=-8, group=None),
    "int8-one-scale": Kind("int8", "number", smallest=-8, group=None),
    "fp8-zeros": Kind("fp8", "k_groups", "uint4", zeros=(-1, 16)),
    "fp8-zeros-token-scales": Kind("fp8", "rows", "uint4", zeros=(0, 15)),
    "fp8-signed-zeros": Kind("fp8", "number", smallest=-8, zeros=(-9, 8)),
    "fp8-zeros-groups-of-64": Kind("fp8", "rows", "uint4", group=64, zeros=(-1, 16)),
    "fp8-zeros-groups-of-32": Kind("fp8", "k_groups", "uint4", group=32, zeros=(-1, 16)),
    "fp8-zeros-channels": Kind("fp8", "rows", "uint4", group=None, zeros=(-1, 16)),
    "int8-zeros": Kind("int8", "rows", "uint4", group=None, zeros=(-112, 128)),
    "int8-signed-zeros": Kind("int8", "number", smallest=-8, group=None, zeros=(-9, 8)),
    "int8-zeros-groups-of-128": Kind("int8", "rows", "uint4", zeros=(0, 15)),
    "int8-zeros-groups-of-32": Kind("int8", "k_groups", "uint4", group=32, zeros=(-1, 16)),
    "int4-zeros": Kind("int4", "rows", "uint4", group=None, zeros=(0, 15)),
    "int8-two-levels": Kind("int8", "rows", "uint4", zeros=(0, 15), two_levels=True),
    "int8-two-levels-groups-of-64": Kind("int8", "number", "uint4", group=64, zeros=(0, 15), two_levels=True),
    "int8-two-levels-groups-of-32": Kind("int8", "rows", smallest=-8, group=32, two_levels=True),
    "int8-k-groups": Kind("int8", "k_groups", smallest=-8, group=None),
    "int8-groups-of-128": Kind("int8", "rows", smallest=-8),
    "int8-groups-of-64": Kind("int8", "k_groups", smallest=-8, group=64),
    "int8-groups-of-32": Kind("int8", "rows", smallest=-8, group=32),
    "int4": Kind("int4", "rows", smallest=-8, group=None),
    "int4-groups-of-128": Kind("int4", "k_groups", smallest=-8),
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


class Tokens:
    """Activations [..., rows, K] with scales of a kind, and both in FP64."""

    def __init__(self, kind: Kind, shape: tuple[int, ...], generator: torch.Generator) -> None:
        *rows, k = shape
        activations, scales = kind.activations, kind.scales
        if activations == "fp8":
            self.data = torch.randn(shape, generator=generator).to(torch.float8_e4m3fn)
        else:
            least = -8 if activations == "int4" else -128
            self.data = torch.randint(least, -least, shape, generator=generator, dtype=torch.int8)
        self.activations = activations
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
        data = apart(pack_int4(self.data)) if self.activations == "int4" else self.data
        return data.to(device), self.scales if isinstance(self.scales, float) else self.scales.to(device)


def apart(packed: torch.Tensor) -> torch.Tensor:
    """The same in rows that begin anywhere."""
    wide = torch.full((*packed.shape[:-1], packed.shape[-1] + 5), -1, dtype=torch.int8)
    return wide[..., 3 : 3 + packed.shape[-1]].copy_(packed)


def weights(kind: Kind, shape: tuple[int, ...], generator: torch.Generator):
    """PackedWeights; and what they stand for by what `pack_weights` was told, not by what it packed."""
    *groups, n, k = shape
    size = kind.group if kind.group and k % kind.group == 0 else None  # groups divide K
    shape_of_scales = (*groups, n, k // size if size else 1)
    scales = (torch.rand(shape_of_scales, generator=generator) + 0.5) / 16
    if kind.powers:
        scales = torch.exp2(torch.randint(-9, kind.powers - 9, shape_of_scales, generator=generator))
    second = zeros = None
    if kind.two_levels:
        second = scales[..., 0]
        scales = torch.randint(-8, 9, shape_of_scales, generator=generator, dtype=torch.int8)
        scales[..., 0, 0] = 16  # with a zero point of 8 it fills s8
    if kind.element == "e2m1":
        values = torch.randint(0, 16, shape, generator=generator, dtype=torch.uint8)
        decoded = torch.tensor(E2M1 + [-value for value in E2M1])[values.long()].double()
    else:
        low, high = (0, 16) if kind.element == "uint4" else (kind.smallest, 8)
        values = torch.randint(low, high, shape, generator=generator, dtype=torch.int8)
        decoded = values.double()
    if kind.zeros is not None:
        low, high = kind.zeros
        zeros = torch.randint(low, high + 1, shape_of_scales, generator=generator, dtype=torch.int32)
        zeros[..., 0] = torch.arange(n) % (high - low + 1) + low
        if kind.two_levels:
            zeros[..., 0, 0] = 8
        decoded -= zeros.double().repeat_interleave(size or k, -1)
        zeros = zeros if size else zeros[..., 0]
    packed = deep_gemm.pack_weights(
        values,
        scales if size else scales[..., 0],
        zeros,
        element=kind.element,
        activations=kind.activations,
        group_size=size,
        second_scales=second,
    )
    assert packed.needs_zeros == (kind.zeros is not None or kind.two_levels)
    decoded *= scales.double().repeat_interleave(size or k, -1)
    return packed, decoded if second is None else decoded * second.double().unsqueeze(-1)


def check(d: torch.Tensor, a: torch.Tensor, w: torch.Tensor, activations: str, added: torch.Tensor | float = 0) -> None:
    expected, magnitude = a @ w.mT + added, a.abs() @ w.abs().mT
    allowed = TOLERANCES[d.device.type, activations] * magnitude + ROUNDING[d.dtype] * expected.abs() + 1e-6
    found = d.double().cpu()
    wrong = ((found - expected).abs() > allowed) | ~found.isfinite()
    assert not wrong.any(), f"{wrong.sum().item()} of {wrong.numel()} elements are wrong"


def expert_bias(kind: Kind, biased: bool, n: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """As an argument."""
    return {"bias": torch.randn((len(COUNTS), n), generator=generator)} if biased else {}


def on(device: torch.device, arguments: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.to(device) for name, value in arguments.items()}


@pytest.mark.sampled(32)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("dtype", [*ROUNDING], ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("added", ["nothing", "c", "d"])
@EVERY_KIND
def test_dense(device, kind, added, size, dtype) -> None:
    m, n, k = size
    generator = torch.Generator().manual_seed(m)
    a = Tokens(kind, (m, k), generator)
    w, exact = weights(kind, (n, k), generator)
    assert w.folds_exponents == (kind.powers > 0)
    assert w.holds_minus_eight == (kind.activations == "fp8" and kind.smallest == -8 and kind.zeros is None)
    d = GuardedOutput((m, n), dtype, device)
    c = None if added == "nothing" else torch.randn((m, n), generator=generator).to(dtype).to(device)
    if added == "d":
        d.tensor.copy_(c)
    kind.function("{}_gemm_nt")(a.to(device), w.to(device), d.tensor, d.tensor if added == "d" else c)
    d.check()
    check(d.tensor, a.exact, exact, kind.activations, 0 if c is None else c.double().cpu())


@pytest.mark.sampled(9)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("dtype", [*ROUNDING], ids=str)
@EVERY_KIND
def test_bias(device, kind, dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    a = Tokens(kind, (20, 256), generator)
    w, exact = weights(kind, (72, 256), generator)
    bias = torch.randn(72, generator=generator).to(dtype)
    d = GuardedOutput((20, 72), dtype, device)
    kind.function("{}_gemm_nt")(a.to(device), w.to(device), d.tensor, bias=bias.to(device))
    d.check()
    check(d.tensor, a.exact, exact, kind.activations, bias.double())


@pytest.mark.sampled(12)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("dtype", [*ROUNDING], ids=str)
@pytest.mark.parametrize(("n", "k"), [(136, 272), (24, 640)])
@pytest.mark.parametrize("biased", [False, True])
@EVERY_KIND
def test_masked(device, kind, biased, n, k, dtype) -> None:
    """Counts above the hint, an expert without rows, rows behind counts that are not finite or huge."""
    generator = torch.Generator().manual_seed(2)
    a = Tokens(kind, (len(COUNTS), HEIGHT, k), generator)
    for group, count in enumerate(COUNTS):
        a.data[group, count:] = HUGE[kind.activations]
    w, exact = weights(kind, (len(COUNTS), n, k), generator)
    d = GuardedOutput((len(COUNTS), HEIGHT, n), dtype, device)
    counts = torch.tensor(COUNTS, dtype=torch.int32, device=device)
    bias = expert_bias(kind, biased, n, generator)
    call = kind.function("m_grouped_{}_gemm_nt_masked")
    call(a.to(device), w.to(device), d.tensor, counts, 40, **on(device, bias))
    d.check(complete=False)
    for group, count in enumerate(COUNTS):
        if count:
            added = bias["bias"][group].double() if bias else 0
            check(d.tensor[group, :count], a.exact[group, :count], exact[group], kind.activations, added)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("dtype", [*ROUNDING], ids=str)
@pytest.mark.parametrize(("n", "k"), [(136, 272), (24, 640)])
@pytest.mark.parametrize("psum", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@EVERY_KIND
def test_contiguous(device, kind, biased, psum, n, k, dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    heights = [ceil_div(count, 128) * 128 for count in COUNTS]
    starts = [sum(heights[:group]) for group in range(len(COUNTS))]
    a = Tokens(kind, (sum(heights), k), generator)
    layout = torch.full((sum(heights),), -1, dtype=torch.int32)
    for expert, (start, count) in enumerate(zip(starts, COUNTS, strict=True)):
        layout[start : start + count] = expert
        a.data[start + count : start + heights[expert]] = HUGE[kind.activations]
    if psum:
        layout = torch.tensor([start + count for start, count in zip(starts, COUNTS, strict=True)], dtype=torch.int32)
    w, exact = weights(kind, (len(COUNTS), n, k), generator)
    d = GuardedOutput((sum(heights), n), dtype, device)
    call = kind.function("m_grouped_{}_gemm_nt_contiguous")
    bias = expert_bias(kind, biased, n, generator)
    with alignment_of(128):
        call(a.to(device), w.to(device), d.tensor, layout.to(device), use_psum_layout=psum, **on(device, bias))
    d.check()
    for expert, (start, count) in enumerate(zip(starts, COUNTS, strict=True)):
        rows = slice(start, start + count)
        if count:
            added = bias["bias"][expert].double() if bias else 0
            check(d.tensor[rows], a.exact[rows], exact[expert], kind.activations, added)
        assert not d.tensor[start + count : start + heights[expert]].any(), "padding becomes zero"


@pytest.mark.parametrize("name", ["fp8", "int8", "int4"])
def test_weights_for_other_activations_are_refused(name) -> None:
    generator = torch.Generator().manual_seed(4)
    kind, other = KINDS[name], KINDS["int8" if name != "int8" else "fp8"]
    a = Tokens(kind, (8, 128), generator)
    w, _ = weights(other, (16, 128), generator)
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    with pytest.raises(ValueError, match=f"w is packed for '{other.activations}' activations"):
        kind.function("{}_gemm_nt")(a.to("cpu"), w, d.tensor)
    d.assert_untouched()


@pytest.mark.parametrize("name", ["fp8", "int8-groups-of-128"])
def test_activations_of_other_dtypes_are_refused(name) -> None:
    """Also of those that other functions multiply by such weights."""
    generator = torch.Generator().manual_seed(4)
    kind, other = KINDS[name], KINDS["int8" if name == "fp8" else "fp8-token-scales"]
    a = Tokens(other, (8, 128), generator)
    w, _ = weights(kind, (16, 128), generator)
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    with pytest.raises(TypeError, match="a must be .*, but is " + str(a.data.dtype).removeprefix("torch.")):
        kind.function("{}_gemm_nt")(a.to("cpu"), w, d.tensor)
    d.assert_untouched()


def test_int4_of_another_k_is_refused() -> None:
    """Data of a byte for each value, say."""
    generator = torch.Generator().manual_seed(4)
    kind = KINDS["int4"]
    w, _ = weights(kind, (16, 128), generator)
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    a = torch.zeros((8, 128), dtype=torch.int8)
    with pytest.raises(ValueError, match="w has K=128 but a has K=256"):
        deep_gemm.int4_gemm_nt((a, 1.0), w, d.tensor)
    with pytest.raises(ValueError, match="a must have K contiguous, two integers a byte"):
        deep_gemm.int4_gemm_nt((a[:, ::2], 1.0), w, d.tensor)
    d.assert_untouched()


def test_every_pair_of_int4_values() -> None:
    """Each nibble of activations, in either half of a byte, by each code of weights."""
    every = torch.arange(-8, 8, dtype=torch.int8)
    a = torch.zeros((32, 64), dtype=torch.int8)
    a[:16, 0], a[16:, 1] = every, every
    codes = torch.zeros((32, 64), dtype=torch.int8)
    codes[:16, 0], codes[16:, 1] = every, every
    w = deep_gemm.pack_weights(codes, torch.ones(32), element="int4", activations="int4")
    d = torch.zeros(32, 32)
    deep_gemm.int4_gemm_nt((pack_int4(a), 1.0), w, d)
    assert torch.equal(d, a.float() @ codes.float().T)


def test_zero_points_of_int4() -> None:
    generator = torch.Generator().manual_seed(4)
    a = Tokens(KINDS["int4"], (5, 128), generator)
    w, exact = weights(KINDS["int4"], (16, 128), generator)
    zeros = torch.randint(-8, 8, (5,), generator=generator, dtype=torch.int32)
    d = torch.zeros(5, 16)
    deep_gemm.int4_gemm_nt((*a.to(torch.device("cpu")), zeros), w, d)
    shifted = a.exact - zeros.double()[:, None] * a.scales.double()[:, None]
    check(d, shifted, exact, "int4")


def test_k_too_long_for_exact_sums_is_refused() -> None:
    """With groups of K it is multiplied."""
    k = 131200
    a = torch.full((1, k), -128, dtype=torch.int8)
    values = torch.full((8, k), -8, dtype=torch.int8)
    d = GuardedOutput((1, 8), torch.float32, "cpu")
    w = deep_gemm.pack_weights(values, torch.ones(8), element="int4", activations="int8")
    with pytest.raises(ValueError, match="K must be at most 131071 where all of it shares its scales, but is 131200"):
        deep_gemm.int8_int4_gemm_nt((a, 1.0), w, d.tensor)
    d.assert_untouched()
    w = deep_gemm.pack_weights(values, torch.ones(8, k // 128), element="int4", activations="int8", group_size=128)
    deep_gemm.int8_int4_gemm_nt((a, 1.0), w, d.tensor)
    d.check()
    assert (d.tensor == 1024 * k).all()


@pytest.mark.parametrize("name", ["fp8-token-scales", "int8"])
def test_masked_rows_as_many_as_groups_of_k(name) -> None:
    """Scales [experts, rows] are of rows, though there are as many as groups of 128 of K."""
    generator = torch.Generator().manual_seed(5)
    kind = KINDS[name]
    a = Tokens(kind, (2, 5, 640), generator)
    w, exact = weights(kind, (2, 24, 640), generator)
    d = GuardedOutput((2, 5, 24), torch.bfloat16, "cpu")
    counts = torch.tensor([5, 3], dtype=torch.int32)
    kind.function("m_grouped_{}_gemm_nt_masked")(a.to("cpu"), w, d.tensor, counts, 5)
    d.check(complete=False)
    for group, count in enumerate((5, 3)):
        check(d.tensor[group, :count], a.exact[group, :count], exact[group], kind.activations)


def random_integers(shape: tuple[int, ...], low: int, high: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(low, high + 1, shape, generator=generator, dtype=torch.int32)


def checkpoint(form: str, generator: torch.Generator, n: int = 96, k: int = 256):
    """A checkpoint's tensors; and what they stand for, in the order of K that they were quantised in."""
    group = k if form == "compressed-tensors" else 64
    codes, zeros = (random_integers(shape, 0, 15, generator) for shape in ((n, k), (n, k // group)))
    scales = ((torch.rand((n, k // group), generator=generator) + 0.5) / 16).half()
    groups = torch.arange(k) // group
    if form == "gptq, out of order":
        groups = groups[torch.randperm(k, generator=generator)]
        tensors = checkpoints.gptq(codes, scales, zeros, "gptq_v2", groups)
    elif form == "gptq":
        zeros.clamp_(min=1)
        tensors = checkpoints.gptq(codes, scales, zeros)
    elif form == "awq":
        tensors = checkpoints.awq(codes, scales, zeros)
    elif form == "compressed-tensors":
        tensors = checkpoints.pack_quantized(codes - 8, scales, zeros - 8)
    else:
        factors = random_integers(scales.shape, 1, 8, generator).to(torch.int8)
        tensors = checkpoints.qoq(codes, factors, zeros * factors, scales[:, 0])
        scales = scales[:, :1].double() * factors
    return tensors, (codes - zeros[:, groups]).double() * scales.double()[:, groups]


CHECKPOINTS = [
    ("gptq", "fp8"),
    ("gptq, out of order", "fp8"),
    ("awq", "fp8"),
    ("compressed-tensors", "fp8"),
    ("compressed-tensors", "int8"),
    ("qoq", "int8"),
]


@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize(("form", "activations"), CHECKPOINTS)
def test_checkpoints_with_zero_points_are_multiplied_as_they_were_meant(device, form, activations) -> None:
    generator = torch.Generator().manual_seed(6)
    tensors, exact = checkpoint(form, generator)
    config = {"checkpoint_format": "gptq_v2"} if form == "gptq, out of order" else {}
    w = deep_gemm.weights_from_checkpoint(form.partition(",")[0], tensors, activations=activations, config=config)
    assert w.needs_zeros
    kind = Kind(activations, "rows")
    a = Tokens(kind, (20, 256), generator)
    order = w.input_permutation
    if order is not None:
        exact, a.exact = exact[:, order], a.exact[:, order]
        a.data, w = w.permute_inputs(a.data), w.for_permuted_inputs()
    d = GuardedOutput((20, 96), torch.float32, device)
    kind.function("{}_gemm_nt")(a.to(device), w.to(device), d.tensor)
    d.check()
    check(d.tensor, a.exact, exact, activations)


WITH_ZEROS = ["fp8-zeros", "fp8-zeros-groups-of-32", "int8-zeros", "int8-two-levels"]


@pytest.mark.parametrize("name", WITH_ZEROS)
def test_zero_points_that_are_written_are_those_of_the_next_call(name) -> None:
    """The same tensors, so the call is a remembered one."""
    generator = torch.Generator().manual_seed(7)
    kind = KINDS[name]
    a = Tokens(kind, (5, 256), generator)
    w, _ = weights(kind, (1, 128, 256), generator)
    one, exact = weights(kind, (128, 256), generator)
    mine = w[0]
    d = GuardedOutput((5, 128), torch.float32, "cpu")
    for _ in range(3):
        kind.function("{}_gemm_nt")(a.to("cpu"), mine, d.tensor)
    w[0] = one
    kind.function("{}_gemm_nt")(a.to("cpu"), mine, d.tensor)
    check(d.tensor, a.exact, exact, kind.activations)


@pytest.mark.parametrize("name", WITH_ZEROS)
def test_bits_of_rows_do_not_depend_on_how_many_there_are(name, batch_invariant) -> None:
    generator = torch.Generator().manual_seed(8)
    kind = KINDS[name]
    a = Tokens(kind, (130, 640), generator)
    w, _ = weights(kind, (136, 640), generator)
    d = torch.zeros(130, 136)
    with simulator.options(num_sms=8):
        for rows in (130, 7, 1):
            part = torch.zeros(rows, 136)
            kind.function("{}_gemm_nt")((a.data[:rows], a.scales[:rows]), w, part)
            d = part if rows == 130 else d
            assert torch.equal(part, d[:rows])


@pytest.mark.parametrize("name", ["fp8-token-scales", "int8-two-levels"])
def test_packed_products_are_operators_that_are_compiled_and_recorded(name) -> None:
    generator = torch.Generator().manual_seed(9)
    kind = KINDS[name]
    a = Tokens(kind, (5, 256), generator).to("cpu")
    w, _ = weights(kind, (72, 256), generator)
    call = kind.function("{}_gemm_nt")

    def step(data, scales):
        d = torch.zeros(5, 72)
        call((data, scales), w, d)
        return d * 2

    no_zeros = () if kind.activations == "fp8" else (None,)
    tensors = w.codes, w.scales, w.zeros, w.sums, w.second_scales
    want, flat = step(*a), (*a, *no_zeros, *tensors, w._form, torch.zeros(5, 72))
    operator = getattr(torch.ops.deep_gemm, call.__name__).default
    operator(*flat)
    assert torch.equal(flat[-1] * 2, want)
    checks = ["test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    assert set(torch.library.opcheck(operator, flat, test_utils=checks).values()) == {"SUCCESS"}
    torch._dynamo.reset()
    assert torch.equal(torch.compile(step, fullgraph=True, backend="aot_eager")(*a), want)
    recorded = make_fx(step)(*a)
    assert call.__name__ in recorded.code
    assert torch.equal(recorded(*a), want)


@pytest.mark.gpu
@pytest.mark.parametrize("name", WITH_ZEROS)
def test_captured_calls_find_what_is_written_later(name, cuda) -> None:
    generator = torch.Generator().manual_seed(10)
    kind = KINDS[name]
    a = Tokens(kind, (5, 256), generator)
    w, _ = weights(kind, (1, 128, 256), generator)
    one, exact = weights(kind, (128, 256), generator)
    w, moved = w.to(cuda), a.to(cuda)
    d = torch.zeros(5, 128, device=cuda)
    kind.function("{}_gemm_nt")(moved, w[0], d)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        kind.function("{}_gemm_nt")(moved, w[0], d)
        after = torch.cuda.memory_stats()["allocation.all.allocated"]
    if kind.scales != "k_groups":  # which are brought into their order first, in memory of torch's
        assert after == before
    w[0] = one
    graph.replay()
    check(d, a.exact, exact, kind.activations)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"zeros_k": 256}, "w has a zero point for each 256 of K, which no kernel subtracts"),
        ({"zeros": None}, "w's zeros must be there where its codes are u4"),
        ({"zeros": torch.zeros((1, 2, 127), dtype=torch.int32)}, r"w's zeros must be contiguous \[1, 2, 128\]"),
        ({"zeros": torch.zeros((1, 2, 128))}, "w's zeros must be int32, but are float32"),
    ],
)
def test_zeros_that_do_not_fit_the_codes_are_refused(changed, message) -> None:
    """PackedWeights never have such; who calls the runtime past them learns of it."""
    w, _ = weights(KINDS["fp8-zeros"], (72, 256), torch.Generator())
    zeros = changed.get("zeros", w.zeros)
    told = (ELEMENT_NUMBERS["u4"], 72, 256, 128, NO_NUMBER, NO_ZERO, 0, changed.get("zeros_k", 128))
    a, d = torch.zeros((5, 256)).to(torch.float8_e4m3fn), torch.zeros(5, 72)
    with pytest.raises((ValueError, TypeError), match=message):
        C.packed_gemm(a, torch.ones(5), w.codes.view(1, -1), w.scales, d, None, None, None, None, zeros, None, told, 6)


class Fp4Pair:
    """MXFP4 weights as the public API has them, in one of its forms of scales, and packed."""

    def __init__(self, shape: tuple[int, ...], form: str = "fp32", group: int = 32, device="cpu") -> None:
        *groups, n, k = shape
        generator = torch.Generator().manual_seed(n)
        codes = torch.randint(0, 16, shape, generator=generator, dtype=torch.uint8)
        exponents = torch.randint(110, 130, (*groups, n, ceil_div(k, group)), generator=generator, dtype=torch.uint8)
        self.pairs = deep_gemm.utils.pack_int4((codes << 4).view(torch.int8) >> 4).to(device)
        spread = exponents.repeat_interleave(group // 32, -1)
        self.packed = deep_gemm.pack_weights(codes, spread, element="e2m1", activations="fp8", group_size=32).to(device)
        self.scales = (exponents.int() << 23).view(torch.float32).to(device)
        if form == "columns":
            self.scales = self.scales.mT.contiguous().mT
        if form == "e8m0":
            self.scales = exponents.view(torch.float8_e8m0fnu).to(device)
        if form == "words":  # behind the last group, NaN
            words = torch.nn.functional.pad(exponents, (0, -exponents.shape[-1] % 4), value=255).view(torch.int32)
            self.scales = words.mT.contiguous().mT.to(device)

    @property
    def public(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.pairs, self.scales


FORMS = pytest.mark.parametrize("form", ["fp32", "columns", "e8m0", "words"])


@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@FORMS
def test_the_public_pair_of_fp4_gives_what_packed_weights_give(device, form) -> None:
    m, n, k = 9, 136, 288
    a = Tokens(KINDS["mxfp4-k-groups"], (m, k), torch.Generator().manual_seed(6))
    w = Fp4Pair((n, k), form, device=device)
    assert not w.packed.folds_exponents
    c = torch.randn((m, n), generator=torch.Generator().manual_seed(7)).to(device)
    d, wanted = GuardedOutput((m, n), torch.float32, device), torch.empty((m, n), device=device)
    deep_gemm.fp8_fp4_gemm_nt(a.to(device), w.packed, wanted, c)
    deep_gemm.fp8_fp4_gemm_nt(a.to(device), w.public, d.tensor, c, recipe_a=(1, 128), recipe_b=(1, 32))
    d.check()
    assert torch.equal(d.tensor, wanted)
    operator = torch.ops.deep_gemm.fp8_fp4_gemm_nt
    again = torch.full_like(wanted, torch.nan)
    operator(*a.to(device), *w.public, again, c)
    assert torch.equal(again, wanted)


@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("recipe", [{"recipe": (1, 1, 128)}, {"recipe_a": (1, 128), "recipe_b": (1, 128)}], ids=str)
def test_the_public_pair_of_fp4_with_scales_for_128_of_k_and_a_bias(device, recipe) -> None:
    m, n, k = 5, 24, 384
    a = Tokens(KINDS["mxfp4"], (m, k), torch.Generator().manual_seed(6))
    w = Fp4Pair((n, k), group=128, device=device)
    bias = torch.arange(n).float().to(device)
    d, wanted = torch.empty((m, n), device=device), torch.empty((m, n), device=device)
    deep_gemm.fp8_fp4_gemm_nt(a.to(device), w.packed, wanted, bias=bias)
    deep_gemm.fp8_fp4_gemm_nt(a.to(device), w.public, d, bias=bias, **recipe)
    assert w.packed.folds_exponents  # and so sums of other groups are rounded
    torch.testing.assert_close(d, wanted, rtol=1e-4, atol=1e-4 * wanted.abs().max())


@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@FORMS
def test_experts_of_the_public_pair_give_what_packed_ones_give(device, form) -> None:
    experts, rows, n, k = 2, 128, 72, 160
    a = Tokens(KINDS["mxfp4-k-groups"], (experts * rows, k), torch.Generator().manual_seed(6))
    w = Fp4Pair((experts, n, k), form, device=device)
    owners = torch.arange(experts, dtype=torch.int32, device=device).repeat_interleave(rows)
    d, wanted = (torch.empty((experts * rows, n), dtype=torch.bfloat16, device=device) for _ in range(2))
    bias = torch.randn((experts, n), generator=torch.Generator().manual_seed(7)).to(device)
    with alignment_of(rows):
        deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous(a.to(device), w.packed, wanted, owners, bias=bias)
        deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous(a.to(device), w.public, d, owners, bias=bias)
    assert torch.equal(d, wanted)
    data, scales = a.to(device)
    masked = data.view(experts, rows, k), scales.view(experts, rows, -1)
    counts = torch.tensor([7, 128], dtype=torch.int32, device=device)
    found = torch.full((experts, rows, n), 3, dtype=torch.bfloat16, device=device)
    deep_gemm.m_grouped_fp8_fp4_gemm_nt_masked(masked, w.public, found, counts, 64, bias=bias)
    for expert, count in enumerate(counts.tolist()):
        assert torch.equal(found[expert, :count], wanted.view(experts, rows, n)[expert, :count])


@pytest.mark.parametrize("weights", ["public", "packed"])
def test_weights_of_four_bits_are_refused_on_blackwell(weights) -> None:
    w = Fp4Pair((24, 128))
    d = GuardedOutput((3, 24), torch.float32, "cpu")
    a = torch.zeros((3, 128)).to(torch.float8_e4m3fn), torch.ones(3)
    with simulator.options(target="sm_100f"), pytest.raises(TypeError, match="not on SM100 as yet"):
        deep_gemm.fp8_fp4_gemm_nt(a, getattr(w, weights), d.tensor)
    d.assert_untouched()


def test_the_public_pair_of_fp4_is_compiled_as_one_graph() -> None:
    w, a = Fp4Pair((24, 128)), Tokens(KINDS["mxfp4"], (3, 128), torch.Generator().manual_seed(6)).to("cpu")

    def step(data, scales, pairs, w_scales):
        d = torch.zeros((3, 24))
        deep_gemm.fp8_fp4_gemm_nt((data, scales), (pairs, w_scales), d)
        return d * 2

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*a, *w.public), step(*a, *w.public))


def test_empty_products_of_the_public_pair() -> None:
    pair = torch.zeros((24, 0), dtype=torch.int8), torch.ones((24, 0))
    d, c = torch.full((3, 24), torch.nan), torch.ones((3, 24))
    deep_gemm.fp8_fp4_gemm_nt((torch.empty((3, 0), dtype=torch.float8_e4m3fn), torch.ones(3)), pair, d, c)
    assert torch.equal(d, c)
    w = Fp4Pair((24, 128))
    deep_gemm.fp8_fp4_gemm_nt((torch.empty((0, 128), dtype=torch.float8_e4m3fn), torch.ones(0)), w.public, d[:0])


def test_products_of_the_public_pair_without_k_are_their_bias() -> None:
    a, bias = (torch.empty((128, 0), dtype=torch.float8_e4m3fn), torch.ones(128)), torch.randn(2, 24)
    pair = torch.zeros((2, 24, 0), dtype=torch.int8), torch.ones((2, 24, 0))
    d, c = torch.full((128, 24), torch.nan), torch.ones((128, 24))
    deep_gemm.fp8_fp4_gemm_nt(a, (pair[0][0], pair[1][0]), d, c, bias=bias[1])
    assert torch.equal(d, (bias[1] + 1).expand(128, 24))
    owners = torch.tensor([1] * 5 + [-1] * 123, dtype=torch.int32)
    deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous(a, pair, d, owners, bias=bias)
    assert torch.equal(d, bias[1] * (owners == 1).unsqueeze(1))
    masked, counts = d.view(2, 64, 24), torch.tensor([3, 64], dtype=torch.int32)
    deep_gemm.m_grouped_fp8_fp4_gemm_nt_masked(
        (a[0].view(2, 64, 0), a[1].view(2, 64)), pair, masked, counts, 8, bias=bias
    )
    assert torch.equal(masked[0, :3], bias[0].expand(3, 24))
    assert torch.equal(masked[1], bias[1].expand(64, 24))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"recipe": (1, 1, 32)},
            ValueError,
            r"scales of a must be for one row and 128 of K.*says \(1, 32\) and \(1, 32\)",
        ),
        ({"recipe_a": (1, 128), "recipe_b": (128, 128)}, ValueError, r"those of b for one row.*and \(128, 128\)"),
        ({"recipe_a": (1, 128), "recipe_b": (1, 48)}, ValueError, "for 32 of K, or a multiple of it, but are for 48"),
        ({"recipe_a": (1, 128)}, ValueError, "recipe_a and recipe_b go together"),
        ({"recipe": (1, 1, 128), "recipe_a": (1, 128)}, ValueError, "either recipe or recipe_a and recipe_b"),
        (
            {"scales": torch.ones(24, 3)},
            ValueError,
            r"b's scales must be \[24, 4\] .*32 of K of b\), but has shape \[24, 3\]",
        ),
        ({"scales": torch.ones(24, 4).bfloat16()}, TypeError, "b's scales must be int32 .* but is bfloat16"),
        ({"pairs": torch.zeros((64, 24), dtype=torch.int8).T}, ValueError, "b must have K contiguous"),
        ({"pairs": torch.zeros((24, 32), dtype=torch.int8)}, ValueError, "b has K=64 but a has K=128"),
        ({"pairs": torch.zeros((1, 24, 64), dtype=torch.int8)}, ValueError, r"b must .*\[N, K / 2\]"),
    ],
)
def test_wrong_public_pairs_are_refused(changes, error, message) -> None:
    w = Fp4Pair((24, 128))
    pair = changes.pop("pairs", w.pairs), changes.pop("scales", w.scales)
    d = GuardedOutput((3, 24), torch.float32, "cpu")
    with pytest.raises(error, match=message):
        deep_gemm.fp8_fp4_gemm_nt((torch.zeros((3, 128)).to(torch.float8_e4m3fn), 1.0), pair, d.tensor, **changes)
    d.assert_untouched()


@pytest.mark.gpu
def test_a_graph_packs_the_public_pair_of_the_moment(cuda) -> None:
    a = Tokens(KINDS["mxfp4"], (16, 512), torch.Generator().manual_seed(6)).to(cuda)
    w, other = Fp4Pair((256, 512), device=cuda), Fp4Pair((256 + 1, 512), device=cuda)
    d, wanted = torch.empty((16, 256), device=cuda), torch.empty((16, 256), device=cuda)
    deep_gemm.fp8_fp4_gemm_nt(a, w.public, d)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        deep_gemm.fp8_fp4_gemm_nt(a, w.public, d)
    w.pairs.copy_(other.pairs[:256])
    w.scales.copy_(other.scales[:256])
    deep_gemm.fp8_fp4_gemm_nt(a, w.public, wanted)
    graph.replay()
    assert torch.equal(d, wanted)
