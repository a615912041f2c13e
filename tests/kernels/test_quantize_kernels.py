"""Quantise kernels against torch's formulas of the same numbers, bit for bit."""

from __future__ import annotations

import pytest
import torch
from devices import ONE_OF_EACH_ARCH
from logits_inputs import generator_of
from quantize_inputs import activated, cast, equal, values

import deep_gemm
from deep_gemm import quantize
from deep_gemm.epilogue import GeGLU, Identity, SwiGLU

FORMS = ("fp32", "ue8m0", "packed")
UNTOUCHED = 0x55


@pytest.mark.sampled(12)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(("m", "k"), [(1, 2880), (7, 704), (129, 256), (3, 130), (2, 1)])
@pytest.mark.parametrize("group", [128, 32])
@pytest.mark.parametrize("scales", FORMS)
def test_fp8_is_what_utils_make(device, dtype, m, k, group, scales) -> None:
    x = values(m, k, dtype=dtype, device=device)
    q, s = quantize.fp8(x, group=group, scales=scales)
    expected_q, expected_s = cast(x, group, scales)
    assert equal(q, expected_q)
    assert equal(s, expected_s)
    if scales != "packed":
        assert deep_gemm.get_mn_major_tma_aligned_tensor(s) is s


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("scales", FORMS)
def test_ties_and_what_is_not_finite(device, scales) -> None:
    """Rows of ties, of subnormal numbers, of the largest ones, and with infinities or NaN."""
    special = torch.tensor([0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38, 1e-4, 448, 464, 432, 2**-126, -(2**-10), 1e-9, -7])
    x = special[torch.randint(len(special), (12, 256), generator=generator_of(5))]
    x[1:6] = x[1:6].clamp(-448, 448)
    x[6], x[7], x[7, 255] = torch.arange(256) * 0.875, torch.arange(256) + 0.5, 448
    x[8], x[9] = 1e-40, -(2.0**-13)
    x[10, 5], x[11, 200] = torch.inf, torch.nan
    for dtype in (torch.float32, torch.bfloat16):
        given = x.to(device, dtype)
        assert all(map(equal, quantize.fp8(given, scales=scales), cast(given, 128, scales)))


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_quotients_next_to_ties(device) -> None:
    """Values within three units in the last place of what is halfway between two codes, of scales whose mantissas are
    any, or nearly all ones: where a quotient that is not rounded right has another code."""
    generator = generator_of(9)
    random = lambda low, high, *shape: torch.randint(low, high, shape, generator=generator, dtype=torch.int32)  # noqa: E731
    ulps = lambda x, count: (x.view(torch.int32) + count).view(torch.float32)  # noqa: E731
    largest = (1.0 + torch.rand((512, 1), generator=generator)) * 2.0 ** random(-12, 40, 512, 1)
    largest[::3] = ulps(torch.full_like(largest[::3], 14.0), random(-6, 1, *largest[::3].shape))  # over 448: ones
    odd = 1.0 + (2 * random(0, 8, 512, 127) + 1) / 16.0
    ties = odd * 2.0 ** random(-6, 8, 512, 127)
    ties[:, ::2] = (random(0, 8, 512, 64) + 0.5) * 2.0**-9  # of subnormal codes
    near = torch.minimum(ulps(ties * (largest / 448.0), random(-3, 4, 512, 127)), largest)
    x = torch.cat((largest, near * (2 * random(0, 2, 512, 127) - 1)), 1)
    assert all(map(equal, quantize.fp8(x.to(device)), cast(x.to(device), 128, "fp32")))


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_tall_tiles(device) -> None:
    """Enough rows that a warp has several, the last ones of which do not exist."""
    x = values(2117, 512, device=device)
    for group, scales in ((128, "fp32"), (32, "packed")):
        assert all(map(equal, quantize.fp8(x, group=group, scales=scales), cast(x, group, scales)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize(("first", "k"), [(8, 256), (3, 256), (8, 100)])
def test_rows_lie_anywhere(device, first, k) -> None:
    """Between others, at multiples of 16 bytes or not, of matrices between others; and so do results."""
    x = values(2, 3, 11, 400, device=device)[:, :, 2:9, first : first + k]
    q = torch.full((2, 3, 9, 400), UNTOUCHED, dtype=torch.uint8, device=device)
    s = torch.full((2, 3, 9, 8), 7.0, device=device)
    part_q, part_s = q.view(torch.float8_e4m3fn)[:, :, :7, first : first + k], s[:, :, 1:8, : -(-k // 128)]
    given = (part_q, part_s)
    assert quantize.fp8(x, out=given) == given
    fresh_q, fresh_s = quantize.fp8(x)
    for i, matrix in enumerate(x.flatten(0, 1)):
        expected = cast(matrix, 128, "fp32")
        assert all(map(equal, (part_q[i // 3, i % 3], part_s[i // 3, i % 3]), expected))
        assert all(map(equal, (fresh_q[i // 3, i % 3], fresh_s[i // 3, i % 3]), expected))
    part_q.view(torch.uint8).fill_(UNTOUCHED), part_s.fill_(7.0)
    assert (q == UNTOUCHED).all()
    assert (s == 7.0).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("scales", ["fp32", "packed"])
@pytest.mark.parametrize("kind", ["indices", "psum", "masked", "masked by a poor hint"])
def test_rows_that_do_not_exist_are_left_alone(device, kind, scales) -> None:
    """Those hold NaN; of 40 experts the first 33 are empty but one, which more than a warp has to look at."""
    exists = torch.zeros(384, dtype=torch.bool)
    if kind == "psum":
        ends, previous = torch.zeros(40, dtype=torch.int32), 0
        for expert in range(40):
            begin = -(-previous // 128) * 128
            rows = {5: 3, 33: 100, 37: 1, 39: 90}.get(expert, 0)
            previous = begin + rows if rows else previous
            exists[begin : begin + rows] = True
            ends[expert] = previous
        grouping: object = deep_gemm.Contiguous(ends.to(device), psum=True)
    elif kind == "indices":
        layout = torch.randint(-1, 2, (384,), generator=generator_of(3), dtype=torch.int32)
        exists, grouping = layout >= 0, deep_gemm.Contiguous(layout.to(device))
    else:
        counts = torch.tensor([0, 33, 128], dtype=torch.int32)
        for expert, count in enumerate(counts.tolist()):
            exists[expert * 128 : expert * 128 + count] = True
        grouping = deep_gemm.Masked(counts.to(device), 40 if kind == "masked" else 1)
    x = values(384, 256, device=device)
    x[~exists.to(device)] = torch.nan
    q = torch.full((384, 256), UNTOUCHED, dtype=torch.uint8, device=device)
    s = torch.full((384, 1 if scales == "packed" else 2), 7, dtype=torch.int32, device=device)
    s = s if scales == "packed" else s.float()
    shape = (3, 128, -1) if isinstance(grouping, deep_gemm.Masked) else (384, -1)
    given = (q.view(torch.float8_e4m3fn).view(shape), s.view(shape))
    quantize.fp8(x.view(shape), scales=scales, out=given, grouping=grouping)
    expected_q, expected_s = cast(x, 128, scales)
    mask = exists.to(device)
    assert 100 < mask.sum() < 300
    assert torch.equal(q[mask], expected_q.view(torch.uint8)[mask])
    assert torch.equal(s[mask], expected_s[mask])
    assert (q[~mask] == UNTOUCHED).all()
    assert (s[~mask] == 7).all()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("k", [256, 200, 131])
@pytest.mark.parametrize("layout", ["halves", "interleaved"])
@pytest.mark.parametrize("name", ["plain", "limited", "geglu", "geglu erf"])
def test_gated_codes_are_the_nearest(device, dtype, k, layout, name) -> None:
    """Scales within a few ulp; codes next to a boundary may be on its other side."""
    both = (4 * torch.randn((5, 2 * k), generator=generator_of(k))).to(device, dtype)
    both[0, :] = 200.0  # beyond what e^x holds, on both sides
    both[1, :] = -200.0
    gate, up = (both[:, :k], both[:, k:]) if layout == "halves" else (both[:, ::2], both[:, 1::2])
    weights = torch.rand(5, generator=generator_of(1)).to(device)
    if name.startswith("geglu"):
        gate_of = GeGLU(layout, approximate="none" if name == "geglu erf" else "tanh")
        q, s = quantize.gated_fp8(both, gate_of, row_scale=weights)
    elif name == "limited":
        q, s = quantize.swiglu_fp8(both, limit=7.0, alpha=1.702, up_shift=1.0, layout=layout, row_scale=weights)
    else:
        q, s = quantize.swiglu_fp8(both, layout=layout, row_scale=weights)
    result = activated(name, gate, up) * weights[:, None].double()
    expected_q, expected_s = cast(result.float(), 128, "fp32")
    assert torch.allclose(s, expected_s, rtol=1e-6, atol=0)
    scaled = result / expected_s.repeat_interleave(128, 1)[:, :k].double()
    wrong = q.view(torch.uint8) != expected_q.view(torch.uint8)
    neighbours = (q.view(torch.uint8).int() - expected_q.view(torch.uint8).int()).abs()
    assert wrong.sum() <= 3
    assert (neighbours[wrong] == 1).all()
    step = (q.double() - expected_q.double()).abs()[wrong]
    # Both are equally near, but for rounding errors.
    distance = (q.double() - scaled).abs() - (expected_q.double() - scaled).abs()
    assert (distance[wrong].abs() <= 1e-5 * step + 1e-5 * scaled[wrong].abs()).all()


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_nan_and_infinities_go_through_a_gate(device) -> None:
    both = torch.ones((4, 256), dtype=torch.bfloat16, device=device)
    both[0, 3], both[1, 130] = torch.nan, torch.nan
    both[2, 3], both[3, 3] = torch.inf, -torch.inf
    for limit in (None, 7.0):
        q, s = quantize.swiglu_fp8(both, limit=limit)
        assert s.isnan().flatten().tolist() == [True, True, False, True]
        assert q[:2].float().isnan().all()
        assert s[2].isinf().item() == (limit is None)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_experts_take_what_a_gate_made(device) -> None:
    """Masked, packed exponents, and nothing of rows that do not exist."""
    generator, counts = generator_of(2), torch.tensor([5, 40], dtype=torch.int32, device=device)
    both = torch.randn((2, 48, 512), generator=generator).to(device, torch.bfloat16)
    w = torch.randn((2, 64, 256), generator=generator).to(device, torch.bfloat16)
    exists = torch.arange(48, device=device) < counts[:, None]
    both[~exists] = torch.nan
    a = quantize.swiglu_fp8(both, scales="packed", grouping=deep_gemm.Masked(counts, 8))
    d = torch.empty((2, 48, 64), dtype=torch.bfloat16, device=device)
    deep_gemm.m_grouped_fp8_gemm_nt_masked(a, quantize.fp8(w, scales="packed"), d, counts, 8)
    expected = activated("plain", both[..., :256], both[..., 256:]) @ w.double().transpose(1, 2)
    difference = d.double()[exists] - expected[exists]
    assert difference.norm() < 0.05 * expected[exists].norm()  # two roundings to three bits


def test_nothing_to_do() -> None:
    q, s = quantize.fp8(torch.empty(0, 256).bfloat16(), scales="packed")
    assert (q.shape, s.shape) == ((0, 256), (0, 1))
    q, s = quantize.fp8(torch.empty(3, 0).bfloat16())
    assert (q.shape, s.shape) == ((3, 0), (3, 0))


X = torch.ones(4, 256).bfloat16()
Q, S = torch.empty(4, 256, dtype=torch.float8_e4m3fn), torch.empty(4, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"x": X.int()}, TypeError, "x must be bfloat16, float16 or float32, got int32"),
        ({"x": X[0]}, ValueError, r"x must be a tensor \[.., M, K\]"),
        ({"x": X.T}, ValueError, r"x must have K contiguous, got strides \(1, 256\)"),
        ({"group": 64}, ValueError, "group must be 128, 32 or None, got 64"),
        ({"scales": "fp8"}, ValueError, "scales must be 'fp32', 'ue8m0' or 'packed' with group=128, got 'fp8'"),
        ({"group": None, "scales": "packed"}, ValueError, "scales must be 'fp32' or 'ue8m0' with group=None"),
        ({"out": Q}, TypeError, r"out must be 2 tensors \(q, s\)"),
        ({"out": (Q.view(torch.int8), S)}, TypeError, "q must be float8_e4m3fn, got int8"),
        ({"out": (Q, S.int())}, TypeError, "s must be float32, got int32"),
        ({"out": (Q, S), "scales": "packed"}, TypeError, r"s must be int32 \(packed exponents\), got float32"),
        (
            {"out": (Q[:, :8], S)},
            ValueError,
            r"q must have 4 rows and 256 columns for x \[4, 256\], got shape \[4, 8\]",
        ),
        ({"out": (Q, S[:, :1])}, ValueError, r"s must have 4 rows and 2 columns for x .*, got shape \[4, 1\]"),
        ({"out": (Q, S[:, :1].expand(4, 2))}, ValueError, r"s must have positive strides, got \(2, 0\)"),
        ({"out": (X.view(torch.float8_e4m3fn)[:, :256], S)}, ValueError, "q must have memory of its own, .* with x"),
        ({"grouping": deep_gemm.KGroups(None, X)}, TypeError, "grouping must be Contiguous, Masked or None"),
        ({"grouping": deep_gemm.Contiguous(torch.zeros(4))}, TypeError, "layout must be int32, got float32"),
        (
            {"grouping": deep_gemm.Contiguous(torch.zeros(5).int())},
            ValueError,
            "layout must have 4 rows as x has, got 5",
        ),
        ({"grouping": deep_gemm.Masked(torch.zeros(4).int(), 1)}, ValueError, r"x must be \[G, max_m, K\]"),
    ],
)
def test_rejections(arguments, error, message) -> None:
    given = {"x": X, **arguments}
    with pytest.raises(error, match=message):
        quantize.fp8(given.pop("x"), **given)


def test_rejections_of_gates() -> None:
    with pytest.raises(ValueError, match="layout must be 'halves', 'interleaved' or 'eights', got 'both'"):
        quantize.swiglu_fp8(X, layout="both")
    with pytest.raises(
        ValueError, match="layout must be 'halves' or 'interleaved' where it is quantised, got 'eights'"
    ):
        quantize.gated_int8(X, SwiGLU(layout="eights"))
    with pytest.raises(TypeError, match=r"gate must be a gated activation of deep_gemm.epilogue, got Identity\(\)"):
        quantize.gated_fp8(X, Identity())
    with pytest.raises(ValueError, match="limit must be None or a number above 0, got -1"):
        quantize.swiglu_fp8(X, limit=-1.0)
    with pytest.raises(ValueError, match="x must have as many gates as ups, got 255 columns"):
        quantize.swiglu_fp8(X[:, :255])
    with pytest.raises(
        ValueError, match=r"row_scale must have a number for each row of x \[4, 256\], got shape \[4, 1\]"
    ):
        quantize.swiglu_fp8(X, row_scale=torch.ones(4, 1))
    with pytest.raises(RuntimeError, match="asks for a gradient"):
        quantize.fp8(X.float().requires_grad_())


def test_compiled_programs_and_fake_tensors() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return quantize.fp8(x * 2, scales="packed")

    compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
    assert all(map(equal, compiled(X), program(X)))
    with pytest.raises(Exception, match="asks for a gradient"):
        compiled(X.float().requires_grad_())
    x = values(3, 5, 256)
    assert all(map(equal, torch.vmap(quantize.fp8)(x), quantize.fp8(x)))
    with torch._subclasses.FakeTensorMode():
        q, s = quantize.fp8(torch.empty(3, 5, 300).bfloat16())
        assert (q.shape, s.shape, s.stride()) == ((3, 5, 300), (3, 5, 3), (24, 1, 8))
