"""Where selection takes products of weights that are unpacked ahead."""

from __future__ import annotations

import pytest
import torch
from candidates import parse
from field_calls import explain, kernel_of
from packed_products import KINDS, Tokens, check, weights

import deep_gemm
from deep_gemm import simulator
from deep_gemm._targets import GPUS, HOPPER_SMS, HOPPER_TARGET

FIELDS = {
    "int4": {"s4m": 1},
    "int4 with -8": {"s4": 1},
    "zero points": {"u4": 1},
    "mxfp4": {"e2m1x": 1, "gran_k_b": 128},
}


def unpacks(m: int, grouping: str = "dense", target: str = HOPPER_TARGET, **fields: int) -> bool:
    problem = {"m": m, "n": 4096, "k": 7168, "num_sms": HOPPER_SMS, **fields}
    return parse(explain(grouping, problem, target))[0].preconvert == "b"


@pytest.mark.parametrize("weights", FIELDS)
def test_of_many_tokens_with_scales_of_groups_of_k(weights) -> None:
    assert unpacks(4096, **FIELDS[weights])
    assert not unpacks(64, **FIELDS[weights])


def test_not_where_fp8_kernels_do_not_multiply_such_scales_nor_of_experts() -> None:
    assert not unpacks(4096, s4m=1, gran_k_b=32)
    assert not unpacks(4096, s4m=1, token_scales=1)
    assert not unpacks(4096, "masked", s4m=1, groups=4, expected_m=2048)
    assert not unpacks(4096, s8=1, s4=1)
    assert not unpacks(4096, target="sm_80", s4m=1)


def test_not_where_a_rows_bits_must_not_depend_on_the_number_of_rows() -> None:
    assert not unpacks(4096, s4m=1, batch_invariant=1)


def test_its_product_is_an_fp8_kernel() -> None:
    """The same as of FP8 weights with scales for each row and 128 of K."""
    tile = {"m": 4096, "n": 256, "k": 256, "num_sms": HOPPER_SMS, "tile_rows": 128, "tile_cols": 128}
    of_packed, of_fp8 = (
        kernel_of("dense", tile | more, HOPPER_TARGET) for more in ({"s4m": 1, "preconvert": 2}, {"per_row_b": 1})
    )
    assert str(of_packed["text"]) == str(of_fp8["text"])


def test_the_simulator_picks_it_by_itself() -> None:
    kind, generator = KINDS["fp8"], torch.Generator().manual_seed(1)
    a = Tokens(kind, (512, 1024), generator)
    w, exact = weights(kind, (256, 1024), generator)
    d = torch.empty((512, 256))
    assert unpacks(512, n=256, k=1024, num_sms=1, s4m=1)
    with simulator.options(num_sms=1, hazards="error"):
        deep_gemm.fp8_int4_gemm_nt(a.to("cpu"), w, d)
    check(d, a.exact, exact, kind.activations)


SM80_FIELDS = {
    "bf16 x mxfp4": {"bf16": 1, "e2m1": 1, "gran_k_b": 32, "conversion_scales": 1},
    "int8 x int4 in groups of 128": {"s8": 1, "s4": 1, "gran_k_b": 128},
    "int8 x int4 in groups of 64": {"s8": 1, "s4": 1, "gran_k_b": 64},
}


def unpacks_on(target: str, m: int, grouping: str = "dense", **fields: int) -> bool:
    return unpacks(m, grouping, target, **{"num_sms": GPUS[target].sms, **fields})


@pytest.mark.parametrize("weights", SM80_FIELDS)
def test_of_many_tokens_on_gpus_without_wgmma(weights) -> None:
    assert unpacks_on("sm_80", 4096, **SM80_FIELDS[weights])
    assert not unpacks_on("sm_80", 64, **SM80_FIELDS[weights])


def may_unpack(target: str, m: int, grouping: str = "dense", **fields: int) -> bool:
    """Whether selection compares it with others."""
    problem = {"m": m, "n": 4096, "k": 4096, "num_sms": GPUS[target].sms, **fields}
    return any(c.preconvert == "b" for c in parse(explain(grouping, problem, target)))


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_89", "sm_120a"])
def test_each_pair_of_packed_weights_may_be_unpacked(target) -> None:
    """E4M3 only where the chip multiplies it."""
    for fields in (
        {"bf16": 1, "s4b": 1},
        {"fp16": 1, "u4": 1},
        {"bf16": 1, "e2m1": 1, "gran_k_b": 16, "conversion_scales": 1},
        {"bf16": 1, "e4m3p": 1},
        {"fp16": 1, "s8b": 1},
        {"bf16": 1, "u8": 1},
        {"s8": 1, "s4": 1, "channel_scales": 1},
        {"s8": 1, "u4": 1, "gran_k_b": 32},
    ):
        assert may_unpack(target, 4096, **fields)
    for fields in ({"s4m": 1}, {"e2m1": 1, "gran_k_b": 32}, {"e2m1x": 1, "gran_k_b": 128}):
        assert may_unpack(target, 4096, **fields) == (target in ("sm_89", "sm_120a"))


def test_on_gpus_without_wgmma_not_of_few_tokens_nor_experts_nor_where_bits_must_not_depend_on_m() -> None:
    fields = {"bf16": 1, "s4b": 1}
    assert not may_unpack("sm_80", 511, **fields)
    assert not may_unpack("sm_80", 4096, "masked", groups=4, expected_m=2048, **fields)
    assert not may_unpack("sm_80", 4096, "m_contiguous", groups=4, **fields)
    assert not may_unpack("sm_80", 4096, batch_invariant=1, **fields)


def test_four_bits_by_four_are_multiplied_as_they_are() -> None:
    fields = {"s8": 1, "s4": 1, "int4_a": 1, "channel_scales": 1}
    assert not may_unpack("sm_80", 4096, **fields)
    assert may_unpack("sm_120a", 4096, **fields)


def test_its_product_on_gpus_without_wgmma_is_one_of_rows() -> None:
    """The same as of INT8 weights with a scale each row."""
    tile = {"m": 4096, "n": 256, "k": 256, "num_sms": 108, "tile_rows": 64, "tile_cols": 128, "s8": 1}
    packed, rows = (
        kernel_of("dense", tile | more, "sm_80") for more in ({"s4": 1, "channel_scales": 1, "preconvert": 2}, {})
    )
    assert str(packed["text"]) == str(rows["text"])


def test_the_simulator_picks_it_by_itself_on_gpus_without_wgmma() -> None:
    kind, generator = KINDS["int8-groups-of-128"], torch.Generator().manual_seed(1)
    a = Tokens(kind, (1024, 256), generator)
    w, exact = weights(kind, (256, 256), generator)
    d = torch.empty((1024, 256))
    assert unpacks_on("sm_80", 1024, n=256, k=256, num_sms=1, **SM80_FIELDS["int8 x int4 in groups of 128"])
    with simulator.options(target="sm_80", num_sms=1, hazards="error"):
        deep_gemm.int8_int4_gemm_nt(a.to("cpu"), w, d)
    check(d, a.exact, exact, kind.activations)
