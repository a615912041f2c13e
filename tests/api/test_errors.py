"""Calls that cannot be right are refused with a message that says what was wanted and what came; nothing is written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from devices import FEW
from fake_driver import launches, running_backwards
from inputs import GuardedOutput, Operand, misplaced, random_blocks, random_rows

import deep_gemm
from deep_gemm._extension import C

M, N, K = 40, 136, 256
FP8 = torch.float8_e4m3fn


@dataclass
class Call:
    """A right call, for a test to spoil one thing of."""

    a: Operand
    b: Operand
    d: torch.Tensor
    c: torch.Tensor | None = None
    more: dict = field(default_factory=dict)


def fp8(*shape: int, device: torch.device) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float32, device=device).to(FP8)


def replace_a(call: Call, data: torch.Tensor | None = None, scales: torch.Tensor | None = None) -> None:
    call.a = Operand(call.a.data if data is None else data, call.a.scales if scales is None else scales)


def replace_b(call: Call, data: torch.Tensor | None = None, scales: torch.Tensor | None = None) -> None:
    call.b = Operand(call.b.data if data is None else data, call.b.scales if scales is None else scales)


def set_d(call: Call, d: torch.Tensor) -> None:
    call.d = d


def set_c(call: Call, c: torch.Tensor) -> None:
    call.c = c


def use_k(call: Call, k: int) -> None:
    device = call.d.device
    replace_a(call, fp8(M, k, device=device), torch.ones((M, -(-k // 128)), device=device))
    replace_b(call, fp8(N, k, device=device), torch.ones((2, -(-k // 128)), device=device))


# What is spoiled, the exception, and what its message must say.
REFUSALS: dict[str, tuple[Callable[[Call], None], type[Exception], str]] = {
    # dtype
    "a is bf16": (lambda x: replace_a(x, x.a.data.bfloat16()), TypeError, r"a must be float8_e4m3fn, got bfloat16"),
    "a is e5m2": (
        lambda x: replace_a(x, x.a.data.float().to(torch.float8_e5m2)),
        TypeError,
        r"a must be float8_e4m3fn, got float8_e5m2",
    ),
    **{
        f"a is {name}": (
            lambda x, name=name: replace_a(x, torch.empty((M, K), dtype=getattr(torch, name), device=x.d.device)),
            TypeError,
            rf"a must be float8_e4m3fn, got {name}$",
        )
        for name in (
            "bool",
            "complex64",
            "uint8",
            "float8_e4m3fnuz",
            "float8_e5m2fnuz",
            "float8_e8m0fnu",
            "float4_e2m1fn_x2",
        )
    },
    "b is fp32": (lambda x: replace_b(x, x.b.data.float()), TypeError, r"b must be float8_e4m3fn, got float32"),
    "d is fp64": (
        lambda x: set_d(x, x.d.double()),
        TypeError,
        r"d must be bfloat16, float32 or float16, got float64",
    ),
    "c is fp32": (
        lambda x: set_c(x, torch.zeros((M, N), device=x.d.device)),
        TypeError,
        r"c must have d's dtype bfloat16, got float32",
    ),
    "scales of a are fp64": (
        lambda x: replace_a(x, scales=x.a.scales.double()),
        TypeError,
        r"a's scales must be float32, float8_e8m0fnu or int32 \(packed UE8M0 exponents\), got float64",
    ),
    "scales of a are words of too little K": (
        lambda x: replace_a(x, scales=torch.zeros((M, 2), dtype=torch.int32, device=x.d.device)),
        ValueError,
        r"a's scales must be \[.*1\] \(one int32 of 4 exponents per row and 512 of K of a\)",
    ),
    "scales of b are bf16": (
        lambda x: replace_b(x, scales=x.b.scales.bfloat16()),
        TypeError,
        r"b's scales must be float32, float8_e8m0fnu or int32 \(packed UE8M0 exponents\), got bfloat16",
    ),
    # shape
    "a has one dimension": (
        lambda x: replace_a(x, x.a.data[0]),
        ValueError,
        r"a must be \[M, K\], got shape \[256\]",
    ),
    "b has three dimensions": (
        lambda x: replace_b(x, x.b.data[None]),
        ValueError,
        r"b must be \[N, K\], got shape \[1, 136, 256\]",
    ),
    "k differs": (
        lambda x: replace_b(x, fp8(N, 128, device=x.d.device), x.b.scales[:, :1]),
        ValueError,
        r"b has K=128 but a has K=256",
    ),
    "d has too few rows": (
        lambda x: set_d(x, x.d[:-1]),
        ValueError,
        r"d must be \[M, N\] = \[40, 136\], got .*\[39, 136\]",
    ),
    "d is transposed": (
        lambda x: set_d(x, x.d.new_empty((N, M))),
        ValueError,
        r"d must be \[M, N\] = \[40, 136\], got .*\[136, 40\]",
    ),
    "c has another shape": (
        lambda x: set_c(x, x.d.new_zeros((M, N + 8))),
        ValueError,
        r"c must have d's shape \[40, 136\], got \[40, 144\]",
    ),
    "scales of a for fewer rows": (
        lambda x: replace_a(x, scales=x.a.scales[:-1]),
        ValueError,
        r"a's scales must be \[40, 2\].*got shape \[39, 2\]",
    ),
    "scales of a per block": (
        lambda x: replace_a(x, scales=x.a.scales[:1]),
        ValueError,
        r"a's scales must be \[40, 2\].*one float32 per row and 128 of K.*\[1, 2\]",
    ),
    "scales of b per row": (
        lambda x: replace_b(x, scales=torch.ones((N, 2), device=x.d.device)),
        ValueError,
        r"b's scales must be \[2, 2\].*one float32 per 128 rows and 128 of K.*\[136, 2\]",
    ),
    "scales of b for more of k": (
        lambda x: replace_b(x, scales=torch.ones((2, 3), device=x.d.device)),
        ValueError,
        r"b's scales must be \[2, 2\].*\[2, 3\]",
    ),
    # K
    "k is no multiple of 16": (
        lambda x: use_k(x, 200 + 4),
        ValueError,
        r"K must be a multiple of 16, got 204.*pad.*K=208",
    ),
    "k is 8": (lambda x: use_k(x, 8), ValueError, r"K must be a multiple of 16, got 8.*pad.*K=16"),
    # strides
    "a has gaps along K and along M": (
        lambda x: replace_a(x, fp8(M, 2 * K, device=x.d.device)[:, ::2]),
        ValueError,
        r"a must have K or M contiguous, got strides along M and K of \(512, 2\)",
    ),
    "b has gaps along K and along N": (
        lambda x: replace_b(x, fp8(K, 2 * N, device=x.d.device)[:, ::2].T),
        ValueError,
        r"b must have K or N contiguous, got strides along N and K of \(2, 272\)",
    ),
    "a is MN-major and its lines overlap": (
        lambda x: replace_a(x, fp8(2 * M, 1, device=x.d.device).view(-1).as_strided((M, K), (1, 0))),
        ValueError,
        r"a's lines along M overlap: they are 0 elements apart, less than M=40",
    ),
    "a's rows overlap": (
        lambda x: replace_a(x, x.a.data.view(torch.uint8)[:1].expand(M, K).view(FP8)),
        ValueError,
        r"a's rows overlap: row stride 0",
    ),
    "d is column-major": (
        lambda x: set_d(x, x.d.new_empty((N, M)).T),
        ValueError,
        r"d must have N contiguous, got strides \(1, 40\)",
    ),
    "d's rows overlap": (lambda x: set_d(x, x.d[:1].expand(M, N)), ValueError, r"d's rows overlap: row stride 0"),
    "c is column-major": (
        lambda x: set_c(x, x.d.new_zeros((N, M)).T),
        ValueError,
        r"c must have N contiguous, got strides \(1, 40\)",
    ),
    "m of 2^31": (
        lambda x: (
            replace_a(x, x.a.data.view(torch.uint8)[:1].expand(2**31, K).view(FP8)),
            set_d(x, x.d[:1].expand(2**31, N)),
        ),
        ValueError,
        r"M is 2147483648, which does not fit 32 bits",
    ),
    # device
    "b is on the meta device": (
        lambda x: replace_b(x, torch.empty((N, K), dtype=FP8, device="meta")),
        Exception,
        r".",
    ),
    # recipes and names
    "recipe with 64 of k": (lambda x: x.more.update(recipe=(1, 128, 64)), ValueError, r"along K must be 128.*says 64"),
    "recipe with 64 rows": (lambda x: x.more.update(recipe=(1, 64, 128)), ValueError, r"of b must be 1 or 128.*got 64"),
    "recipe for blocks of a": (
        lambda x: (x.more.update(recipe=(128, 128, 128)), replace_a(x, scales=x.a.scales[:1])),
        ValueError,
        r"a's scales must be one float32 per row and 128 of K, not one float32 per 128 rows",
    ),
    "recipe twice": (
        lambda x: x.more.update(recipe=(1, 128, 128), recipe_a=(1, 128), recipe_b=(128, 128)),
        ValueError,
        r"either recipe or recipe_a and recipe_b",
    ),
    "half a recipe": (lambda x: x.more.update(recipe_a=(1, 128)), ValueError, r"give both or none"),
    "unknown dimension": (lambda x: x.more.update(compiled_dims="nx"), ValueError, r"compiled_dims.*'nx'"),
}


def right_call(device: torch.device) -> tuple[Call, GuardedOutput]:
    out = GuardedOutput((M, N), torch.bfloat16, device)
    return Call(random_rows((M, K), device, 0), random_blocks((N, K), device, 1), out.tensor), out


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("name", REFUSALS)
def test_refused(device, name) -> None:
    spoil, exception, message = REFUSALS[name]
    call, out = right_call(device)
    spoil(call)
    with pytest.raises(exception, match=message):
        deep_gemm.fp8_gemm_nt(call.a, call.b, call.d, c=call.c, **call.more)
    if device.type == "cuda":
        torch.cuda.synchronize()
    out.assert_untouched()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x: set_d(x, misplaced(torch.bfloat16, (M, N))), r"d must be aligned to its element size"),
        (
            lambda x: replace_b(x, scales=running_backwards(x.b.scales)),
            r"b's scales must not have negative strides, got \(-2, 1\)",
        ),
    ],
    ids=["d starts between elements", "scales run backwards"],
)
def test_tensors_that_only_other_libraries_make_are_refused(spoil, message) -> None:
    call, out = right_call(torch.device("cpu"))
    spoil(call)
    with pytest.raises(ValueError, match=message):
        deep_gemm.fp8_gemm_nt(call.a, call.b, call.d)
    out.assert_untouched()


def fields_of(call) -> dict[str, object]:
    (a, a_scales), (b, b_scales) = call.a, call.b
    return {"a": a, "a_scales": a_scales, "b": b, "b_scales": b_scales, "d": call.d, "layout": 6}


def test_a_short_recipe_is_refused_by_the_runtime_too() -> None:
    call, out = right_call(torch.device("cpu"))
    with pytest.raises(ValueError, match="recipe must have 3 numbers, or 4 where each operand has its own, got 2"):
        C.product(**fields_of(call), recipe=(1, 128))
    out.assert_untouched()


@pytest.mark.parametrize(
    ("scaled_a", "scaled_b", "message"),
    [
        (True, False, "a and b must both have scales, or neither of them"),
        (False, True, "a and b must both have scales, or neither of them"),
        (False, False, "a must be bfloat16 or float16, got float8_e4m3fn"),
    ],
)
def test_operands_without_their_scales_are_refused_by_the_runtime(scaled_a, scaled_b, message) -> None:
    call, out = right_call(torch.device("cpu"))
    fields = fields_of(call)
    if not scaled_a:
        fields["a_scales"] = None
    if not scaled_b:
        fields["b_scales"] = None
    with pytest.raises(TypeError, match=message):
        C.product(**fields)
    out.assert_untouched()


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_wrong_devices_are_refused() -> None:
    code = """
import fake_driver
def fp8(*shape): return torch.zeros(*shape).to(torch.float8_e4m3fn)
a, sfa, b, sfb, d = fp8(64, 256), torch.ones(64, 2), fp8(128, 256), torch.ones(1, 2), torch.zeros(64, 128).bfloat16()
def refused(wanted, *arguments):
    try:
        deep_gemm.fp8_gemm_nt(*arguments)
    except (TypeError, ValueError) as error:
        assert str(error) == wanted, error
    else:
        raise AssertionError("not refused")
refused("b is on cuda:1 but a is on cpu", (a, sfa), (pose_as_cuda(b, 1), sfb), d)
refused("d is on cuda:0 but a is on cpu", (a, sfa), (b, sfb), pose_as_cuda(d, 0))
fake_driver.CUDA = 8
refused("a must be on a CPU or CUDA device, got DLPack device type 8", (pose_as_cuda(a), sfa), (b, sfb), d)
"""
    assert launches(code) == []


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_the_call_that_these_spoil_is_right(device) -> None:
    call, out = right_call(device)
    deep_gemm.fp8_gemm_nt(call.a, call.b, call.d)
    out.check()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["b", "scales of a", "d", "c"])
def test_tensors_on_different_devices(cuda, name) -> None:
    call, out = right_call(cuda)
    if name == "b":
        replace_b(call, call.b.data.cpu())
    elif name == "scales of a":
        replace_a(call, scales=call.a.scales.cpu())
    elif name == "d":
        call.d = call.d.cpu()
    else:
        call.c = torch.zeros((M, N), dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"is on cpu but a is on cuda:"):
        deep_gemm.fp8_gemm_nt(call.a, call.b, call.d, c=call.c)
    torch.cuda.synchronize()
    out.assert_untouched()


def test_a_single_row_may_carry_any_stride() -> None:
    """Nothing follows it, so the stride is never used."""
    a = Operand(fp8(1, K, device=torch.device("cpu")).as_strided((1, K), (7, 1)), torch.ones((1, 2)))
    b = random_blocks((N, K), "cpu", 1)
    d = torch.full((1, N), float("nan"))
    deep_gemm.fp8_gemm_nt(a, b, d)
    assert (d == 0).all()
