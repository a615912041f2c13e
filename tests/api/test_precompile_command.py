"""python -m deep_gemm precompile, and deep_gemm.precompile: what is stored, and that calls find it."""

from __future__ import annotations

import re

import fresh
import pytest
import torch
from command_line import refuse, run, succeed
from fake_nvcc import fake_nvcc
from field_calls import kernel_of

import deep_gemm
from deep_gemm import jit
from deep_gemm._precompile import Calls, Operands, Result, kernels_of
from deep_gemm._recording import Machine
from deep_gemm._targets import AMPERE_TARGET, BLACKWELL_TARGET, GPUS, HOPPER_TARGET


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--bf16"],
        ["--fp16"],
        ["--fp16-output"],
        ["--int8", "--bias", "bf16"],
        ["--int8", "--int8-scales", "blocks", "--int8-tokens", "groups"],
        ["--int8", "--asymmetric"],
        ["--fp8-int4", "--token-scales"],
        ["--fp8-fp4", "--far-exponents"],
        ["--bf16-fp4"],
    ],
    ids=" ".join,
)
def test_precompile_needs_no_gpu_and_says_what_it_stored(cache, options) -> None:
    command = ("precompile", "256x512", "--max-m", "16", *options)
    printed = succeed(*command, DG_JIT_CACHE_DIR=cache)
    images = len(list(cache.rglob("*.cubin")))
    assert f": {images} kernels for {HOPPER_TARGET}" in printed
    assert re.search(rf"compiled +{images}\n +found +0 .*\n +failed +0\n", printed)
    assert f"{images} of {images} ({cache})" in printed
    printed = succeed(*command, DG_JIT_CACHE_DIR=cache)
    assert re.search(rf"compiled +0\n +found +{images} compiled earlier\n", printed)
    assert f"{images} of {images} ({cache})" in printed


CALL = """
from deep_gemm import simulator
simulator.set_options(target={target!r}, num_sms={sms})
from deep_gemm.utils import per_block_cast_to_fp8, per_token_cast_to_fp8
a = per_token_cast_to_fp8(torch.randn(16, 512), use_ue8m0=True)
b = per_block_cast_to_fp8(torch.randn(256, 512), use_ue8m0=True)
import deep_gemm
deep_gemm.fp8_gemm_nt(a, b, torch.empty(16, 256, dtype=torch.bfloat16))
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("target", "options", "environment"),
    [
        (AMPERE_TARGET, [], {}),
        ("sm_121", [], {}),
        (BLACKWELL_TARGET, [], {}),
        (BLACKWELL_TARGET, ["--fp32-scales"], {"DG_FP32_SCALES": 1}),
    ],
)
def test_a_call_on_any_gpu_gets_a_kernel_that_was_precompiled(cache, target, options, environment) -> None:
    succeed("precompile", "256x512", "--max-m", "16", "--target", target, *options, DG_JIT_CACHE_DIR=cache)
    precompiled = {path.read_text() for path in cache.rglob("kernel.cu")}
    code = CALL.format(target=target, sms=GPUS[target].sms)
    fresh.check(code, DG_JIT_CACHE_DIR=cache, **environment)
    called = {path.with_name("kernel.cu").read_text() for path in cache.rglob("kernel.ptx")}
    assert len([text for text in called if "GemmConfig" in text]) == 1
    assert {text for text in called if "GemmConfig" in text} <= precompiled


PACKED_CALLS = """
import deep_gemm
from deep_gemm import simulator
simulator.set_options(target="{target}", num_sms={sms})
experts, m, n, k = {experts}, 128, 128, 256
shape = (experts, m, k) if "{grouping}" == "masked" else (experts * m, k)
values = torch.full((n, k) if "{grouping}" == "dense" else (experts, n, k), {one}, dtype=torch.int8)
values = values.to(torch.float8_e4m3fn) if "{element}" == "e4m3" else values
scales = torch.ones(values.shape)[..., ::{size} or k]
w = deep_gemm.pack_weights(values, scales, element="{element}", activations="{activations}", group_size={size})
a = torch.ones(shape).to({{"int8": torch.int8, "fp8": torch.float8_e4m3fn, "bf16": torch.bfloat16}}[w.activations])
a = a if w.activations == "bf16" else (a, torch.ones(shape[:-1]))
if w.order == "e2m1r":
    a = a[0], deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(torch.ones((*shape[:-1], 2)))
d = torch.empty((*shape[:-1], n), dtype=torch.bfloat16)
if "{grouping}" == "dense":
    deep_gemm.{product}_gemm_nt(a, w, d)
elif "{grouping}" == "masked":
    deep_gemm.m_grouped_{product}_gemm_nt_masked(a, w, d, torch.full((experts,), 40, dtype=torch.int32), 40)
else:
    layout = torch.arange(experts, dtype=torch.int32).repeat_interleave(m)
    deep_gemm.m_grouped_{product}_gemm_nt_contiguous(a, w, d, layout)
assert bool((d[..., :40, :] == k).all())
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("product", "element", "activations", "size", "grouping", "experts", "target"),
    [
        ("fp8_int4", "int4", "fp8", 64, "dense", 1, "sm_90a"),
        ("int8_int4", "int4", "int8", None, "contiguous", 2, "sm_90a"),
        ("fp8_fp4", "e2m1", "fp8", 32, "masked", 2, "sm_90a"),
        ("fp8_fp4", "e2m1", "fp8", 32, "masked", 2, "sm_100f"),
        ("fp8_fp4", "e2m1", "fp8", 32, "contiguous", 2, "sm_100a"),
        ("fp8_int4", "int4", "fp8", 64, "dense", 1, "sm_100a"),
        ("int8_int4", "int4", "int8", None, "contiguous", 2, "sm_100a"),
        ("bf16_int4", "int4", "bf16", 128, "masked", 2, "sm_103a"),
        ("bf16_fp4", "e2m1", "bf16", 32, "dense", 1, "sm_100f"),
        ("bf16_fp8", "e4m3", "bf16", 128, "contiguous", 2, "sm_100a"),
        ("bf16_int8", "int8", "bf16", 128, "contiguous", 2, "sm_80"),
    ],
)
def test_calls_with_packed_weights_get_precompiled_kernels(
    cache, product, element, activations, size, grouping, experts, target
) -> None:
    names = {"product": product, "grouping": grouping, "experts": experts, "target": target}
    options = [f"--{product.replace('_', '-')}", "--grouping", grouping, "--experts", str(experts), "--target", target]
    options += ["--group-size", "channel" if size is None else str(size), "--max-m", "256"]
    if activations == "fp8":
        of_rows = target == "sm_90a" or element != "e2m1"
        options += ["--token-scales"] if of_rows else ["--scales-a", "packed"]
    succeed("precompile", "128x256", *options, DG_JIT_CACHE_DIR=cache)
    precompiled = {path.read_text() for path in cache.rglob("kernel.cu")}
    assert precompiled
    one = 2 if element == "e2m1" else 1  # the code of 1
    call = PACKED_CALLS.format(
        **names, element=element, activations=activations, size=size, one=one, sms=GPUS[target].sms
    )
    fresh.check(call, DG_JIT_CACHE_DIR=cache)
    called = {path.with_name("kernel.cu").read_text() for path in cache.rglob("kernel.ptx")}
    called = {text for text in called if "GemmConfig" in text}  # not what packs the scales of this test
    assert len(called) == 1
    assert called <= precompiled


FORCED_CALL = """
import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C
simulator.set_options(target="sm_80", num_sms=1)
codes, ones = torch.full((64, 128), 2, dtype=torch.uint8), torch.ones((64, 4))
w = deep_gemm.pack_weights(codes, ones, element="e2m1", activations="bf16", group_size=32)
a, d = torch.ones((64, 128), dtype=torch.bfloat16), torch.empty((64, 64), dtype=torch.bfloat16)
C.force_config(True, 0, 64, 64, 128, 0, 64, 64, 1, 1, 1, 1, 2)
deep_gemm.bf16_fp4_gemm_nt(a, w, d)
assert bool((d == 128).all())
"""


def test_a_kernel_says_what_converts_an_operand_ahead(cache) -> None:
    fields = {
        "bf16": 1,
        "e2m1": 1,
        "conversion_scales": 1,
        "gran_k_b": 32,
        "tile_rows": 64,
        "tile_cols": 64,
        "preconvert": 2,
    }
    kernel = kernel_of("dense", {"m": 64, "n": 64, "k": 128, "num_sms": 1, **fields}, "sm_80")
    fresh.check(FORCED_CALL, DG_JIT_CACHE_DIR=cache)
    called = {path.with_name("kernel.cu").read_text() for path in cache.rglob("kernel.ptx")}
    assert called == {str(kernel["text"]), str(kernel["preconvert_text"])}
    assert kernel["preconvert_name"] == "unpack_weights_e2m1_to_bf16_scales32"


LYING_OTHERWISE = """
import deep_gemm
from deep_gemm import simulator
simulator.set_options(target="{target}", num_sms=1)
m, n, k = 16, 64, 256
{call}
"""
FP8_CALL = """
fp8 = torch.float8_e4m3fn
a, b = torch.ones((m, k + 4)).to(fp8)[:, :k], torch.ones((k, n)).to(fp8).T  # rows off 16 bytes; MN-major
tokens = torch.ones((m, k // 128)).to({scales})  # K-major
d = torch.empty((m, n), dtype=torch.bfloat16)
deep_gemm.fp8_gemm_nt((a, tokens), (b, torch.ones((1, k // 128))), d)
assert bool((d == k).all())
"""
INT8_CALL = """
a, b = torch.ones((m, k + 4), dtype=torch.int8)[:, :k], torch.ones((k, n), dtype=torch.int8).T
d = torch.empty((m, n), dtype=torch.bfloat16)
deep_gemm.int8_gemm_nt((a, 1.0, torch.zeros(m, dtype=torch.int32)), (b, 1.0), d)
assert bool((d == k).all())
"""
INT4_CALL = """
w = deep_gemm.pack_weights(
    torch.ones((n, k), dtype=torch.int8), torch.ones(n), element="int4", activations="int4", group_size=None
)
d = torch.empty((m, n), dtype=torch.bfloat16)
deep_gemm.int4_gemm_nt((torch.full((m, k // 2), 0x11, dtype=torch.int8), 1.0), w, d)
assert bool((d == k).all())
"""
BF16_CALL = """
a, b = torch.ones((m, k + 1), dtype=torch.bfloat16)[:, :k], torch.ones((n, k + 2), dtype=torch.bfloat16)[:, :k]
d = torch.empty((m, n), dtype=torch.bfloat16)
deep_gemm.bf16_gemm_nt(a, b, d)
assert bool((d == k).all())
"""


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("product", "target", "call", "more", "copies"),
    [
        ("fp8", "sm_90a", FP8_CALL.format(scales="torch.float32"), {}, 3),
        ("fp8", "sm_80", FP8_CALL.format(scales="torch.float8_e8m0fnu"), {}, 3),
        ("fp8", "sm_100f", FP8_CALL.format(scales="torch.float32"), {"packs_scales_a": 1, "packs_scales_b": 1}, 3),
        ("int8", "sm_90a", INT8_CALL, {"asymmetric_a": 1}, 3),
        ("int4", "sm_80", INT4_CALL, {}, 1),
        ("bf16", "sm_90a", BF16_CALL, {}, 2),
    ],
    ids=["fp8", "fp8-ampere", "fp8-blackwell", "int8-with-zero-points", "int4", "bf16"],
)
def test_what_rearranges_operands_is_among_layouts(cache, product, target, call, more, copies) -> None:
    calls = Calls(Operands(product, scales=more))
    kernels = kernels_of(calls, [(64, 256)], 16, Machine(target, 1), layouts=True, progress=False)
    fresh.check(LYING_OTHERWISE.format(target=target, call=call), DG_JIT_CACHE_DIR=cache)
    called = {path.with_name("kernel.cu").read_text() for path in cache.rglob("kernel.ptx")}
    called = {text for text in called if "GemmConfig" not in text}
    assert len(called) == copies
    assert called <= {kernel.text for kernel in kernels}


def test_what_converts_an_operand_ahead_is_compiled_too() -> None:
    kernels = kernels_of(Calls(Operands("fp8")), [(512, 1024)], 512, Machine("sm_80", 1), progress=False)
    assert "widen_fp8" in {kernel.name for kernel in kernels}


@pytest.mark.parametrize(
    ("record", "changes", "message"),
    [
        (Operands, {"product": "int2"}, "product must be one of fp8, bf16, fp16, int8, fp4, fp8_int4, .*, got 'int2'"),
        (Calls, {"grouping": "m_psum"}, "grouping must be one of dense, contiguous, psum, masked, got 'm_psum'"),
        (Result, {"output": "fp8"}, "output must be None or one of bf16, fp16, fp32, got 'fp8'"),
        (Result, {"bias": "fp16"}, "bias must be None or one of bf16, fp32, got 'fp16'"),
        (Operands, {"minus_eight": True}, "minus_eight is of products with packed weights"),
        (Calls, {"experts": 2}, "experts go with a grouping"),
    ],
)
def test_calls_that_there_are_none_of_are_refused(record, changes, message) -> None:
    with pytest.raises(ValueError, match=message):
        record(**changes)


A, B, D = (jit.placeholder(*shape, dtype=torch.bfloat16) for shape in ((256, 256), (128, 256), (256, 128)))


def product(m: int) -> None:
    deep_gemm.bf16_gemm_nt(A[:m], B, D[:m])


@pytest.mark.parametrize(
    ("call", "rows", "options", "message"),
    [
        (product, 64, {"target": "sm_75"}, "target must be one of sm_80, .*, got 'sm_75'"),
        (product, 64, {"gpu": "H1"}, "gpu must be one of .*, got 'H1'"),
        (product, 0, {}, "rows must be at least 1, got 0"),
        (product, [16, -1], {}, "rows must be at least 1, got -1"),
        (lambda m: deep_gemm.bf16_gemm_nt(A[:m], B[:, :128], D[:m]), 64, {}, "K"),
        (lambda m: None, 64, {}, "call must make calls of deep_gemm on CPU tensors, but none needed a kernel"),
    ],
    ids=["target", "gpu", "rows", "one of rows", "refused by the call", "no call"],
)
def test_precompile_refuses_what_cannot_be(call, rows, options, message) -> None:
    before = jit.statistics()["compiled"]
    with pytest.raises(ValueError, match=message):
        deep_gemm.precompile(call, rows, **options)
    assert jit.statistics()["compiled"] == before


def test_precompile_compiles_what_the_same_calls_need(cache) -> None:
    """Of a product, and of packed weights without values; each number of rows up to the largest, or those that are
    named."""
    code = """
import deep_gemm
from deep_gemm import jit
zeros, ones = torch.zeros(64, 256, dtype=torch.int8), torch.ones(64, 2)
small = deep_gemm.pack_weights(zeros, ones, element="int4", activations="bf16", group_size=128)
weights = small.placeholder(128, 512)
a, d = jit.placeholder(300, 512, dtype=torch.bfloat16), jit.placeholder(300, 128, dtype=torch.bfloat16)
b = jit.placeholder(128, 512, dtype=torch.bfloat16)
def call(m):
    deep_gemm.bf16_int4_gemm_nt(a[:m], weights, d[:m])
    deep_gemm.bf16_gemm_nt(a[:m], b, d[:m])
done = [each.error for rows in (300, [7, 256]) for each in deep_gemm.precompile(call, rows)]
compiled = jit.statistics()["compiled"]
with jit.record("sm_90a") as recording:
    for m in range(1, 301):
        call(m)
again = jit.compile_recorded(recording)
result = done, compiled, len(recording.kernels), jit.statistics()["compiled"]
"""
    errors, compiled, kernels, at_last = fresh.check(code, DG_JIT_CACHE_DIR=cache).result
    assert not any(errors)
    assert 3 < compiled == kernels == at_last < len(errors)


@pytest.mark.parametrize("place", ["below a file", "nowhere"])
def test_precompile_says_that_nothing_could_be_stored(tmp_path, place) -> None:
    (tmp_path / "file").touch()
    directory = tmp_path / "file" / "cache" if place == "below a file" else ""
    status, printed = run("precompile", "256x512", "--max-m", "16", DG_JIT_CACHE_DIR=directory, HOME=None)
    assert status == 1
    assert re.search(r"compiled +1\n", printed)
    assert re.search(r"in the cache +0 of 1 \(", printed)
    assert re.search(r"not stored +1, which end with this process", printed)


def test_precompile_says_what_failed(cache, tmp_path) -> None:
    compiler = {"DG_JIT_USE_NVRTC": 0, "DG_JIT_NVCC_COMPILER": fake_nvcc(tmp_path, "exit 1")}
    status, printed = run("precompile", "256x512", "--max-m", "16", DG_JIT_CACHE_DIR=cache, **compiler)
    assert status == 1
    assert "failed: fp8_gemm_sm90_dense_swapped_64x8: " in printed
    assert re.search(r"compiled +0\n", printed)
    assert re.search(r"in the cache +0 of 1 \(", printed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("7168x2047",), "K must be a multiple of 16, got 2047: pad A and B with zeros to K=2048"),
        (("7168x2048", "--max-m", "0"), "--max-m: a whole number from 1 up is wanted, not '0'"),
        (("7168x2048", "--sms", "-1"), "--sms: a whole number from 1 up is wanted, not '-1'"),
        (("7168*2048",), "a weight's shape is NxK, as 7168x2048, not '7168*2048'"),
        (("7168x2048x1",), "a weight's shape is NxK, as 7168x2048, not '7168x2048x1'"),
        (("0x2048",), "a weight's shape is NxK, as 7168x2048, not '0x2048'"),
    ],
)
def test_precompile_refuses_what_calls_refuse(cache, arguments, said) -> None:
    assert said in refuse("precompile", *arguments, DG_JIT_CACHE_DIR=cache)
    assert not cache.exists()
