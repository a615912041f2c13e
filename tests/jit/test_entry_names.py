"""Kernels are named for what runs: profilers show these names, and the API's public scripts look for parts of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

import pytest
import torch
from bf16_inputs import operands
from field_calls import explain, kernel_of
from grouped_inputs import contiguous, masked
from inputs import random_blocks, random_rows

import deep_gemm
from deep_gemm._extension import C
from deep_gemm._targets import HOPPER_SMS
from deep_gemm.weights.packings import ELEMENT_NUMBERS

CPU = torch.device("cpu")


def names(call: Callable[[], object]) -> list[str]:
    """The kernels that a call launches."""
    C.clear_simulator_reports()
    call()
    return [str(report["kernel"]) for report in json.loads(str(C.simulator_reports()))]


def output(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def dense_fp8() -> None:
    deep_gemm.fp8_gemm_nt(random_rows((24, 256), CPU, 0), random_blocks((128, 256), CPU, 1), output(24, 128))


def dense_bf16() -> None:
    deep_gemm.bf16_gemm_nt(*operands(24, 128, 256, CPU), output(24, 128))


def dense_fp16() -> None:
    deep_gemm.bf16_gemm_nt(*operands(24, 128, 256, CPU, dtype=torch.float16), output(24, 128, dtype=torch.float16))


def contiguous_experts() -> None:
    case = contiguous([5, 3], 128, 256, CPU)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, case.output().tensor, case.indices)


def masked_experts() -> None:
    case = masked([5, 3], 40, 128, 256, CPU)
    deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, case.output().tensor, case.counts, 16)


def gradients_of_mn_major_operands() -> None:
    """Both operands are transposed first, and the scales of both are brought into their layout."""
    a, b = random_rows((64, 256), CPU, 0), random_rows((64, 256), CPU, 1)
    d = output(64, 64, dtype=torch.float32)
    deep_gemm.fp8_gemm_tn(
        (a.data.T.contiguous(), a.scales.T), (b.data.T.contiguous(), b.scales.T), d, recipe=(1, 1, 128)
    )


@pytest.mark.parametrize(
    ("call", "wanted", "grouping"),
    [
        (dense_fp8, ["fp8_gemm_", "gemm_"], "dense"),
        (dense_bf16, ["bf16_gemm", "gemm_"], "dense"),
        (dense_fp16, ["fp16_gemm", "gemm_"], "dense"),
        (contiguous_experts, ["fp8_gemm_", "gemm_"], "m_contiguous"),
        (masked_experts, ["fp8_gemm_", "gemm_"], "masked"),
        (gradients_of_mn_major_operands, ["fp8_gemm_", "gemm_"], "dense"),
    ],
)
def test_one_kernel_of_a_product_is_found_by_its_name(call, wanted: Sequence[str], grouping: str) -> None:
    launched = names(call)
    for part in wanted:
        [gemm] = {name for name in launched if part in name}
        assert re.fullmatch(
            rf"(fp8|bf16|fp16)_gemm_sm90_{grouping}(_swapped)?_\d+x\d+(_cluster\dx\dx\d)?(_turns\d)?", gemm
        )
    assert ("bf16_gemm" in " ".join(launched)) == (call is dense_bf16)


def test_a_product_names_the_tile_that_explain_shows() -> None:
    for fields in ({"m": 64, "n": 7168, "k": 2048}, {"m": 4096, "n": 4096, "k": 7168}, {"m": 1, "n": 576, "k": 7168}):
        fields = {**fields, "num_sms": HOPPER_SMS}
        kernel = kernel_of("dense", fields)
        turned, tile, _, cluster, _, k_warpgroups = str(explain("dense", fields)).split()[:6]
        name = f"fp8_gemm_sm90_dense{'_swapped' if turned == 'swapped' else ''}_{tile}"
        name += "" if cluster == "1x1x1" else f"_cluster{cluster}"
        name += "" if k_warpgroups == "1" else f"_turns{k_warpgroups}"
        assert kernel["name"] == name
        assert f"\n{name}(const __grid_constant__" in str(kernel["text"])


def test_kernels_before_a_product_say_what_they_do() -> None:
    launched = names(gradients_of_mn_major_operands)
    assert sum(name.startswith("transpose_fp8") for name in launched) == 2
    assert sum(name.startswith("transpose_scales") for name in launched) == 2


def test_a_batch_is_found_by_the_names_of_the_public_scripts() -> None:
    x, y = operands(2 * 16, 2 * 64, 128, CPU)
    x, y = x.view(16, 2, 128), y.view(2, 64, 128)
    launched = names(lambda: deep_gemm.einsum("bhr,hdr->bhd", x, y, output(16, 2, 64)))
    [gemm] = [name for name in launched if "gemm" in name]
    assert gemm.startswith("bf16_gemm_sm90_batched_")
    many = torch.zeros((64, 16, 64), dtype=torch.bfloat16)
    launched = names(lambda: deep_gemm.einsum("bmk,bnk->mn", many, many, output(16, 16)))
    assert len(launched) == 2
    [gemm] = [name for name in launched if "bmn_bnk_mn_gemm_impl" in name]
    [_] = [name for name in launched if "gemm" in name]


def test_a_product_in_heads_is_found_by_its_name() -> None:
    a, b = random_rows((24, 256), CPU, 0), random_blocks((256, 256), CPU, 1)
    call = deep_gemm.fp8_gemm_nt_skip_head_mid
    launched = names(lambda: call(tuple(a), tuple(b), output(24, 320), (128, 64, 128)))
    [gemm] = [name for name in launched if "gemm_" in name]
    assert gemm.startswith("fp8_gemm_sm90_dense_")
    assert gemm.endswith("_heads")


SCALES = torch.exp2(torch.randint(-8, 8, (33, 5)).float())


def pack_k_groups() -> None:
    ks = [128, 512]
    scales = torch.exp2(torch.randint(-8, 8, (5, 32)).float())
    deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(scales, torch.tensor(ks, dtype=torch.int32), ks)


def pack_codes() -> None:
    blocks, found = torch.empty((1, 2, 1, 4096), dtype=torch.uint8), torch.zeros(1, dtype=torch.int32)
    values = torch.zeros((1, 64, 128), dtype=torch.int8)
    C.pack_codes(values, blocks, found, ELEMENT_NUMBERS["s4m"], False, -8, False, False)


def test_what_packs_public_fp4_weights_is_found_by_its_names() -> None:
    a = torch.zeros((16, 128)).to(torch.float8_e4m3fn), torch.ones(16)
    b = torch.zeros((64, 64), dtype=torch.int8), torch.ones((64, 4))
    launched = names(lambda: deep_gemm.fp8_fp4_gemm_nt(a, b, output(16, 64)))
    assert launched[:2] == ["pack_scales_fp32_k_first", "pack_e2m1_from_unsigned_pairs"]
    assert len(launched) == 3


def test_what_packs_fp8_weights_in_blocks_is_found_by_its_names() -> None:
    w = torch.zeros((64, 128)).to(torch.float8_e4m3fn), torch.ones((1, 1))
    launched = names(lambda: deep_gemm.bf16_fp8_gemm_nt(torch.zeros((16, 128)).bfloat16(), w, output(16, 64)))
    assert launched[:2] == ["pack_scales_fp32_k_first", "pack_e4m3p_for_16_bits_from_unsigned_bytes"]
    assert len(launched) == 3


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (lambda: deep_gemm.get_mn_major_tma_aligned_tensor(SCALES), "transpose"),
        (lambda: deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(SCALES), "pack_fp32_into_ue8m0"),
        (pack_k_groups, "pack_fp32_into_ue8m0"),
        (pack_codes, "pack_s4m_from_signed_bytes"),
    ],
)
def test_layout_kernels_are_found_by_their_names(call, wanted: str) -> None:
    [name] = names(call)
    assert wanted in name
    assert "gemm_" not in name
