"""When the CTAs of a cluster wait for each other, and when not: half a microsecond a call (docs/notes/tried.md).

Right results: test_configs.py, test_gemm.py. That no CTA leaves too early is what the simulator sees to there.
"""

from __future__ import annotations

import pytest
import sass
import sass_sm100

from deep_gemm._extension import C
from deep_gemm._targets import HOPPER_TARGET

SPLIT = {"m": 16, "n": 576, "k": 7168, "tile_rows": 64, "tile_cols": 16, "cluster_k": 8, "swap_ab": 1}
SPLIT_SM100 = SPLIT | {"tile_rows": 128}
MULTICAST = {"m": 4096, "n": 4096, "k": 7168, "tile_rows": 256, "tile_cols": 128, "cluster_cols": 2}


def split_kernel(arch: str) -> list[int]:
    """Where CTAs split K."""
    return sass.of_problem("dense", SPLIT) if arch == "sm90" else sass_sm100.of_problem("dense", SPLIT_SM100)


@pytest.mark.parametrize("arch", ["sm90", "sm100"])
def test_copies_do_not_wait_for_other_ctas(arch) -> None:
    """Some way leads to a copy without a wait for the cluster."""
    code = split_kernel(arch)
    ways, seen = [0], set()
    while ways:
        index = ways.pop()
        if index not in seen and code[index] & sass.OPCODE != sass.CLUSTER_WAIT:
            seen.add(index)
            ways += sass.successors(code, index)
    assert any(code[index] & sass.OPCODE == sass.UTMALDG for index in seen)


def test_multicast_copies_wait_for_the_other_cta() -> None:
    """All threads do, before the roles part."""
    code = [word & sass.OPCODE for word in sass.of_problem("dense", MULTICAST)]
    assert code.count(sass.CLUSTER_ARRIVE) == code.count(sass.CLUSTER_WAIT) == 1
    assert code.index(sass.CLUSTER_ARRIVE) < code.index(sass.CLUSTER_WAIT) < code.index(sass.UTMALDG)


@pytest.mark.parametrize("arch", ["sm90", "sm100"])
def test_each_thread_meets_its_cluster_once(arch) -> None:
    """All arrive at the start, and at the end nobody does. Warps that send parts wait before their work, the others
    behind it."""
    code = [word & sass.OPCODE for word in split_kernel(arch)]
    assert code.count(sass.CLUSTER_ARRIVE) == 1
    assert code.count(sass.CLUSTER_WAIT) == 2


@pytest.mark.parametrize("arch", ["sm90", "sm100"])
def test_nobody_waits_until_other_sms_see_its_writes(arch) -> None:
    fences = [word for word in split_kernel(arch) if word & sass.OPCODE == sass.MEMBAR]
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
