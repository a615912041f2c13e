"""Quantise kernels of INT8, FP4 and blocks of weights, and casts of utils, against torch's formulas, bit for bit."""

from __future__ import annotations

import pytest
import torch
from compiled import compile_all
from devices import ONE_OF_EACH_ARCH
from logits_inputs import generator_of
from quantize_inputs import activated, equal, values

import deep_gemm
from deep_gemm import _quantize, jit, quantize
from deep_gemm.epilogue import GeGLU
from deep_gemm.utils import (
    _on_gpu,
    per_block_cast_to_fp8,
    per_token_cast_to_fp4,
    per_token_cast_to_fp8,
    per_token_cast_to_int8,
    per_token_cast_to_nvfp4,
)

FORMS = ("fp32", "ue8m0", "packed")
X = torch.ones(4, 256).bfloat16()
Q, S = torch.empty(4, 256, dtype=torch.float8_e4m3fn), torch.empty(4, 2)


def row_cast(x: torch.Tensor, largest: float, *, rounded: bool) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.float().abs().amax(-1).clamp(min=1e-4) / torch.tensor(largest)
    quotient = x.float() / scale[..., None]
    quotient = (quotient.round() if rounded else quotient).clamp(-largest, largest)
    return quotient.to(torch.int8 if rounded else torch.float8_e4m3fn), scale


@pytest.mark.sampled(6)
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


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize(("n", "k"), [(300, 264), (1, 130), (128, 256)])
@pytest.mark.parametrize("scales", ["fp32", "ue8m0"])
def test_weights_in_blocks(device, n, k, scales) -> None:
    w = values(2, n, k, device=device)
    q, s = quantize.fp8_blocks(w, scales=scales)
    for i in range(2):
        expected = per_block_cast_to_fp8(w[i].cpu(), scales != "fp32")
        assert all(map(equal, (q[i].cpu(), s[i].cpu()), expected))


@pytest.mark.sampled(4)
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
    for whole in (None, 0.01, torch.tensor(1e-3), 1e-30, 1e30, 0.0):
        given = whole.to(device) if isinstance(whole, torch.Tensor) else whole
        expected = per_token_cast_to_nvfp4(on_cpu, whole)
        assert all(equal(t.cpu(), e) for t, e in zip(quantize.nvfp4(x, global_scale=given), expected, strict=True))


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_fp4_of_what_is_not_finite(device) -> None:
    x = values(6, 64, dtype=torch.float32, device=device)
    x[0, 3], x[1, 40], x[2, 5], x[3, 7], x[4] = torch.inf, -torch.inf, torch.nan, 3e38, 1e-42
    for whole in (0.01, 1e-30):
        expected = per_token_cast_to_nvfp4(x.cpu(), whole)
        assert all(equal(t.cpu(), e) for t, e in zip(quantize.nvfp4(x, global_scale=whole), expected, strict=True))
    expected = per_token_cast_to_fp4(x.cpu(), True, 32, True)
    assert all(equal(t.cpu(), e) for t, e in zip(quantize.mxfp4(x), expected, strict=True))


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


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("symmetric", [True, False])
def test_gated_integers_are_the_nearest(device, symmetric) -> None:
    both = (4 * torch.randn((5, 600), generator=generator_of(7))).to(device, torch.bfloat16)
    for name, results in (
        ("plain", quantize.swiglu_int8(both, symmetric=symmetric)),
        ("geglu", quantize.gated_int8(both, GeGLU(), symmetric=symmetric)),
        ("geglu erf", quantize.gated_int8(both, GeGLU(approximate="none"), symmetric=symmetric)),
    ):
        expected = per_token_cast_to_int8(activated(name, both[:, :300], both[:, 300:]).float().cpu(), symmetric)
        assert torch.allclose(results[1].cpu(), expected[1], rtol=1e-6, atol=0)
        difference = (results[0].cpu().int() - expected[0].int()).abs()
        assert difference.max() <= 1
        assert difference.sum() <= 2
        if not symmetric:
            assert torch.equal(results[2].cpu(), expected[2])


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_utils_take_the_kernels_of_a_gpu(device, monkeypatch) -> None:
    """Here of any device: the same results, lying as torch makes them."""
    x = values(130, 320, device=device)
    casts = [
        *(
            lambda x, f=f, g=g: per_token_cast_to_fp8(x, f != "fp32", g, f == "packed")
            for f in FORMS
            for g in (32, 128)
        ),
        *(lambda x, f=f: per_token_cast_to_fp4(x, f != "fp32", 128, f == "packed") for f in FORMS),
        lambda x: per_block_cast_to_fp8(x, use_ue8m0=True),
        lambda x: per_token_cast_to_nvfp4(x),
        lambda x: per_token_cast_to_int8(x),
        lambda x: per_token_cast_to_int8(x.view(2, 5, 13, 320), symmetric=False),
        lambda x: per_token_cast_to_int8(x[7]),
    ]
    launched = []
    original = _quantize.quantized
    for index, cast_of in enumerate(casts):
        expected = cast_of(x.cpu())
        with monkeypatch.context() as patch:
            patch.setattr(_on_gpu, "serves", _on_gpu.is_plain)
            patch.setattr(_quantize, "quantized", lambda *a, **k: launched.append(index) or original(*a, **k))  # noqa: B023
            results = cast_of(x)
        assert launched[-1:] == [index]
        for result, wanted in zip(results, expected, strict=True):
            assert equal(result.cpu(), wanted)
            assert result.stride() == wanted.stride()


def test_utils_leave_to_torch_what_kernels_do_not_serve(monkeypatch) -> None:
    x = torch.randn(4, 256)
    monkeypatch.setattr(_on_gpu, "serves", _on_gpu.is_plain)
    assert per_token_cast_to_fp8(x.clone().requires_grad_(), False)[1].requires_grad
    q, s = per_token_cast_to_fp8(x.T.contiguous().T, True, 64)
    assert (q.shape, s.shape) == ((4, 256), (4, 4))
    with torch._subclasses.FakeTensorMode() as mode:
        assert per_token_cast_to_fp8(mode.from_tensor(x), True)[0].shape == (4, 256)


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


def test_kernels_are_recorded_without_a_device() -> None:
    with jit.record("sm_90a") as recording:
        quantize.fp8(jit.placeholder(4096, 7168, dtype=torch.bfloat16), scales="packed")
        quantize.swiglu_int8(jit.placeholder(64, 4096, dtype=torch.bfloat16))
    assert [kernel.name for kernel in recording.kernels] == ["quantize_groups_e4m3_of_128", "swiglu_quantize_rows_s8"]
    assert ".rows = 8" in recording.kernels[0].text


CONFIGS = {
    "groups": [
        ".rows = 8",
        ".input = Element::fp32, .rows = 8, .scales = ScaleForm::exponents, .layout = RowLayout::psum",
        ".rows = 4, .gate = GateKind::geglu_erf, .row_scale = true",
        ".rows = 4, .gate = GateKind::swiglu, .gate_numbers = true, .interleaved = true, .row_scale = true, "
        ".layout = RowLayout::masked",
        ".output = Element::e2m1r, .group = 16, .rows = 8, .scales = ScaleForm::e4m3",
    ],
    "rows": [
        ".output = Element::s8, .share = ScaleShare::row, .threads = 1024, .gate = GateKind::geglu_tanh, .zeros = true",
        ".output = Element::s8, .share = ScaleShare::row, .threads = 1024, .gate = GateKind::geglu_erf, .zeros = true",
    ],
    "blocks": [".input = Element::fp32, .share = ScaleShare::block, .threads = kBlockThreads"],
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_compilers_spill_nothing_and_say_nothing(target) -> None:
    texts = [
        f"#include <deep_gemm/kernels/quantize_{kernel}.cuh>\nusing namespace deep_gemm;\n"
        f"constexpr QuantizeConfig kConfig{{{fields}}};\n"
        f'extern "C" __global__ void __launch_bounds__(kConfig.threads)\nkernel_{index}'
        f"(const __grid_constant__ QuantizeParams params) {{ run_quantize_{kernel}<kConfig>(params); }}\n"
        for index, (kernel, fields) in enumerate(
            (kernel, fields) for kernel, several in CONFIGS.items() for fields in several
        )
    ]
    for kernel in compile_all(texts, target):
        assert kernel.is_clean, kernel
