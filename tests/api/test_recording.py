"""`jit.record`: the kernels that calls need, without a GPU, a compiler or values."""

from __future__ import annotations

import threading

import fresh
import pytest
import torch

import deep_gemm
from deep_gemm import jit
from deep_gemm.jit import RecordedKernel, placeholder

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn


def blank(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return placeholder(*shape, dtype=dtype)


def fp8_pair(rows: int, k: int, block: int = 1, *groups: int) -> tuple[torch.Tensor, torch.Tensor]:
    return blank(*groups, rows, k, dtype=FP8), blank(*groups, -(-rows // block), k // 128, dtype=torch.float32)


def k_groups() -> None:
    pairs = [(blank(512, rows, dtype=FP8), blank(4, rows, dtype=torch.float32)) for rows in (256, 128)]
    sizes = [128, 384]
    d = blank(2, 256, 128, dtype=torch.float32)
    layout = torch.tensor(sizes, dtype=torch.int32)
    deep_gemm.k_grouped_fp8_gemm_tn_contiguous(*pairs, d, sizes, layout, c=d)


def logits() -> None:
    q, (k, scales) = blank(64, 32, 128, dtype=FP8), (blank(4096, 128, dtype=FP8), blank(4096, dtype=torch.float32))
    ends = blank(64, dtype=torch.int32)
    deep_gemm.fp8_mqa_logits(q, (k, scales), blank(64, 32, dtype=torch.float32), ends, ends)


CALLS = {
    "bf16_gemm_tn": lambda: deep_gemm.bf16_gemm_tn(blank(64, 32), blank(64, 128), blank(32, 128)),
    "rows off 16 bytes": lambda: deep_gemm.bf16_gemm_nt(blank(32, 72)[:, :65], blank(128, 72)[:, :65], blank(32, 128)),
    "experts": lambda: deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
        fp8_pair(512, 256), fp8_pair(128, 256, 128, 4), blank(512, 128), blank(512, dtype=torch.int32)
    ),
    "masked": lambda: deep_gemm.m_grouped_fp8_gemm_nt_masked(
        fp8_pair(64, 256, 1, 4), fp8_pair(128, 256, 128, 4), blank(4, 64, 128), blank(4, dtype=torch.int32), 10
    ),
    "k groups": k_groups,
    "einsum": lambda: deep_gemm.einsum("bhr,hdr->bhd", blank(16, 4, 128), blank(4, 64, 128), blank(16, 4, 64)),
    "logits": logits,
    "pre-norm": lambda: deep_gemm.tf32_hc_prenorm_gemm(
        blank(64, 1024),
        blank(24, 1024, dtype=torch.float32),
        blank(64, 24, dtype=torch.float32),
        blank(64, dtype=torch.float32),
    ),
}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100f"])
@pytest.mark.parametrize("call", CALLS)
def test_any_call_can_be_recorded(call, target) -> None:
    before = jit.statistics()
    with jit.record(target) as recording:
        CALLS[call]()
        CALLS[call]()
    assert recording.kernels
    assert len(set(recording.kernels)) == len(recording.kernels)
    assert all(kernel.name in kernel.text for kernel in recording.kernels)
    assert all(kernel.target == target for kernel in recording.kernels)
    assert jit.statistics() == before


SAME_CALLS = """
import deep_gemm
shapes = [(m, 384, 512) for m in (1, 64, 200)]
fp8 = torch.float8_e4m3fn
def call(m, n, k):
    a = torch.ones(m, k).to(fp8), torch.ones(m, k // 128)
    b = torch.ones(n, k).to(fp8), torch.ones(n // 128, k // 128)
    d = torch.zeros(m, n, dtype=torch.bfloat16)
    deep_gemm.fp8_gemm_nt(a, b, d)
    return d
with jit.record("sm_90a", num_sms=4) as recording:  # as many as the simulator has
    untouched = [bool((call(*shape) == 0).all()) for shape in shapes]
compiled = jit.statistics()["compiled"]
ran = [bool((call(*shape) == 512).all()) for shape in shapes]
result = [untouched, compiled, ran, [kernel.text for kernel in recording.kernels]]
"""


def test_recorded_kernels_are_those_that_calls_compile(cache) -> None:
    untouched, compiled, ran, texts = fresh.check(SAME_CALLS, DG_JIT_CACHE_DIR=cache).result
    assert (untouched, compiled, ran) == ([True] * 3, 0, [True] * 3)
    assert {*texts} == {path.read_text() for path in cache.rglob("kernel.cu")}


def test_only_the_thread_that_records_does() -> None:
    """And a call that was remembered runs again afterwards."""
    a, b = torch.ones(16, 64, dtype=BF16), torch.ones(32, 64, dtype=BF16)
    d = torch.zeros(16, 32, dtype=BF16)

    def call() -> bool:
        d.zero_()
        for _ in range(3):  # the third one finds its launch ready
            deep_gemm.bf16_gemm_nt(a, b, d)
        return bool((d == 64).all())

    assert call()
    in_thread: list[bool] = []
    with jit.record("sm_90a") as recording:
        assert not call()
        thread = threading.Thread(target=lambda: in_thread.append(call()))
        thread.start()
        thread.join()
        assert deep_gemm.get_target("cpu") == "sm_90a"
    assert in_thread == [True]
    assert call()
    assert len(recording.kernels) == 1


def test_memory_is_only_reserved() -> None:
    """Of more bytes than any machine has."""
    rows, n, k = 1 << 26, 4096, 7168
    with jit.record("sm_90a") as recording:
        deep_gemm.bf16_gemm_nt(blank(rows, k), blank(n, k), blank(rows, n))
    assert [kernel.name.startswith("bf16_gemm_sm90_dense") for kernel in recording.kernels] == [True]
    with pytest.raises(ValueError, match=r"shape must be one that addresses can tell apart, got .* of torch.float32"):
        blank(1 << 60, dtype=torch.float32)


def test_what_cannot_be_recorded_is_refused() -> None:
    with pytest.raises(ValueError, match=r"target must be one of sm_80, .*, got 'sm_75'"), jit.record("sm_75"):
        pass
    with pytest.raises(ValueError, match="num_sms must be at least 1, got 0"), jit.record("sm_80", 0):
        pass
    with jit.record("sm_90a") as recording:
        with pytest.raises(ValueError, match="this thread's calls are recorded already"), jit.record("sm_80"):
            pass
        with pytest.raises(ValueError, match="b has K=32 but a has K=64"):
            deep_gemm.bf16_gemm_nt(blank(16, 64), blank(32, 32), blank(16, 32))
        deep_gemm.bf16_gemm_nt(blank(16, 64), blank(32, 64), blank(16, 32))
    assert len(recording.kernels) == 1


def test_one_recording_of_many_calls_is_as_many_recordings() -> None:
    """What a thread remembers from call to call of a recording is not taken for known in the next one."""
    tokens, weight, out = blank(512, 1024), blank(512, 1024), blank(512, 512)

    def recorded(rows: list[int], target: str = "sm_90a") -> set[RecordedKernel]:
        with jit.record(target) as recording:
            for m in rows:
                deep_gemm.bf16_gemm_nt(tokens[:m], weight, out[:m])
        return {*recording.kernels}

    rows = [*range(1, 512, 7), 1, 1]
    each = set().union(*(recorded([m]) for m in rows))
    assert recorded(rows) == each
    assert len(each) > 5
    assert recorded([1]) == recorded([1]) != recorded([1], "sm_80") != set()
