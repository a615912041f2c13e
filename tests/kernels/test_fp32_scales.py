"""`disable_ue8m0_cast=True` and `set_fp32_scales(True)`: FP32 scales are multiplied as they are on every architecture,
SM100 too, whatever they are. Which kernel that takes is the caller's word, never that of their values.

What the kernels compute is in test_matrix.py; how calls behave, wherever tests go over EACH_ARCH.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import fresh
import pytest
import torch
from devices import EACH_ARCH, FEW, devices_of
from inputs import FP8, Operand

import deep_gemm

M, N, K = 40, 136, 640
OF_A, OF_B = 3.0, 5.0
SM100 = pytest.mark.parametrize("device", devices_of("sm100", "any"), indirect=True)
E8M0 = torch.float8_e8m0fnu


@pytest.fixture
def fp32_scales(device: torch.device) -> Iterator[None]:
    before = deep_gemm.get_fp32_scales(device)
    deep_gemm.set_fp32_scales(True, device)
    yield
    deep_gemm.set_fp32_scales(before, device)


def operand(device: torch.device, rows: int, scale: float, block: int = 1, groups: tuple[int, ...] = ()) -> Operand:
    """Ones with equal scales, one for so many rows."""
    scales = torch.full((*groups, -(-rows // block), K // 128), scale, device=device)
    return Operand(torch.ones((*groups, rows, K), device=device).to(FP8), scales)


def blocks_of_b(device: torch.device, *groups: int) -> Operand:
    return operand(device, N, OF_B, 128, groups)


def empty(device: torch.device, *shape: int) -> torch.Tensor:
    return torch.full(shape, torch.nan, device=device)


def dense(name: str) -> Callable:
    def call(device, **more) -> torch.Tensor:
        a, b, d = operand(device, M, OF_A), blocks_of_b(device), empty(device, M, N)
        a = Operand(a.data.T, a.scales.T) if name[0] == "t" else a
        b = Operand(b.data.T, b.scales.T) if name[1] == "n" else b
        getattr(deep_gemm, f"fp8_gemm_{name}")(a, b, d, **more)
        return d

    return call


def in_heads(device, **more) -> torch.Tensor:
    d = empty(device, M, 2 * N)
    deep_gemm.fp8_gemm_nt_skip_head_mid(operand(device, M, OF_A), blocks_of_b(device), d, (68, 68, 0), **more)
    return d.view(M, -1, 136)[:, :, :68]


def contiguous(name: str, psum: bool) -> Callable:
    def call(device, **more) -> torch.Tensor:
        a, b, d = operand(device, 128, OF_A), blocks_of_b(device, 2), empty(device, 128, N)
        b = Operand(b.data.mT, b.scales.mT) if name == "nn" else b
        layout = torch.tensor([128, 128] if psum else [0] * 128, dtype=torch.int32, device=device)
        function = getattr(deep_gemm, f"m_grouped_fp8_gemm_{name}_contiguous")
        function(a, b, d, layout, use_psum_layout=psum, **more)
        return d

    return call


def masked(device, **more) -> torch.Tensor:
    d, counts = empty(device, 2, M, N), torch.full((2,), M, dtype=torch.int32, device=device)
    a, b = operand(device, M, OF_A, groups=(2,)), blocks_of_b(device, 2)
    deep_gemm.m_grouped_fp8_gemm_nt_masked(a, b, d, counts, 8, **more)
    return d


def operator(device, **more) -> torch.Tensor:
    d = empty(device, M, N)
    torch.ops.deep_gemm.fp8_gemm_nt(*operand(device, M, OF_A), *blocks_of_b(device), d, **more)
    return d


def k_groups(device) -> torch.Tensor:
    d = empty(device, 2, M, N)
    a, b = operand(device, M, OF_A), operand(device, N, OF_B)
    sizes = [256, K - 256]
    deep_gemm.k_grouped_fp8_gemm_tn_contiguous(
        Operand(a.data.T.contiguous(), a.scales.T),
        Operand(b.data.T.contiguous(), b.scales.T),
        d,
        sizes,
        torch.tensor(sizes, dtype=torch.int32, device=device),
    )
    return d.sum(0)


def einsum(device) -> torch.Tensor:
    d = empty(device, M, 2, N)
    tokens = operand(device, M, OF_A, groups=(2,))
    deep_gemm.fp8_einsum("bhr,hdr->bhd", tuple(x.transpose(0, 1) for x in tokens), blocks_of_b(device, 2), d)
    return d


WITH_ARGUMENT = {
    **{f"dense {name}": dense(name) for name in ("nt", "nn", "tn", "tt")},
    "in heads": in_heads,
    "contiguous": contiguous("nt", False),
    "contiguous nn": contiguous("nn", False),
    "psum": contiguous("nt", True),
    "masked": masked,
    "operator": operator,
}
WITHOUT = {"K groups": k_groups, "einsum": einsum}


def check(d: torch.Tensor) -> None:
    assert (d == K * OF_A * OF_B).all()


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("call", WITH_ARGUMENT)
def test_calls_that_say_so_multiply_fp32_scales_as_they_are(device, call) -> None:
    check(WITH_ARGUMENT[call](device, disable_ue8m0_cast=True))


@SM100
@pytest.mark.parametrize("call", [*WITH_ARGUMENT, *WITHOUT])
def test_so_do_all_calls_after_set_fp32_scales(device, fp32_scales, call) -> None:
    check((WITH_ARGUMENT | WITHOUT)[call](device))


@SM100
@pytest.mark.parametrize("call", [*WITH_ARGUMENT, *WITHOUT])
def test_others_want_powers_of_two(device, call) -> None:
    assert device.type == "cpu" or not deep_gemm.get_fp32_scales(device)
    if device.type == "cuda":
        assert (WITH_ARGUMENT | WITHOUT)[call](device).isnan().all()
        return
    with pytest.raises(ValueError, match=r"must be powers of two on Blackwell.* is (3|5): .*disable_ue8m0_cast=True"):
        (WITH_ARGUMENT | WITHOUT)[call](device)


@SM100
@pytest.mark.parametrize("scale", [0.0, -1.5, 2.0**-140, 1e30, torch.inf, torch.nan])
def test_any_number_is_a_scale(device, scale) -> None:
    """Those that no exponent of UE8M0 stands for among them."""
    a, b, d = operand(device, M, 1.0), blocks_of_b(device), empty(device, M, N)
    a.scales[7] = scale
    deep_gemm.fp8_gemm_nt(a, b, d, disable_ue8m0_cast=True)
    expected = torch.full_like(d, K * OF_B)
    expected[7] = sum([128 * torch.tensor(scale) * OF_B for _ in range(K // 128)])
    torch.testing.assert_close(d, expected, rtol=1e-6, atol=0, equal_nan=True)


@SM100
def test_e8m0_scales_become_fp32(device) -> None:
    a, b, d = operand(device, M, 2.0), blocks_of_b(device), empty(device, M, N)
    deep_gemm.fp8_gemm_nt(Operand(a.data, a.scales.to(E8M0)), b, d, disable_ue8m0_cast=True)
    assert (d == K * 2 * OF_B).all()


@SM100
def test_words_of_exponents_are_multiplied_whatever_is_set(device, fp32_scales) -> None:
    """They are no FP32 scales. Those of the other operand must then be powers of two, too."""
    a, b, d = operand(device, M, 4.0), operand(device, N, 2.0), empty(device, M, N)
    words = deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(b.scales)
    deep_gemm.fp8_gemm_nt(a, Operand(b.data, words), d)
    assert (d == K * 4 * 2).all()


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_the_setting_changes_nothing_on_other_gpus(device, fp32_scales) -> None:
    for call in (*WITH_ARGUMENT.values(), *WITHOUT.values()):
        check(call(device))


FROM_THE_ENVIRONMENT = """
import deep_gemm
result = [deep_gemm.get_fp32_scales("cpu")]
deep_gemm.set_fp32_scales(False)
result.append(deep_gemm.get_fp32_scales("cpu"))
"""


@pytest.mark.parametrize("value", ["0", "1"])
def test_the_environment_says_what_holds_at_first(value) -> None:
    assert fresh.check(FROM_THE_ENVIRONMENT, DG_FP32_SCALES=value).result == [value == "1", False]
