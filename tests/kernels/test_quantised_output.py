"""`d=(q, s)`: to the bit what deep_gemm.utils makes of the FP32 result of the same product."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from candidates import can_serve, candidates, forced
from devices import EACH_ARCH, ONE_OF_EACH_ARCH, on_simulator
from grouped_inputs import alignment_of
from inputs import GuardedOutput, ceil_div, random_blocks, random_rows, random_values
from quantised_output import ALIGNMENT, FP8, SCALES, K, Product, QuantisedOutput, dense, of_experts, operands

import deep_gemm
from deep_gemm._extension import C
from deep_gemm.epilogue import Alpha, Chain, RowScale
from deep_gemm.utils import per_token_cast_to_fp8

DEVICES = EACH_ARCH


pytestmark = pytest.mark.usefixtures("batch_invariant")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("stem", ["fp8", "bf16", "int8"])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize(("m", "n"), [(1, 8), (7, 120), (129, 136), (64, 264), (7, 640)])
def test_dense(device, stem, scales, m, n) -> None:
    dense(stem, device, m, n).check(scales, device)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("stem", ["fp8", "bf16", "int8"])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("grouping", ["contiguous", "psum", "masked"])
def test_experts(device, stem, scales, grouping) -> None:
    with alignment_of(ALIGNMENT):
        of_experts(stem, grouping, device, 136).check(scales, device)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("grouping", ["contiguous", "psum", "masked"])
@pytest.mark.parametrize("stem", ["fp8", "bf16"])
def test_one_expert(device, stem, grouping) -> None:
    with alignment_of(ALIGNMENT):
        of_experts(stem, grouping, device, 136, one=True).check("words of 128", device)


TARGETS = {"sm90": "sm_90a", "sm80": "sm_80", "sm100": "sm_100a"}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", on_simulator("any"), indirect=True)
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize("draw", range(8))
def test_every_tile(device, arch, scales, draw) -> None:
    """Sums of small integers, exact in any order: the same bits from whatever tile a call may be forced to take."""
    deep_gemm.set_batch_invariant(False)  # split K too
    m, n, k = 40, 264, 512
    a, b = (random_values(shape, device, 6).mul(3).round().bfloat16() for shape in ((m, k), (n, k)))
    field = {f"quantised{'_words' if SCALES[scales][2] == 4 else ''}": SCALES[scales][1]}
    with deep_gemm.simulator.options(target=TARGETS[arch]):
        sms = C.device_facts(True, 0)["num_sms"]
        found = [c for c in candidates(m, n, k, sms, TARGETS[arch], bf16=1, **field) if can_serve(c)]
        assert any(c.swapped for c in found)
        assert not all(c.swapped for c in found)
        candidate = random.Random(f"{arch} {scales} {draw}").choice(found)
        out = QuantisedOutput((m, n), scales, device)
        with forced(device, m, n, k, candidate):
            deep_gemm.bf16_gemm_nt(a, b, out.pair)
    every = torch.ones(m, dtype=torch.bool)
    out.check(a.float() @ b.float().T, every, ~every)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("kind", ["bf16_int4", "fp8_int4", "int8_int4", "bf16_fp8"])
@pytest.mark.parametrize("grouping", ["dense", "masked", "contiguous"])
def test_packed_weights(device, scales, kind, grouping) -> None:
    n, m = 136, 24 if grouping == "dense" else 128
    experts = () if grouping == "dense" else (2,)
    activations, element = kind.split("_")
    codes = random_values((*experts, n, K), device, 3).mul(3).round().clamp(-7, 7)
    weights = deep_gemm.pack_weights(
        codes.to(torch.int8 if element == "int4" else FP8),
        torch.rand((*experts, n, K // 128), device=device) + 0.5,
        element="int4" if element == "int4" else "e4m3",
        activations=activations,
        group_size=128,
    )
    shape = (2, 64, K) if grouping == "masked" else (m, K)
    x = random_values(shape, device, 4)
    a: Any = x.bfloat16() if activations == "bf16" else tuple(random_rows(shape, device, 4))
    if activations == "int8":
        a = x.mul(20).to(torch.int8), x.abs().amax(-1)
    name = f"{kind}_gemm_nt" if grouping == "dense" else f"m_grouped_{kind}_gemm_nt_{grouping}"
    function = getattr(deep_gemm, name)
    more: list[Any] = []
    written = torch.ones(shape[:-1], dtype=torch.bool, device=device)
    padding = torch.zeros_like(written)
    if grouping == "masked":
        counts = torch.tensor([5, 64], dtype=torch.int32, device=device)
        written, more = torch.arange(64, device=device) < counts[:, None], [counts, 16]
    elif grouping == "contiguous":
        layout = torch.tensor([0] * 30 + [-1] * 34 + [1] * 64, dtype=torch.int32, device=device)
        padding, more = layout < 0, [layout]
    with alignment_of(ALIGNMENT):
        Product((*shape[:-1], n), lambda d: function(a, weights, d, *more), written, padding).check(scales, device)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("stem", ["fp8", "bf16"])
@pytest.mark.parametrize("heads", [1, 3])
def test_batched(device, stem, scales, heads) -> None:
    a, b = operands(stem, device, (7, heads, K), (heads, 256, K))
    function = deep_gemm.fp8_einsum if stem == "fp8" else deep_gemm.einsum
    wide = torch.empty(7, heads, 256, device=device)
    out = QuantisedOutput((heads, 7, 256), scales, device)
    function("bhr,hdr->bhd", a, b, wide)
    function("bhr,hdr->bhd", a, b, tuple(part.transpose(0, 1) for part in out.pair))
    every = torch.ones(heads, 7, dtype=torch.bool, device=device)
    out.check(wide.transpose(0, 1).contiguous(), every, ~every)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("m", [3, 70])
def test_int8(device, m) -> None:
    product = dense("int8", device, m, 264)
    wide = torch.empty(m, 264, device=device)
    q, s = GuardedOutput((m, 264), torch.int8, device), GuardedOutput((3, ceil_div(m, 4) * 4), torch.float32, device)
    product.call(wide)
    product.call((q.tensor, s.tensor[:, :m].T))
    q.check(complete=False)
    groups = torch.nn.functional.pad(wide, (0, 120)).view(m, 3, 128)
    scales = groups.abs().amax(-1).clamp(min=1e-4) / torch.full(
        (), 127.0, device=device
    )  # on the device: torch multiplies by the reciprocal of a number
    codes = torch.round(groups / scales[..., None]).clamp(-127, 127).view(m, 384)[:, :264]
    assert torch.equal(s.tensor[:, :m].T, scales)
    assert torch.equal(q.tensor, codes.to(torch.int8))


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_rows_anywhere(device) -> None:
    """Rows of q that start at no multiple of 16 bytes."""
    dense("bf16", device, 20, 144).check("fp32", device, row_stride=147)


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_behind_the_other_steps(device) -> None:
    weights = random_values((40,), device, 3)
    product = dense("fp8", device, 40, 136)
    product.check("fp32", device, epilogue=Chain(Alpha(-0.3), RowScale(weights)))
    # Rows of zeros, some of them negative: their scale is that of 1e-4.
    product.check("words of 128", device, epilogue=RowScale(weights * 0))


@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("scales", ["fp32", "words of 32"])
def test_infinite_and_nan(device, scales) -> None:
    """The others of a row with an infinite one become zero, or the largest number; NaN stays NaN."""
    a, b = torch.eye(16, 128, device=device).bfloat16(), torch.ones(136, 128, device=device).bfloat16()
    b[3, 1], b[5, 2], b[7, 3], b[130, 4] = float("inf"), float("nan"), 3e38, -1e-3
    a[1, 1] = 3e38
    wide, out = torch.empty(16, 136, device=device), QuantisedOutput((16, 136), scales, device)
    deep_gemm.bf16_gemm_nt(a[:, :8].contiguous(), b[:, :8].contiguous(), wide)
    deep_gemm.bf16_gemm_nt(a[:, :8].contiguous(), b[:, :8].contiguous(), out.pair)
    words = scales != "fp32"
    q, s = per_token_cast_to_fp8(wide, use_ue8m0=words, gran_k=out.columns, use_packed_ue8m0=words)
    assert wide.isinf().any()
    assert wide.isnan().any()
    assert torch.equal(out.pair[0].float().nan_to_num(nan=500), q.float().nan_to_num(nan=500))
    assert torch.equal(out.pair[1].float().nan_to_num(nan=-1), s.float().nan_to_num(nan=-1))


@pytest.mark.parametrize("device", on_simulator("any"), indirect=True)
def test_what_the_next_product_takes(device) -> None:
    """q and s as A, in place: the product of them is that of the cast of the FP32 result."""
    first = dense("bf16", device, 24, 256)
    wide, out = torch.empty(24, 256), QuantisedOutput((24, 256), "fp32", device)
    first.call(wide)
    first.call(out.pair)
    weights = tuple(random_blocks((72, 256), device, 4))
    d, wanted = torch.empty(24, 72), torch.empty(24, 72)
    assert deep_gemm.get_mn_major_tma_aligned_tensor(out.pair[1]).data_ptr() == out.pair[1].data_ptr()
    deep_gemm.fp8_gemm_nt(out.pair, weights, d)
    deep_gemm.fp8_gemm_nt(per_token_cast_to_fp8(wide, use_ue8m0=False), weights, wanted)
    assert torch.equal(d, wanted)


@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("scales", SCALES)
def test_empty_k(device, scales) -> None:
    dense("bf16", device, 9, 136, k=0).check(scales, device)
    with alignment_of(ALIGNMENT):
        for grouping in ("contiguous", "psum", "masked"):
            of_experts("bf16", grouping, device, 136, k=0).check(scales, device)


def test_forms(cpu) -> None:
    """By deep_gemm.gemm, by another function's pair, by the operator, traced; a call that comes again."""
    a, b = operands("fp8", cpu, (16, K), (136, K))
    wanted = QuantisedOutput((16, 136), "fp32", cpu)
    deep_gemm.fp8_gemm_nt(a, b, wanted.pair)

    def by_operator(pair: Any) -> None:
        torch.ops.deep_gemm_jit.fp8_gemm_nt(*a, *b, pair[0], d_scales=pair[1])

    def again(pair: Any) -> None:
        for _ in range(3):
            pair[0].view(torch.uint8).zero_()
            pair[1].zero_()
            deep_gemm.fp8_gemm_nt(a, b, pair)

    traced = torch.compile(lambda q, s: deep_gemm.fp8_gemm_nt(a, b, (q, s)), backend="eager", fullgraph=True)
    for call in (
        lambda pair: deep_gemm.gemm(a, b, pair),
        by_operator,
        again,
        lambda pair: traced(*pair),
        lambda pair: deep_gemm.fp8_gemm_nt(a, b, list(pair)),
    ):
        out = QuantisedOutput((16, 136), "fp32", cpu)
        versions = [tensor._version for tensor in out.pair]
        call(out.pair)
        assert torch.equal(out.pair[0].view(torch.uint8), wanted.pair[0].view(torch.uint8))
        assert torch.equal(out.pair[1], wanted.pair[1])
        assert all(tensor._version > before for tensor, before in zip(out.pair, versions, strict=True))


@pytest.fixture
def cpu() -> torch.device:
    return torch.device("cpu")


def rejected(cpu: torch.device, kind: type[Exception], words: str, d: Any, **more: Any) -> None:
    a, b = random_values((16, 64), cpu, 1).bfloat16(), random_values((256, 64), cpu, 2).bfloat16()
    with pytest.raises(kind, match=words):
        deep_gemm.bf16_gemm_nt(a, b, d, **more)


def test_what_is_refused(cpu) -> None:
    out = QuantisedOutput((16, 256), "fp32", cpu)
    q, s = out.pair
    rejected(cpu, TypeError, r"d must be float8_e4m3fn or int8 where it has scales, got bfloat16", (q.bfloat16(), s))
    rejected(cpu, TypeError, r"float8_e4m3fn: give its scales too, d=\(q, s\)", q)
    rejected(cpu, TypeError, r"d's scales must be float32 or int32 .*, got float16", (q, s.half()))
    words = torch.ones(1, 16, dtype=torch.int32).T
    rejected(cpu, TypeError, r"must be float32 where d is int8, got int32", (q.view(torch.int8), words))
    rejected(cpu, ValueError, r"one for a whole row .* deep_gemm\.quantize\.fp8", (q, s[:, :1]))
    rejected(cpu, ValueError, r"one float32 per row and 128 columns, 2 of a row .*, got 3", (q, torch.ones(3, 16).T))
    rejected(cpu, ValueError, r"for 128 columns \(1 .* or for 32 \(2\), got 3", (q, torch.ones(3, 16).int().T))
    rejected(cpu, ValueError, r"d's scales must have d's rows", (q, torch.ones(2, 20).T))
    rejected(cpu, ValueError, r"rows contiguous .* got strides \(2, 1\)", (q, torch.ones(16, 2)))
    rejected(cpu, ValueError, r"c must be None where d has scales", (q, s), c=q)
    rejected(
        cpu, ValueError, r"d shares memory with d's scales", (q, q.view(torch.float32).view(-1)[:32].view(2, 16).T)
    )
    rejected(cpu, TypeError, r"d must be a tensor, or a pair \(tensor, scales\)", (q, s, s))
    out.q.assert_untouched()
    out.s.assert_untouched()


def test_products_that_do_not_quantise(cpu) -> None:
    out = QuantisedOutput((16, 128), "fp32", cpu)
    layout = torch.tensor([64], dtype=torch.int32)
    halves = torch.ones(64, 16).bfloat16(), torch.ones(64, 128).bfloat16()
    with pytest.raises(TypeError, match="d must be a tensor, got"):
        deep_gemm.k_grouped_bf16_gemm_tn_contiguous(*halves, out.pair, [64], layout)
    heads = torch.ones(2, 16, 64).bfloat16(), torch.ones(2, 128, 64).bfloat16()
    with pytest.raises(ValueError, match="d must come without scales where a batch is added up"):
        deep_gemm.einsum("bmk,bnk->mn", *heads, out.pair)
    out.q.assert_untouched()
