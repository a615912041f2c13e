"""Products of BF16 and FP16 activations with packed weights, against FP64 products of what those stand for."""

from __future__ import annotations

from dataclasses import dataclass

import checkpoints
import pytest
import torch
from candidates import forced_tile, parse, target_of
from devices import TAKE_PACKED, on_simulator
from grouped_inputs import alignment_of
from inputs import GuardedOutput, ceil_div

import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C
from deep_gemm._targets import HOPPER_SMS

COUNTS = [5, 0, 130, 1]  # experts' rows
HEIGHT = 136
SIZES = [(1, 136, 272), (7, 24, 640), (129, 280, 144)]
TOLERANCE = {"cuda": 1e-5, "cpu": 4e-7}  # relative to sum |a||w|
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-23}
ACTIVATIONS = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
OUTPUTS = pytest.mark.parametrize("output", [*ROUNDING], ids=str)


@dataclass(frozen=True)
class Kind:
    weights: str  # as functions are named
    element: str
    group: int | None
    config: str  # what `explain` calls it
    scales: str = "fp32"
    zeros: tuple[int, int] | None = None  # the least and the largest

    def function(self, name: str):
        return getattr(deep_gemm, name.format(f"bf16_{self.weights}"))

    def fields(self) -> dict[str, int]:
        size = {"channel_scales": 1} if self.group is None else {"gran_k_b": self.group}
        return {self.config: 1, **size, **({} if self.scales == "fp32" else {"conversion_scales": 1})}


KINDS = {
    "int4": Kind("int4", "int4", 128, "s4b"),
    "int4-groups-of-64": Kind("int4", "int4", 64, "s4b"),
    "int4-groups-of-32": Kind("int4", "int4", 32, "s4b"),
    "int4-channels": Kind("int4", "int4", None, "s4b"),
    "int4-zeros": Kind("int4", "uint4", 128, "u4", zeros=(-1, 16)),
    "int4-zeros-groups-of-64": Kind("int4", "uint4", 64, "u4", zeros=(0, 15)),
    "int4-signed-zeros-groups-of-32": Kind("int4", "int4", 32, "u4", zeros=(-128, 127)),
    "int4-zeros-channels": Kind("int4", "uint4", None, "u4", zeros=(-1, 16)),
    "mxfp4": Kind("fp4", "e2m1", 32, "e2m1", scales="powers of two"),
    "nvfp4": Kind("fp4", "e2m1", 16, "e2m1", scales="e4m3"),
    "fp4-groups-of-32": Kind("fp4", "e2m1", 32, "e2m1"),
    "fp4-channels": Kind("fp4", "e2m1", None, "e2m1"),
    "fp8": Kind("fp8", "e4m3", 128, "e4m3p"),
    "fp8-channels": Kind("fp8", "e4m3", None, "e4m3p"),
}
E2M1 = torch.tensor([sign * value for sign in (1, -1) for value in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)])
EVERY_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def activations(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator).to(dtype)


def weights(kind: Kind, shape: tuple[int, ...], generator: torch.Generator):
    """PackedWeights; and what they stand for by what `pack_weights` was told, not by what it packed."""
    *groups, n, k = shape
    size = kind.group if kind.group and k % kind.group == 0 else None  # groups divide K
    count = (*groups, n, k // size if size else 1)
    second = None
    if kind.scales == "powers of two":
        scales = torch.exp2(torch.randint(-12, -3, count, generator=generator).float())
    elif kind.scales == "e4m3":
        second = torch.rand((*groups, n) if groups else (), generator=generator) / 64 + 1e-4
        scales = torch.exp2(torch.randint(-9, 9, count, generator=generator).float()).to(torch.float8_e4m3fn)
        scales.view(torch.uint8)[..., 1::2] |= 5  # other mantissas, and subnormal numbers of them
    else:
        scales = (torch.rand(count, generator=generator) + 0.5) / 16
    zeros = None
    if kind.element in ("int4", "uint4"):
        low, high = (-8, 8) if kind.element == "int4" else (0, 16)
        values = torch.randint(low, high, shape, generator=generator, dtype=torch.int8)
        decoded = values.double()
        if kind.zeros is not None:
            zeros = torch.randint(kind.zeros[0], kind.zeros[1] + 1, count, generator=generator, dtype=torch.int32)
            decoded -= zeros.double().repeat_interleave(size or k, -1)
            zeros = zeros if size else zeros[..., 0]
    elif kind.element == "e2m1":
        values = torch.randint(0, 16, shape, generator=generator, dtype=torch.uint8)
        decoded = E2M1[values.long()].double()
    else:
        codes = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        values = codes.masked_fill(codes & 127 == 127, 0).view(torch.float8_e4m3fn)
        decoded = values.double()
    packed = deep_gemm.pack_weights(
        values,
        scales if size else scales[..., 0],
        zeros,
        element=kind.element,
        activations="bf16",
        group_size=size,
        second_scales=second,
    )
    assert packed.needs_zeros == (kind.zeros is not None)
    assert (packed.second_scales is not None) == (kind.scales != "fp32" and size is not None)
    factor = 1 if second is None else second.double().reshape(*groups, -1, 1)
    return packed, decoded * scales.double().repeat_interleave(size or k, -1) * factor


def check(d: torch.Tensor, a: torch.Tensor, w: torch.Tensor, added: torch.Tensor | float = 0) -> None:
    a = a.double()
    expected, magnitude = a @ w.mT + added, a.abs() @ w.abs().mT
    allowed = TOLERANCE[d.device.type] * magnitude + ROUNDING[d.dtype] * expected.abs() + 1e-6
    found = d.double().cpu()
    wrong = ((found - expected).abs() > allowed) | ~found.isfinite()
    assert not wrong.any(), f"{wrong.sum().item()} of {wrong.numel()} elements are wrong"


@pytest.mark.sampled(10)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@OUTPUTS
@ACTIVATIONS
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("added", ["nothing", "c", "d"])
@EVERY_KIND
def test_dense(device, kind, added, size, dtype, output) -> None:
    m, n, k = size
    generator = torch.Generator().manual_seed(m)
    a = activations((m, k), dtype, generator)
    w, exact = weights(kind, (n, k), generator)
    d = GuardedOutput((m, n), output, device)
    c = None if added == "nothing" else torch.randn((m, n), generator=generator).to(output).to(device)
    if added == "d":
        d.tensor.copy_(c)
    kind.function("{}_gemm_nt")(a.to(device), w.to(device), d.tensor, d.tensor if added == "d" else c)
    d.check()
    check(d.tensor, a, exact, 0 if c is None else c.double().cpu())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@ACTIVATIONS
@EVERY_KIND
def test_k_of_2880(device, kind, dtype) -> None:
    generator = torch.Generator().manual_seed(5)
    a = activations((3, 2880), dtype, generator)
    w, exact = weights(kind, (72, 2880), generator)
    d = GuardedOutput((3, 72), torch.float32, device)
    kind.function("{}_gemm_nt")(a.to(device), w.to(device), d.tensor)
    d.check()
    check(d.tensor, a, exact)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@OUTPUTS
@ACTIVATIONS
@EVERY_KIND
def test_bias(device, kind, dtype, output) -> None:
    generator = torch.Generator().manual_seed(1)
    a = activations((20, 256), dtype, generator)
    w, exact = weights(kind, (72, 256), generator)
    bias = torch.randn(72, generator=generator).to(output)
    d = GuardedOutput((20, 72), torch.float32, device)
    kind.function("{}_gemm_nt")(a.to(device), w.to(device), d.tensor, bias=bias.to(device))
    d.check()
    check(d.tensor, a, exact, bias.double())


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@OUTPUTS
@ACTIVATIONS
@pytest.mark.parametrize(("n", "k"), [(136, 272), (24, 640)])
@pytest.mark.parametrize("biased", [False, True])
@EVERY_KIND
def test_masked(device, kind, biased, n, k, dtype, output) -> None:
    """Counts above the hint, an expert without rows, rows behind counts that are not finite."""
    generator = torch.Generator().manual_seed(2)
    a = activations((len(COUNTS), HEIGHT, k), dtype, generator)
    for group, count in enumerate(COUNTS):
        a[group, count:] = float("nan")
    w, exact = weights(kind, (len(COUNTS), n, k), generator)
    d = GuardedOutput((len(COUNTS), HEIGHT, n), output, device)
    counts = torch.tensor(COUNTS, dtype=torch.int32, device=device)
    bias = torch.randn((len(COUNTS), n), generator=generator) if biased else None
    call = kind.function("m_grouped_{}_gemm_nt_masked")
    call(a.to(device), w.to(device), d.tensor, counts, 40, bias=None if bias is None else bias.to(device))
    d.check(complete=False)
    for group, count in enumerate(COUNTS):
        if count:
            added = 0 if bias is None else bias[group].double()
            check(d.tensor[group, :count], a[group, :count], exact[group], added)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@OUTPUTS
@ACTIVATIONS
@pytest.mark.parametrize(("n", "k"), [(136, 272), (24, 640)])
@pytest.mark.parametrize("psum", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@EVERY_KIND
def test_contiguous(device, kind, biased, psum, n, k, dtype, output) -> None:
    generator = torch.Generator().manual_seed(3)
    heights = [ceil_div(count, 128) * 128 for count in COUNTS]
    starts = [sum(heights[:group]) for group in range(len(COUNTS))]
    a = activations((sum(heights), k), dtype, generator)
    layout = torch.full((sum(heights),), -1, dtype=torch.int32)
    for expert, (start, count) in enumerate(zip(starts, COUNTS, strict=True)):
        layout[start : start + count] = expert
        a[start + count : start + heights[expert]] = float("nan")
    if psum:
        layout = torch.tensor([start + count for start, count in zip(starts, COUNTS, strict=True)], dtype=torch.int32)
    w, exact = weights(kind, (len(COUNTS), n, k), generator)
    d = GuardedOutput((sum(heights), n), output, device)
    call = kind.function("m_grouped_{}_gemm_nt_contiguous")
    bias = torch.randn((len(COUNTS), n), generator=generator) if biased else None
    with_bias = {} if bias is None else {"bias": bias.to(device)}
    with alignment_of(128):
        call(a.to(device), w.to(device), d.tensor, layout.to(device), use_psum_layout=psum, **with_bias)
    d.check()
    for expert, (start, count) in enumerate(zip(starts, COUNTS, strict=True)):
        rows = slice(start, start + count)
        if count:
            check(d.tensor[rows], a[rows], exact[expert], 0 if bias is None else bias[expert].double())
        assert not d.tensor[start + count : start + heights[expert]].any(), "padding becomes zero"


@pytest.mark.sampled(10)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@ACTIVATIONS
@pytest.mark.parametrize("seed", range(4))
@EVERY_KIND
def test_every_tile_is_right_and_has_the_same_bits(device, kind, seed, dtype, batch_invariant) -> None:
    """Of each problem the first, the last and some other legal tiles, clusters among them."""
    m, n, k = [(24, 256, 384), (40, 192, 640), (136, 256, 512), (264, 300, 256)][seed]
    generator = torch.Generator().manual_seed(seed)
    a = activations((m, k), dtype, generator)
    w, exact = weights(kind, (n, k), generator)
    name = "bf16" if dtype == torch.bfloat16 else "fp16"
    fields = {"m": m, "n": n, "k": k, "num_sms": HOPPER_SMS, "fp32_output": 1, "batch_invariant": 1, name: 1}
    legal = [c for c in parse(C.explain("dense", {**fields, **kind.fields()}, target_of(device))) if c.refusal is None]
    assert len(legal) > 2
    expected = None
    with simulator.options(num_sms=HOPPER_SMS):
        for c in [legal[0], *legal[1 + seed :: len(legal) // 3], legal[-1]]:
            d = torch.zeros((m, n), device=device)
            with forced_tile(device, (m, n, k), c.swapped, c.rows, c.cols, c.cluster_shape, c.turns):
                kind.function("{}_gemm_nt")(a.to(device), w.to(device), d)
            check(d, a, exact)
            expected = d if expected is None else expected
            assert torch.equal(d, expected), f"other bits from {c.rows}x{c.cols}"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("device", on_simulator("any", arch="sm80"), indirect=True)
@ACTIVATIONS
@pytest.mark.parametrize("size", [(5, 128, 272), (40, 72, 1152)], ids=str)
@EVERY_KIND
def test_warps_that_divide_k_add_up(device, kind, size, dtype) -> None:
    """Past the end of K, and of all weights, some of them have no block any more."""
    m, n, k = size
    generator = torch.Generator().manual_seed(9)
    a = activations((m, k), dtype, generator)
    w, exact = weights(kind, (n, k), generator)
    fields = {"m": m, "n": n, "k": k, "num_sms": HOPPER_SMS, "fp32_output": 1, **kind.fields()}
    name = "bf16" if dtype == torch.bfloat16 else "fp16"
    found = parse(C.explain("dense", {name: 1, **fields}, target_of(device)))
    dividing = [c for c in found if c.turns > 1 and c.refusal is None]
    assert dividing
    for c in dividing:
        d = torch.zeros((m, n))
        with forced_tile(device, size, c.swapped, c.rows, c.cols, turns=c.turns):
            kind.function("{}_gemm_nt")(a, w, d)
        check(d, a, exact)


@ACTIVATIONS
def test_every_code_less_every_zero_point_is_exact(dtype) -> None:
    zeros = torch.arange(-128, 241, dtype=torch.int32)
    codes = torch.arange(16, dtype=torch.int8).repeat(len(zeros), 2)
    w = deep_gemm.pack_weights(codes, torch.ones(len(zeros)), zeros, element="uint4", activations="bf16")
    d = torch.zeros(32, len(zeros))
    deep_gemm.bf16_int4_gemm_nt(torch.eye(32, dtype=dtype), w, d)
    assert torch.equal(d.T, codes.float() - zeros.float().unsqueeze(1))
    assert torch.equal(w.dequantize(), d.T)


@ACTIVATIONS
@pytest.mark.parametrize("form", ["awq", "gptq", "gptq_v2"])
def test_checkpoints_with_zero_points_are_multiplied_as_they_were_meant(form, dtype) -> None:
    n, k, group = 96, 256, 64
    generator = torch.Generator().manual_seed(6)
    codes = torch.randint(0, 16, (n, k), generator=generator, dtype=torch.int32)
    zeros = torch.randint(1, 16, (n, k // group), generator=generator, dtype=torch.int32)
    scales = (torch.rand((n, k // group), generator=generator) / 16).half()
    made = {
        "awq": lambda: checkpoints.awq(codes, scales, zeros),
        "gptq": lambda: checkpoints.gptq(codes, scales, zeros),
        "gptq_v2": lambda: checkpoints.gptq(codes, scales, zeros, "gptq_v2"),
    }
    config = {"checkpoint_format": form} if form == "gptq_v2" else {}
    w = deep_gemm.weights_from_checkpoint(form.partition("_")[0], made[form](), activations="bf16", config=config)
    assert w.needs_zeros
    exact = (codes - zeros.repeat_interleave(group, 1)).double() * scales.double().repeat_interleave(group, 1)
    a = activations((7, k), dtype, generator)
    d = GuardedOutput((7, n), torch.float32, "cpu")
    deep_gemm.bf16_int4_gemm_nt(a, w, d.tensor)
    d.check()
    check(d.tensor, a, exact)


@ACTIVATIONS
def test_zero_points_that_are_written_are_those_of_the_next_call(dtype) -> None:
    """The same tensors, so the call is a remembered one; an expert without zero points among them."""
    generator = torch.Generator().manual_seed(7)
    kind = KINDS["int4-zeros"]
    a = activations((5, 256), dtype, generator)
    w, _ = weights(kind, (1, 128, 256), generator)
    mine, d = w[0], GuardedOutput((5, 128), torch.float32, "cpu")
    values = torch.randint(0, 16, (128, 256), generator=generator, dtype=torch.int8)
    symmetric = deep_gemm.pack_weights(
        values, torch.ones(128, 2), torch.full((128, 2), 8).int(), element="uint4", activations="bf16", group_size=128
    )
    assert not symmetric.needs_zeros
    for one, exact in (weights(kind, (128, 256), generator), (symmetric, values.double() - 8)):
        for _ in range(3):
            kind.function("{}_gemm_nt")(a, mine, d.tensor)
        w[0] = one
        kind.function("{}_gemm_nt")(a, mine, d.tensor)
        check(d.tensor, a, exact)


@ACTIVATIONS
def test_rows_that_do_not_start_at_multiples_of_16_bytes(dtype) -> None:
    generator = torch.Generator().manual_seed(6)
    kind = KINDS["int4-channels"]
    a = activations((9, 131), dtype, generator)[:, :129]
    w, exact = weights(kind, (24, 129), generator)
    d = GuardedOutput((9, 24), torch.float32, "cpu")
    kind.function("{}_gemm_nt")(a, w, d.tensor)
    d.check()
    check(d.tensor, a, exact)


@ACTIVATIONS
@EVERY_KIND
def test_operators_do_what_functions_do(kind, dtype) -> None:
    generator = torch.Generator().manual_seed(7)
    a = activations((5, 256), dtype, generator)
    w, _ = weights(kind, (24, 256), generator)

    def step(x: torch.Tensor) -> torch.Tensor:
        d = torch.empty((5, 24), dtype=dtype)
        kind.function("{}_gemm_nt")(x, w, d)
        return d

    traced = torch.fx.experimental.proxy_tensor.make_fx(step)(a)
    assert f"{kind.weights}_gemm_nt" in traced.code
    assert torch.equal(traced(a), step(a))


def small(dtype: torch.dtype = torch.bfloat16):
    generator = torch.Generator().manual_seed(4)
    kind = KINDS["int4"]
    return kind, activations((8, 128), dtype, generator), weights(kind, (16, 128), generator)[0]


def test_weights_for_other_activations_are_refused() -> None:
    _, a, w = small()
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    other = deep_gemm.pack_weights(torch.ones(16, 128).char(), torch.ones(16), element="int4", activations="fp8")
    with pytest.raises(ValueError, match="w is packed for 'fp8' activations, but this function has 'bf16' ones"):
        deep_gemm.bf16_int4_gemm_nt(a, other, d.tensor)
    with pytest.raises(ValueError, match="w is packed for 'bf16' activations, but this function has 'fp8' ones"):
        deep_gemm.fp8_int4_gemm_nt((a.to(torch.float8_e4m3fn), 1.0), w, d.tensor)
    d.assert_untouched()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float32, torch.int8])
def test_activations_of_other_dtypes_are_refused(dtype) -> None:
    kind, a, w = small()
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    with pytest.raises(TypeError, match=f"a must be bfloat16 or float16, but is {str(dtype)[6:]}"):
        kind.function("{}_gemm_nt")(a.to(dtype), w, d.tensor)
    d.assert_untouched()


def test_activations_with_scales_are_refused() -> None:
    kind, a, w = small()
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    with pytest.raises(TypeError, match=r"a must be a tensor, but is \(tensor, 2.0\)"):
        kind.function("{}_gemm_nt")((a, 2.0), w, d.tensor)
    d.assert_untouched()


def test_bf16_activations_with_weights_for_others_are_refused() -> None:
    """Of dtypes that other functions have, packed otherwise."""
    _, a, _ = small()
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    for name, dtype in (("fp8", "float8_e4m3fn"), ("int8", "int8")):
        w = deep_gemm.pack_weights(-8 * torch.ones(16, 128).char(), torch.ones(16), element="int4", activations=name)
        with pytest.raises(TypeError, match=f"a must be {dtype}, but is bfloat16"):
            getattr(deep_gemm, f"{name}_int4_gemm_nt")((a, 1.0), w, d.tensor)
    d.assert_untouched()


def test_activations_with_m_contiguous_are_refused() -> None:
    kind, a, w = small()
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    with pytest.raises(ValueError, match="a must have K contiguous, not M, beside packed weights"):
        kind.function("{}_gemm_nt")(a.T.contiguous().T, w, d.tensor)
    d.assert_untouched()
