"""Index logits in the forms in which serving stacks call them, positional arguments and all."""

from __future__ import annotations

import pytest
import torch
from logits_inputs import difference, fp8_dense, fp8_paged

import deep_gemm
from deep_gemm import simulator


def on(target):
    return simulator.options(target=target)


def rows_as_wanted(logits, x, compressed) -> bool:
    wanted = x.all_logits()
    first, end = x.clamped()
    for row in range(wanted.shape[0]):
        begin, behind = int(first[row]), int(end[row])
        at = 0 if compressed else begin
        if difference(logits[row, at : at + behind - begin], wanted[row, begin:behind]) > 1e-5:
            return False
    return True


def paged_as_wanted(logits, x) -> bool:
    wanted = x.reference()
    return all(
        difference(logits[row, :length], wanted[row, :length]) < 1e-5
        for row, length in enumerate(x.row_lengths().tolist())
    )


BLACKWELL = ["sm_100a", "sm_120a"]


@pytest.mark.parametrize("target", ["sm_90a", "sm_89", "sm_120a"])
def test_vllm_prefill(target) -> None:
    """DeepSeek-V3.2, GLM-5: six positional arguments, a pair of which the second is None."""
    x = fp8_dense(5, 130, 64, 128, first=torch.tensor([0, 0, 0, 60, 60]), end=torch.tensor([58, 59, 60, 129, 130]))
    q, kv, weights, first, end = x.arguments
    with on(target):
        logits = deep_gemm.fp8_fp4_mqa_logits((q, None), kv, weights, first, end, 70)
    assert logits.shape == (5, 70)
    assert logits.dtype == torch.float32
    assert rows_as_wanted(logits, x, compressed=True)


@pytest.mark.parametrize("target", BLACKWELL)
@pytest.mark.parametrize("form", ["mxfp8", "mxfp4"])
def test_vllm_prefill_on_blackwell(form, target) -> None:
    """DeepSeek-V4: words of exponents, BF16 weights and logits, and a schedule."""
    x = fp8_dense(5, 130, 64, 128, form=form, weights=torch.bfloat16)
    q, kv, weights, first, end = x.arguments
    with on(target):
        meta = deep_gemm.get_mqa_logits_metadata(first, end, kv[0].shape[0], 64)
        logits = deep_gemm.fp8_fp4_mqa_logits(q, kv, weights, first, end, 130, schedule_meta=meta)
    assert logits.dtype == torch.bfloat16
    assert rows_as_wanted(logits, x, compressed=True)


@pytest.mark.parametrize("next_n", [1, 2, 4])
def test_vllm_decode(next_n) -> None:
    """Speculative decoding with four tokens halves the slots of the schedule."""
    lengths = torch.tensor([[70 + i for i in range(next_n)], [3 + i for i in range(next_n)]])
    x = fp8_paged(lengths, next_n, 64, 128, 64)
    with on("sm_90a"):
        slots = deep_gemm.get_num_sms("cpu") // (2 if next_n == 4 else 1)
        meta = deep_gemm.get_paged_mqa_logits_metadata(x.lengths, 64, slots)
        logits = deep_gemm.fp8_fp4_paged_mqa_logits((x.q, None), x.cache, x.weights, x.lengths, x.table, meta, 128)
    assert logits.shape == (2 * next_n, 128)
    assert paged_as_wanted(logits, x)


@pytest.mark.parametrize("target", BLACKWELL)
def test_vllm_decode_on_blackwell(target) -> None:
    """Rows one by one, tied together by indices."""
    x = fp8_paged(torch.tensor([[40], [41], [9]]), 1, 64, 128, 32, form="mxfp4", weights=torch.bfloat16)
    indices = torch.tensor([0, 1, 2], dtype=torch.int32)
    with on(target):
        meta = deep_gemm.get_paged_mqa_logits_metadata(x.lengths, 32, deep_gemm.get_num_sms("cpu"), indices=indices)
        logits = deep_gemm.fp8_fp4_paged_mqa_logits(
            x.q, x.cache, x.weights, x.lengths, x.table, meta, 64, indices=indices
        )
    assert logits.dtype == torch.bfloat16
    assert paged_as_wanted(logits, x)


def test_sglang_prefill() -> None:
    """The older names: logits have a column for each key, or as many as a keyword says."""
    x = fp8_dense(4, 100, 64, 128, end=torch.tensor([97, 98, 99, 100]))
    q, kv, weights, first, end = x.arguments
    with on("sm_90a"):
        logits = deep_gemm.fp8_mqa_logits(q, kv, weights, first, end, clean_logits=False)
        assert logits.shape[1] == kv[0].shape[0]
        assert rows_as_wanted(logits, x, compressed=False)
        compressed = deep_gemm.fp8_mqa_logits(q, kv, weights, first, end, clean_logits=False, max_seqlen_k=100)
        assert rows_as_wanted(compressed, x, compressed=True)


@pytest.mark.parametrize("target", BLACKWELL)
def test_sglang_prefill_of_pairs(target) -> None:
    """DeepSeek-V4.1: clean_logits and the width by position, the dtype by name."""
    x = fp8_dense(4, 100, 64, 128, form="mxfp4")
    with on(target):
        logits = deep_gemm.fp8_fp4_mqa_logits(*x.arguments, False, 100, logits_dtype=torch.bfloat16)
    assert logits.dtype == torch.bfloat16
    assert rows_as_wanted(logits, x, compressed=True)


def test_sglang_decode() -> None:
    """Lengths of requests with a dimension more."""
    x = fp8_paged(torch.tensor([[70], [5]]), 1, 64, 128, 64)
    lengths = x.lengths.flatten().unsqueeze(-1)
    with on("sm_90a"):
        meta = deep_gemm.get_paged_mqa_logits_metadata(lengths, 64, deep_gemm.get_num_sms("cpu"))
        given = x.cache, x.weights, lengths, x.table, meta, 128
        assert paged_as_wanted(deep_gemm.fp8_paged_mqa_logits(x.q, *given, clean_logits=False), x)
        logits = deep_gemm.fp8_fp4_paged_mqa_logits((x.q, None), *given, False, logits_dtype=torch.float32)
        assert paged_as_wanted(logits, x)


def test_probes() -> None:
    """What clients look for when they load."""
    for name in ("fp8_mqa_logits", "fp8_paged_mqa_logits", "fp8_fp4_mqa_logits", "fp8_fp4_paged_mqa_logits"):
        assert callable(getattr(deep_gemm, name, None))
    assert callable(deep_gemm.get_paged_mqa_logits_metadata)
    sparse = "fp8_fp4_sparse_mqa_logits", "fp8_fp4_paged_sparse_mqa_logits", "get_sparse_mqa_logits_metadata"
    assert not any(hasattr(deep_gemm, name) for name in sparse)
