"""When the CTAs of a cluster wait for each other, and when not: half a microsecond a call (docs/performance.md).

Right results: test_configs.py, test_gemm.py. That no CTA leaves too early is what the simulator sees to there.
"""

from __future__ import annotations

import pytest
import sass

from deep_gemm._extension import C
from deep_gemm._targets import HOPPER_TARGET

SPLIT = {"m": 16, "n": 576, "k": 7168, "tile_rows": 64, "tile_cols": 16, "cluster_k": 8, "swap_ab": 1}
MULTICAST = {"m": 4096, "n": 4096, "k": 7168, "tile_rows": 256, "tile_cols": 128, "cluster_cols": 2}


@pytest.mark.parametrize(("fields", "waits"), [(SPLIT, False), (MULTICAST, True)])
def test_copies_wait_for_other_ctas_only_where_they_go_there(fields, waits) -> None:
    code = [word & sass.OPCODE for word in sass.of_problem("dense", fields)]
    copy = code.index(sass.UTMALDG)
    arrived = max(index for index in range(copy) if code[index] == sass.CLUSTER_ARRIVE)
    assert (sass.CLUSTER_WAIT in code[arrived:copy]) == waits


@pytest.mark.parametrize(("fields", "waits"), [(SPLIT, 2), (MULTICAST, 3)])
def test_each_thread_meets_its_cluster_once(fields, waits) -> None:
    """The load warp, other warps of its warpgroup and the math warps arrive at the start, and at the end nobody does.
    Where K is split, the load warpgroup waits together, behind its work."""
    code = [word & sass.OPCODE for word in sass.of_problem("dense", fields)]
    assert code.count(sass.CLUSTER_ARRIVE) == 3
    assert code.count(sass.CLUSTER_WAIT) == waits


@pytest.mark.parametrize("fields", [SPLIT, MULTICAST])
def test_nobody_waits_until_other_sms_see_its_writes(fields) -> None:
    fences = [word for word in sass.of_problem("dense", fields) if word & sass.OPCODE == sass.MEMBAR]
    assert fences
    assert not any(word & sass.BEYOND_CTA for word in fences)


RELEASES = """
extern "C" __global__ void __cluster_dims__(2, 1, 1) planted(int* out) {
    out[threadIdx.x] = 1;
    asm volatile("barrier.cluster.arrive.release.aligned;\\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
"""


def test_such_waits_are_found() -> None:
    code = sass.instructions(C.jit_compile("planted", RELEASES, HOPPER_TARGET, "cubin"))
    assert any(word & sass.OPCODE == sass.MEMBAR and word & sass.BEYOND_CTA for word in code)
