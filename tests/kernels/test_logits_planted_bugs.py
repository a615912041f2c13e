"""Each mistake that is planted into the kernels of index logits is found by the simulator, under one schedule or more;
as they are, they are right under every one."""

from __future__ import annotations

import re

import pytest
from fresh import copied_package, run

CALL = """
import deep_gemm
from deep_gemm import simulator
from logits_inputs import difference, fp8_dense

x = fp8_dense(24, 1600, 32, FORM[1], form=FORM[0])  # more atoms and tiles than there are stages of them
result = []
for options in ({"schedule": "lazy"}, {"schedule": "eager"}, {"schedule": "random", "seed": 1}):
    try:
        with simulator.options(target=TARGET, num_sms=1, **options):
            q = x.q if isinstance(x.q, tuple) else (x.q, None)
            logits = deep_gemm.fp8_fp4_mqa_logits(q, *x.arguments[1:], logits_dtype=torch.float32)
        result.append("" if difference(logits, x.all_logits()) < 1e-9 else "wrong numbers")
    except RuntimeError as error:
        result.append(str(error))
"""
NOT_ORDERED = "overwrite|read in flight|race"
FP8, MX = ("fp8", 128), ("mxfp8", 128)
STORE, LOAD, MULTIPLY = "store/sm100/logits.cuh", "load/sm100/logits.cuh", "mma/sm100/logits.cuh"
KERNEL, SCORE = "kernels/mqa_logits_sm100.cuh", "mma/sm90/logits.cuh"
WAIT = "ptx::barrier_wait(c.exponents ? smem_.ready(ring_.stage) : smem_.full(ring_.stage), ring_.phase);"

# What was done wrong: in which file, of what, in its place; the form of keys; and what may be reported for it.
SM100 = {
    "sums not waited for": (STORE, "ptx::barrier_wait(smem_.sums_full(group_), phase_);", "", FP8, NOT_ORDERED),
    "no fence behind the wait for sums": (
        STORE,
        "ptx::tensor_fence_after_sync();\n        const float scale",
        "const float scale",
        FP8,
        "tensor fence",
    ),
    "sums used before they are loaded": (STORE, "ptx::wait_tensor_loads();", "", FP8, "tensor wait"),
    "no fence before sums are let go": (STORE, "ptx::tensor_fence_before_sync();", "", FP8, "tensor fence"),
    "sums let go before all are loaded": (
        STORE,
        "if (first + kAtOnce == c.columns()) release",
        "if (first == 0) release",
        FP8,
        "overwrite|tensor fence|tensor wait",
    ),
    "keys not waited for": (MULTIPLY, WAIT, "", FP8, f"{NOT_ORDERED}|uninitialised|proxy fence"),
    "words multiplied before they are in order": (
        MULTIPLY,
        WAIT,
        "ptx::barrier_wait(smem_.full(ring_.stage), ring_.phase);",
        MX,
        f"{NOT_ORDERED}|proxy fence",
    ),
    "an accumulator written that is still read": (
        MULTIPLY,
        "ptx::barrier_wait(smem_.sums_empty(accumulator_.stage), accumulator_.phase ^ 1);",
        "",
        FP8,
        "overwrite|deadlock|tensor fence",
    ),
    "queries never let go by products": (
        MULTIPLY,
        "if (last) ptx::commit_tensor_work<1>(smem_.queries_empty(query_stage));",
        "",
        FP8,
        "deadlock",
    ),
    "a stage let go before its products": (
        MULTIPLY,
        "ptx::commit_tensor_work<1>(smem_.empty(ring_.stage));",
        "ptx::barrier_arrive(smem_.empty(ring_.stage));",
        MX,
        NOT_ORDERED,
    ),
    "the first step adds to what was there": (
        MULTIPLY,
        "descriptor, step > 0);\n        else if",
        "descriptor, true);\n        else if",
        FP8,
        "uninitialised|wrong numbers",
    ),
    "no fence behind words that threads wrote": (
        LOAD,
        "transpose_words(smem.key_words(ring.stage));\n            ptx::fence_for_async_proxy();",
        "transpose_words(smem.key_words(ring.stage));",
        MX,
        "proxy fence",
    ),
    "fewer bytes expected than come": (
        LOAD,
        "keys * (c.key_bytes() + 4)",
        "keys * c.key_bytes()",
        FP8,
        "transaction|read in flight|deadlock",
    ),
    "a stage filled that is still read": (
        LOAD,
        "ptx::barrier_wait(smem.empty(ring.stage), ring.phase ^ 1);",
        "",
        FP8,
        f"{NOT_ORDERED}|arrive count",
    ),
    "no fence behind the barriers' beginning": (KERNEL, "ptx::fence_barrier_init();", "", FP8, "proxy fence"),
    "tensor memory never freed": (
        KERNEL,
        "ptx::free_tensor_memory<1>(tensor_memory, kColumns);",
        ";",
        FP8,
        "tensor memory",
    ),
    "tensor memory freed while it is read": (
        KERNEL,
        "__syncwarp();\n    __syncthreads();\n    if (warp == kWords)",
        "if (warp == kWords)",
        FP8,
        f"tensor memory|{NOT_ORDERED}|early exit",
    ),
}
SM90 = {
    "keys not waited for": (
        SCORE,
        "ptx::barrier_wait(smem_.full(ring_.stage), ring_.phase);\n#pragma unroll\n            for (int32_t product",
        "\n#pragma unroll\n            for (int32_t product",
        FP8,
        f"{NOT_ORDERED}|uninitialised|deadlock|arrive count",
    ),
    "no fence before products": (SCORE, "ptx::wgmma_fence();", "", FP8, "wgmma fence"),
    "a stage let go while it is multiplied": (
        SCORE,
        "wait<0>(sums[c.products - 1]);\n            __syncwarp();",
        "__syncwarp();",
        FP8,
        f"{NOT_ORDERED}|wgmma wait",
    ),
    "a stage never let go": (
        SCORE,
        "if (lane_ == 0) ptx::barrier_arrive(smem_.empty(ring_.stage));\n            ring_.advance(kStep);\n"
        "            finish",
        "ring_.advance(kStep);\n            finish",
        FP8,
        "deadlock",
    ),
}
CASES = [("sm_100a", name, bug) for name, bug in SM100.items()] + [("sm_90a", name, bug) for name, bug in SM90.items()]


def outcomes(tmp_path, target: str, form: tuple[str, int], edit: str = "") -> list[str]:
    call = CALL.replace("FORM", repr(form)).replace("TARGET", repr(target))
    outcome = run(copied_package(tmp_path / "package") + edit + call)
    assert outcome.status == 0, outcome.stderr
    return outcome.result


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", [FP8, MX], ids=["fp8", "exponents"])
@pytest.mark.parametrize("target", ["sm_100a", "sm_90a"])
def test_without_a_bug_there_is_no_hazard(tmp_path, target, form) -> None:
    assert outcomes(tmp_path, target, form) == [""] * 3


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("target", "name", "bug"), CASES, ids=[f"{target}-{name}" for target, name, _ in CASES])
def test_a_planted_bug_is_found(tmp_path, target, name, bug) -> None:
    file, right, wrong, form, kinds = bug
    header = tmp_path / "package" / "include" / "deep_gemm" / file
    edit = f"""
text = open({str(header)!r}).read()
assert text.count({right!r}) == 1, text.count({right!r})
open({str(header)!r}, "w").write(text.replace({right!r}, {wrong!r}))
"""
    found = outcomes(tmp_path, target, form, edit)
    assert any(re.search(kinds, each) for each in found), found
