"""Both call forms of index logits, and what is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import torch
from logits_inputs import fp8_dense, fp8_paged
from torch._subclasses.fake_tensor import FakeTensorMode

import deep_gemm
from deep_gemm.logits import logits_kernels


@pytest.fixture
def dense():
    return fp8_dense(3, 40, 8, 32, end=torch.tensor([10, 40, 25]))


@pytest.fixture
def paged():
    return fp8_paged(torch.tensor([[10], [40]]), 1, 8, 32, 64)


def test_dense_forms_are_told_apart(dense) -> None:
    q, kv, w, first, end = dense.arguments
    call = deep_gemm.fp8_fp4_mqa_logits
    older = call((q, None), kv, w, first, end)
    assert older.shape == (3, 40)
    assert (older == -torch.inf).sum() == 45
    assert torch.equal(call((q, None), kv, w, first, end, True), older)
    assert torch.equal(call(q=(q, None), kv=kv, weights=w, cu_seq_len_k_start=first, cu_seq_len_k_end=end), older)
    newer = [
        call((q, None), kv, w, first, end, 50),
        call((q, None), kv, w, first, end, 50, None),
        call((q, None), kv, w, first, end, max_seqlen_k=50),
        call((q, None), kv, w, first, end, 50, schedule_meta=deep_gemm.get_mqa_logits_metadata(first, end, 40, 8)),
        call((q, None), kv, w, first, end, False, 50, logits_dtype=torch.float32),
        call((q, None), kv, w, first, end, clean_logits=False, max_seqlen_k=50),
        deep_gemm.fp8_mqa_logits(q, kv, w, first, end, clean_logits=False, max_seqlen_k=50),
    ]
    for logits in newer:
        assert logits.shape == (3, 50)
        for row, count in enumerate([10, 40, 25]):
            assert torch.equal(logits[row, :count], older[row, :count])
    uncleaned = deep_gemm.fp8_mqa_logits(q, kv, w, first, end, clean_logits=False)
    assert uncleaned.shape == (3, 40)
    assert torch.equal(uncleaned[older > -torch.inf], older[older > -torch.inf])
    assert call((q, None), kv, w, first, end, False, logits_dtype=torch.bfloat16).dtype == torch.bfloat16


def test_paged_forms_are_told_apart(paged) -> None:
    call = deep_gemm.fp8_fp4_paged_mqa_logits
    meta = deep_gemm.get_paged_mqa_logits_metadata(paged.lengths, 64, deep_gemm.get_num_sms())
    given = (paged.q, None), paged.cache, paged.weights, paged.lengths, paged.table, meta, 48
    cleaned = call(*given, True)
    assert (cleaned == -torch.inf).sum() == 46
    indices = torch.tensor([0, 1], dtype=torch.int32)
    for logits in (
        call(*given),
        call(*given, None),
        call(*given, indices),
        call(*given, indices=indices),
        call(*given, False),
        call(*given, False, logits_dtype=torch.float32),
        call(*given, clean_logits=False),
        deep_gemm.fp8_paged_mqa_logits(*given, clean_logits=False),
    ):
        assert torch.equal(logits[cleaned > -torch.inf], cleaned[cleaned > -torch.inf])
    assert call(*given, False, torch.bfloat16).dtype == torch.bfloat16


def wrong(dense, **changes):
    """A dense call with some arguments changed."""
    names = ("q", "kv", "weights", "cu_seq_len_k_start", "cu_seq_len_k_end")
    return {**dict(zip(names, dense.arguments, strict=True)), **changes}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: {"q": x.q[:, :, :16]}, "D must be 32, 64 or 128, got 16"),
        (lambda x: {"q": x.q[:, :6]}, "heads must be a multiple of 4 up to 128, got 6"),
        (lambda x: {"q": x.q.float()}, "q must be float8_e4m3fn, or int8 that packs two E2M1 codes, got float32"),
        (lambda x: {"q": x.q[0]}, r"q must be \[rows, heads, D\], but has shape \[8, 32\]"),
        (lambda x: {"kv": (x.kv[0][:, :16], x.kv[1])}, "keys must be float8_e4m3fn .*, 32. as q is"),
        (lambda x: {"kv": (x.kv[0], x.kv[1].double())}, "scales of keys must be float32, got float64"),
        (lambda x: {"kv": (x.kv[0], x.kv[1][:-1])}, r"scales of keys must be contiguous \[40\]"),
        (lambda x: {"weights": x.weights[:2]}, r"weights must be \[3, 8\] with heads contiguous"),
        (lambda x: {"weights": x.weights.half()}, "weights must be float32 or bfloat16, got float16"),
        (lambda x: {"cu_seq_len_k_end": x.end.long()}, "cu_seq_len_k_end must be int32, got int64"),
        (lambda x: {"cu_seq_len_k_start": x.first[:1]}, r"cu_seq_len_k_start must be contiguous \[3\]"),
        (lambda x: {"max_seqlen_k": 0}, "max_seqlen_k must be positive, got 0"),
        (
            lambda x: {"max_seqlen_k": 40, "clean_logits": True},
            "clean_logits must be False where max_seqlen_k is given",
        ),
        (lambda x: {"clean": True}, "clean is no argument of this form, which takes clean_logits"),
        (lambda x: {"logits_dtype": torch.float16}, "logits must be float32 or bfloat16, got float16"),
    ],
)
def test_dense_refusals(dense, change, message) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        deep_gemm.fp8_fp4_mqa_logits(**wrong(dense, **change(dense)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: {"kv_cache": x.cache.float()}, "kv_cache must be uint8, got float32"),
        (lambda x: {"kv_cache": x.cache[..., :-1]}, r"kv_cache must be \[blocks, keys of a block, 1, 36\]"),
        (
            lambda x: {"kv_cache": torch.zeros(2, 48, 1, 36, dtype=torch.uint8)},
            "blocks of kv_cache must have 32, 64 or 128 keys, got 48",
        ),
        (
            lambda x: {
                "kv_cache": torch.zeros(2, 64 * 36 + 4, dtype=torch.uint8).as_strided((2, 64, 1, 36), (2308, 36, 36, 1))
            },
            "blocks of kv_cache must start at multiples of 16 bytes, but they are 2308 bytes apart",
        ),
        (lambda x: {"context_lens": x.lengths.long()}, "context_lens must be int32, got int64"),
        (lambda x: {"context_lens": x.lengths[:1]}, r"context_lens must be contiguous \[2, 1\] or \[2\]"),
        (lambda x: {"block_table": x.table[:1]}, r"block_table must be \[2, blocks of a request\]"),
        (lambda x: {"max_context_len": 0}, "max_context_len must be positive, got 0"),
        (lambda x: {"schedule_meta": x.lengths}, r"schedule_meta must be int32 \[SMs \+ 1, 2\]"),
        (lambda x: {"indices": x.lengths}, r"indices must be \[2\] beside a q \[2, 1, heads, D\]"),
    ],
)
def test_paged_refusals(paged, change, message) -> None:
    names = ("q", "kv_cache", "weights", "context_lens", "block_table", "schedule_meta", "max_context_len")
    values = (paged.q, paged.cache, paged.weights, paged.lengths, paged.table, None, 48)
    with pytest.raises((ValueError, TypeError), match=message):
        deep_gemm.fp8_fp4_paged_mqa_logits(**{**dict(zip(names, values, strict=True)), **change(paged)})


def traced_forms(dense, paged):
    """Calls of both kinds, as functions of tensors."""
    q, kv, w, first, end = dense.arguments

    def of_dense(q, k, scales, w, first, end):
        return deep_gemm.fp8_fp4_mqa_logits((q, None), (k, scales), w, first, end) * 2

    def of_paged(q, cache, w, lengths, table):
        meta = deep_gemm.get_paged_mqa_logits_metadata(lengths, 64, 4)
        return deep_gemm.fp8_fp4_paged_mqa_logits((q, None), cache, w, lengths, table, meta, 48, True) * 2

    return [
        (of_dense, (q, *kv, w, first, end)),
        (of_paged, (paged.q, paged.cache, paged.weights, paged.lengths, paged.table)),
    ]


@pytest.mark.parametrize("which", [0, 1], ids=["dense", "paged"])
def test_torch_compiles_calls_without_a_break(dense, paged, which) -> None:
    function, arguments = traced_forms(dense, paged)[which]
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*arguments), function(*arguments))


@pytest.mark.parametrize("which", [0, 1], ids=["dense", "paged"])
def test_fake_tensors_give_what_calls_give(dense, paged, which) -> None:
    function, arguments = traced_forms(dense, paged)[which]
    wanted = function(*arguments)
    with FakeTensorMode() as mode:
        logits = function(*(mode.from_tensor(argument) for argument in arguments))
    assert (logits.shape, logits.stride(), logits.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)


def test_meta_tensors_give_a_shape(dense) -> None:
    q, kv, w, first, end = (
        tuple(x.to("meta") for x in value) if isinstance(value, tuple) else value.to("meta")
        for value in dense.arguments
    )
    logits = deep_gemm.fp8_fp4_mqa_logits((q, None), kv, w, first, end, 50)
    assert logits.is_meta
    assert (logits.shape, logits.stride()) == ((3, 50), (256, 1))


def test_kernels_of_calls_are_known_beforehand() -> None:
    """Those that calls of some numbers of rows need, by name."""
    kernels = logits_kernels(64, 128, rows=[1, 2, 3, 100, 5000])
    assert [name for name, _ in kernels] == [
        "fp8_mqa_logits_sm90_h64_d128_rows1_groups4",
        "fp8_mqa_logits_sm90_h64_d128_rows2_groups3",
        "fp8_mqa_logits_sm90_h64_d128_rows3_groups2",
        "fp8_mqa_logits_sm90_h64_d128_rows4_groups2_shared_keys",
    ]
    of_blocks = logits_kernels(32, 128, form="mxfp4", block_kv=64, rows=[1, 2], logits="bf16", target="sm_89")
    assert [name for name, _ in of_blocks] == [f"fp4_mx_paged_mqa_logits_sm80_h32_d128_rows{rows}" for rows in (1, 2)]
    with pytest.raises(ValueError, match="heads must be a multiple of 4 up to 128, got 3"):
        logits_kernels(3, 128, rows=[1])
    with pytest.raises(ValueError, match="form must be one of fp8, mxfp8, mxfp4, got 'int8'"):
        logits_kernels(8, 128, form="int8", rows=[1])


def test_the_command_line_explains_and_compiles(tmp_path) -> None:
    environment = {**os.environ, "DG_JIT_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "deep_gemm", "logits", "8", "32", "--rows", "1", "300", "--target", "sm_80"]
    explained = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert "fp8_mqa_logits_sm80_h8_d32_rows1: 256 threads" in explained
    compiled = subprocess.run([*command, "--compile"], env=environment, capture_output=True, text=True, check=True)
    assert re.search(r"in the cache *2 of 2", compiled.stdout)
