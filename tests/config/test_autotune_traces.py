"""DG_AUTOTUNE: measuring leaves no trace in a result.

Calls run in new processes that know no winner yet; every candidate runs before the call itself does.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import k_grouped_inputs as k_grouped
import pytest
import torch
from devices import ON_GPU
from fresh import check
from grouped_inputs import contiguous, masked
from inputs import GuardedOutput, ceil_div, random_blocks, random_rows, random_values
from reference import assert_matches, product_nt

import deep_gemm
from deep_gemm._extension import C

ON = [pytest.param("cpu", id="cpu"), *ON_GPU]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory) -> Path:
    """A cache of kernels that no other test uses; each problem of these tests comes once."""
    return tmp_path_factory.mktemp("kernels")


def winners(cache: Path) -> int:
    return len(list((cache / "tuned").glob("*.json")))


def check_result(kernels: Path, on: str, call: str) -> None:
    before = winners(kernels)
    clocked = f"asked = tests.measure(torch.device({on!r}))"
    code = f"import test_autotune_traces as tests\n{clocked}\ntests.{call}\nresult = asked"
    asked = check(code, DG_AUTOTUNE=1, DG_JIT_CACHE_DIR=kernels).result
    assert winners(kernels) == before + 1
    assert on == "cuda" or len(asked) > 1


def measure(device: torch.device) -> list[str]:
    """Gives the simulator a clock by which what comes last is fastest. A GPU has its own."""
    asked: list[str] = []

    def clock(config: str) -> float:
        asked.append(config)
        return 100.0 - len(asked)

    if device.type == "cpu":
        C.set_autotune(True, 0, True, clock)
    return asked


def dense(on: str, dtype: str, accumulate: str) -> None:
    m, n, k = 70, 136, 400
    a, b = random_rows((m, k), on, 0), random_blocks((n, k), on, 1)
    out = GuardedOutput((m, n), getattr(torch, dtype), on, row_stride=n + 8)
    c = random_values((m, n), on, 2).to(out.tensor.dtype)
    before = [x.view(torch.uint8).clone() for x in (*a, *b, c)]
    if accumulate == "in place":
        out.tensor.copy_(c)
    given = {"no": None, "c": c, "in place": out.tensor}[accumulate]
    deep_gemm.fp8_gemm_nt(a, b, out.tensor, given)
    out.check()
    assert_matches(out.tensor, product_nt(a, b, None if given is None else c))
    for x, y in zip((*a, *b, c), before, strict=True):
        assert torch.equal(x.view(torch.uint8), y)


def contiguous_rows(on: str, psum: bool) -> None:
    case = contiguous([5, 0, 130], 200, 256, torch.device(on))
    out = case.output()
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, case.layout(psum), use_psum_layout=psum)
    out.check(complete=False)
    case.check(out.tensor)


def masked_rows(on: str) -> None:
    counts = [5, 0, 40]
    case = masked(counts, 300, 136, 256, torch.device(on))
    out = case.output()
    before = out.tensor.view(torch.int16).clone()
    deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, case.counts, 16)
    out.check(complete=False)
    case.check(out.tensor)
    # Rows past the winner's last tile are as they were, though taller tiles were measured.
    untouched = (out.tensor.view(torch.int16) == before).all(-1)
    height = height_of_winner()
    for expert, count in enumerate(counts):
        assert untouched[expert, ceil_div(count, height) * height :].all()


def height_of_winner() -> int:
    """Rows of A in a tile of the kernel that was kept last."""
    root = deep_gemm.jit.cache_dir()
    kept = max((root / "tuned").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    (kernel,) = (root / "kernels").glob(f"*.{json.loads(kept.read_text())['winner']}/kernel.cu")
    swapped, rows, cols = re.search(
        r"swap_ab = (\w+),\s+\.tile = {\.rows = (\d+), \.cols = (\d+)", kernel.read_text()
    ).groups()
    return int(cols if swapped == "true" else rows)


def split_k(on: str, layout: str, add: str) -> None:
    k_grouped.run(k_grouped.groups(33, 136, [144, 0, 256], torch.device(on)), layout, add)


CALLS = {
    **{
        f"dense {dtype} {add}": ("dense", dtype, add)
        for dtype in ("bfloat16", "float32")
        for add in ("no", "c", "in place")
    },
    **{f"contiguous psum={psum}": ("contiguous_rows", psum) for psum in (False, True)},
    "masked": ("masked_rows",),
    **{
        f"K groups {layout} {add}": ("split_k", layout, add)
        for layout in k_grouped.LAYOUTS
        for add in ("nothing", "c_is_d", "c_separate")
    },
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("on", ON)
@pytest.mark.parametrize("call", CALLS)
def test_results_are_right_after_all_candidates_ran(kernels, on, call):
    function, *rest = CALLS[call]
    check_result(kernels, on, f"{function}({', '.join(map(repr, (on, *rest)))})")
