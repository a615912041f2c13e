"""Quantise kernels against torch's formulas of the same numbers, bit for bit."""

from __future__ import annotations

import pytest
import torch
from devices import ONE_OF_EACH_ARCH
from logits_inputs import generator_of

import deep_gemm
from deep_gemm import quantize
from deep_gemm.utils import (
    per_block_cast_to_fp8,
    per_token_cast_to_fp4,
    per_token_cast_to_fp8,
    per_token_cast_to_int8,
    per_token_cast_to_nvfp4,
)

FORMS = ("fp32", "ue8m0", "packed")
UNTOUCHED = 0x55


def values(*shape: int, dtype: torch.dtype = torch.bfloat16, device: torch.device | str = "cpu") -> torch.Tensor:
    """Rows of very different magnitudes, with zeros of both signs."""
    generator = generator_of(sum(shape))
    x = torch.randn(shape, generator=generator) * torch.exp(4 * torch.randn((*shape[:-1], 1), generator=generator))
    x[..., ::7], x[..., 3::11] = 0.0, -0.0
    return x.to(device, dtype)


def cast(x: torch.Tensor, group: int, scales: str) -> tuple[torch.Tensor, torch.Tensor]:
    q, s = per_token_cast_to_fp8(x.cpu(), scales != "fp32", group, scales == "packed")
    return q.to(x.device), s.to(x.device)


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same bits; but a NaN is as good as any other."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    integers = torch.uint8 if a.element_size() == 1 else torch.int32
    nan = a.float().isnan() & b.float().isnan()
    return bool(((a.contiguous().view(integers) == b.contiguous().view(integers)) | nan).all())


@pytest.mark.sampled(24)
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
def test_tall_tiles(device) -> None:
    """Enough rows that a warp has several, the last ones of which do not exist."""
    x = values(2117, 512, device=device)
    for group, scales in ((128, "fp32"), (32, "packed")):
        assert all(map(equal, quantize.fp8(x, group=group, scales=scales), cast(x, group, scales)))


@pytest.mark.sampled(7)
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


@pytest.mark.sampled(7)
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


def row_cast(x: torch.Tensor, largest: float, *, rounded: bool) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.float().abs().amax(-1).clamp(min=1e-4) / torch.tensor(largest)
    quotient = x.float() / scale[..., None]
    quotient = (quotient.round() if rounded else quotient).clamp(-largest, largest)
    return quotient.to(torch.int8 if rounded else torch.float8_e4m3fn), scale


@pytest.mark.sampled(10)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("m", "k"), [(1, 7168), (5, 128), (3, 131), (2, 40000), (300, 1), (2, 0)])
def test_a_scale_for_each_row(device, dtype, m, k) -> None:
    """Of integers with zero points and sums too. 40000 is more than a block keeps in registers."""
    x = values(m, k, dtype=dtype, device=device)
    on_cpu = x.cpu()
    for symmetric in (True, False):
        *results, sums = (t.cpu() for t in quantize.int8(x, symmetric=symmetric, sums=True))
        assert all(map(equal, results, per_token_cast_to_int8(on_cpu, symmetric)))
        assert torch.equal(sums, results[0].sum(1, dtype=torch.int32))
    q, s = quantize.fp8(x, group=None)
    padded = torch.nn.functional.pad(on_cpu, (0, 1))  # rows of no K have a largest number, too
    expected_q, expected_s = row_cast(padded, 448.0, rounded=False)
    assert equal(q.cpu(), expected_q[:, :k])
    assert equal(s.cpu(), expected_s)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize(("m", "k"), [(7, 704), (3, 130)])
def test_integers_with_a_scale_for_128_of_k(device, m, k) -> None:
    x = values(m, k, device=device)
    q, s = quantize.int8(x, group=128)
    groups = torch.nn.functional.pad(x.cpu(), (0, -k % 128)).unflatten(1, (-1, 128))
    expected_q, expected_s = row_cast(groups, 127.0, rounded=True)
    assert equal(q.cpu(), expected_q.flatten(1)[:, :k])
    assert equal(s.cpu(), expected_s)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize(("n", "k"), [(300, 264), (1, 130), (128, 256)])
@pytest.mark.parametrize("scales", ["fp32", "ue8m0"])
def test_weights_in_blocks(device, n, k, scales) -> None:
    w = values(2, n, k, device=device)
    q, s = quantize.fp8_blocks(w, scales=scales)
    for i in range(2):
        expected = per_block_cast_to_fp8(w[i].cpu(), scales != "fp32")
        assert all(map(equal, (q[i].cpu(), s[i].cpu()), expected))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize(("m", "k"), [(7, 704), (130, 66), (3, 2)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_fp4_is_what_utils_make(device, m, k, dtype) -> None:
    x = values(m, k, dtype=dtype, device=device)
    numbers = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 0.2, 5.1])  # boundaries, of a scale of 1
    x[-1] = (numbers * torch.tensor([[1], [-1]])).flatten().repeat(k)[:k].to(dtype)
    on_cpu = x.cpu()
    for scales in ("packed", "ue8m0"):
        expected = per_token_cast_to_fp4(on_cpu, True, 32, scales == "packed")
        assert all(equal(t.cpu(), e) for t, e in zip(quantize.mxfp4(x, scales=scales), expected, strict=True))
    for whole in (None, 0.01, torch.tensor(1e-3)):
        given = whole.to(device) if isinstance(whole, torch.Tensor) else whole
        expected = per_token_cast_to_nvfp4(on_cpu, whole)
        assert all(equal(t.cpu(), e) for t, e in zip(quantize.nvfp4(x, global_scale=given), expected, strict=True))


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_rows_of_integers_that_do_not_exist_are_left_alone(device) -> None:
    counts = torch.tensor([3, 0, 8], dtype=torch.int32, device=device)
    x = values(3, 8, 200, device=device)
    exists = torch.arange(8, device=device) < counts[:, None]
    x[~exists] = torch.nan
    out = [torch.full(shape, 7, dtype=dtype, device=device) for shape, dtype in (
        ((3, 8, 200), torch.int8), ((3, 8), torch.float32), ((3, 8), torch.int32), ((3, 8), torch.int32))]  # fmt: skip
    quantize.int8(x, symmetric=False, sums=True, out=out, grouping=deep_gemm.Masked(counts, 2))
    expected = [t.to(device) for t in per_token_cast_to_int8(x.nan_to_num().cpu(), symmetric=False)]
    for tensor, wanted in zip(out, [*expected, expected[0].sum(-1, dtype=torch.int32)], strict=True):
        assert torch.equal(tensor[exists], wanted[exists])
        assert (tensor[~exists] == 7).all()


def activated(name: str, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """In FP64."""
    gate, up = gate.double(), up.double()
    if name == "geglu":
        return torch.nn.functional.gelu(gate, approximate="tanh") * up
    if name == "limited":
        gate, up = gate.clamp(max=7), up.clamp(-7, 7)
        return gate * torch.sigmoid(1.702 * gate) * (up + 1)
    return gate * torch.sigmoid(gate) * up


@pytest.mark.sampled(16)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("k", [256, 200, 131])
@pytest.mark.parametrize("layout", ["halves", "interleaved"])
@pytest.mark.parametrize("name", ["plain", "limited", "geglu"])
def test_gated_codes_are_the_nearest(device, dtype, k, layout, name) -> None:
    """Scales within a few ulp; codes next to a boundary may be on its other side."""
    both = (4 * torch.randn((5, 2 * k), generator=generator_of(k))).to(device, dtype)
    both[0, :] = 200.0  # beyond what e^x holds, on both sides
    both[1, :] = -200.0
    gate, up = (both[:, :k], both[:, k:]) if layout == "halves" else (both[:, ::2], both[:, 1::2])
    weights = torch.rand(5, generator=generator_of(1)).to(device)
    if name == "geglu":
        q, s = quantize.geglu_fp8(both, layout=layout, row_scale=weights)
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
@pytest.mark.parametrize("symmetric", [True, False])
def test_gated_integers_are_the_nearest(device, symmetric) -> None:
    both = (4 * torch.randn((5, 600), generator=generator_of(7))).to(device, torch.bfloat16)
    for name, results in (
        ("plain", quantize.swiglu_int8(both, symmetric=symmetric)),
        ("geglu", quantize.geglu_int8(both, symmetric=symmetric)),
    ):
        expected = per_token_cast_to_int8(activated(name, both[:, :300], both[:, 300:]).float().cpu(), symmetric)
        assert torch.allclose(results[1].cpu(), expected[1], rtol=1e-6, atol=0)
        difference = (results[0].cpu().int() - expected[0].int()).abs()
        assert difference.max() <= 1
        assert difference.sum() <= 2
        if not symmetric:
            assert torch.equal(results[2].cpu(), expected[2])


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


def test_rejections_of_integers_and_fp4() -> None:
    with pytest.raises(ValueError, match="symmetric must be True where less than a row shares a scale, got group=128"):
        quantize.int8(X, group=128, symmetric=False)
    with pytest.raises(ValueError, match="sums must be False where less than a row shares a scale"):
        quantize.int8(X, group=128, sums=True)
    with pytest.raises(TypeError, match=r"out must be 3 tensors \(q, s, zeros\)"):
        quantize.int8(X, symmetric=False, out=(Q, S))
    with pytest.raises(ValueError, match="x must have an even number of columns, two to a byte, got 255"):
        quantize.mxfp4(X[:, :255])
    with pytest.raises(ValueError, match="scales must be 'ue8m0' or 'packed' with group=32, got 'fp32'"):
        quantize.mxfp4(X, scales="fp32")
    with pytest.raises(ValueError, match=r"global_scale must be one number, got shape \[2\]"):
        quantize.nvfp4(X, global_scale=torch.ones(2))
    zeros = torch.empty(8, dtype=torch.int32)[::2]
    with pytest.raises(ValueError, match=r"zeros must have no gaps, got strides \(2\)"):
        quantize.int8(X, symmetric=False, out=(Q.view(torch.int8), S[:, 0], zeros))


def test_rejections_of_gates() -> None:
    with pytest.raises(ValueError, match="layout must be 'halves' or 'interleaved', got 'both'"):
        quantize.swiglu_fp8(X, layout="both")
    with pytest.raises(ValueError, match="limit must be None or positive, got -1"):
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
    with torch._subclasses.FakeTensorMode():
        q, s = quantize.fp8(torch.empty(3, 5, 300).bfloat16())
        assert (q.shape, s.shape, s.stride()) == ((3, 5, 300), (3, 5, 3), (24, 1, 8))
