"""Index logits of sm_120a and sm_121a: exponents of queries and keys enter the instruction."""

from __future__ import annotations

import re

import pytest
import torch
from devices import SCHEDULES, on_simulator
from logits_inputs import Dense, difference, fp8_dense, fp8_paged, ragged

import deep_gemm
from deep_gemm._extension import C
from deep_gemm.logits import logits_kernels

MX = "m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0"
INSTRUCTIONS = {
    "mxfp8": f"kind::mxf8f6f4.block_scale.scale_vec::1X.{MX}",
    "mxfp4": "kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0",
}
ON_EACH_SCHEDULE = on_simulator(*SCHEDULES, arch="sm120")
FORMS = [("mxfp8", 12, 32), ("mxfp8", 20, 64), ("mxfp8", 72, 128), ("mxfp4", 20, 64), ("mxfp4", 72, 128)]
NAN = 255  # as an exponent


@pytest.mark.parametrize("target", ["sm_120a", "sm_121a", "sm_120"])
@pytest.mark.parametrize("form", INSTRUCTIONS)
def test_the_instruction(target, form) -> None:
    """Names without a letter have none: BF16 there."""
    ((name, text),) = logits_kernels(8, 64, form=form, rows=[1], target=target)
    ptx = bytes(C.jit_compile(name, text, target, "ptx")).decode()
    found = set(re.findall(r"mma\.sync\.aligned\.([\w.:]+)", ptx))
    assert found == {INSTRUCTIONS[form] if target != "sm_120" else "m16n8k16.row.col.f32.bf16.bf16.f32"}


def hide_unseen_keys(x: Dense) -> None:
    """NaN of codes and of exponents, where no row sees the key."""
    unseen = ~x.seen().any(0)
    assert unseen.any()
    x.kv[0].view(torch.uint8)[unseen] = 0x7F
    x.kv[1][unseen] = -1


@pytest.mark.sampled(5)
@pytest.mark.parametrize("device", ON_EACH_SCHEDULE, indirect=True)
@pytest.mark.parametrize(("form", "heads", "d"), FORMS)
def test_dense_and_in_blocks(device, form, heads, d) -> None:
    """Keys that no row sees are NaN; of a cache, all bytes that no row sees."""
    first, end = (keys.clamp(10, 120) for keys in ragged(7, 150))
    x = fp8_dense(7, 150, heads, d, first=first, end=end, form=form, device=device)
    hide_unseen_keys(x)
    logits = deep_gemm.fp8_fp4_mqa_logits(*x.arguments, logits_dtype=torch.float32)
    seen = x.seen()
    assert torch.equal(logits == -torch.inf, ~seen)
    assert difference(logits[seen], x.all_logits()[seen]) < 1e-12
    p = fp8_paged(torch.tensor([[70, 90], [0, 33]]), 2, heads, d, 32, form=form, device=device)
    logits = deep_gemm.fp8_fp4_paged_mqa_logits(p.q, p.cache, p.weights, p.lengths, p.table, None, 96, True)
    seen = torch.arange(96) < p.row_lengths()[:, None]
    assert torch.equal(logits == -torch.inf, ~seen)
    assert difference(logits[seen], p.reference()[:, :96][seen]) < 1e-12


@pytest.mark.parametrize("device", on_simulator("any", arch="sm120"), indirect=True)
@pytest.mark.parametrize(("form", "d"), [("mxfp8", 64), ("mxfp4", 128)])
def test_an_exponent_that_is_nan_is_its_key_s_or_its_row_s(device, form, d) -> None:
    """Of a group that D does not have it says nothing."""
    x = fp8_dense(3, 40, 8, d, form=form, device=device)
    of_keys, of_queries = x.kv[1].view(torch.uint8).view(40, 4), x.q[1].view(torch.uint8).view(3, 8, 4)
    of_keys[5, d // 32 - 1] = NAN
    of_queries[1, 3, 0] = NAN
    if d < 128:
        of_keys[:, d // 32 :] = NAN
        of_queries[..., d // 32 :] = NAN
    nan = deep_gemm.fp8_fp4_mqa_logits(*x.arguments).isnan()
    wanted = torch.zeros_like(nan)
    wanted[1], wanted[:, 5] = True, True
    assert torch.equal(nan, wanted)
