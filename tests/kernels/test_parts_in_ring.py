"""Warpgroups that take turns send their parts of a sum, and D, through memory that stages had (docs/kernels/tiles.md,
"Parts in the ring"). Which configs do: test_selection.py."""

from __future__ import annotations

import bf16_inputs
import pytest
import torch
from candidates import candidates, forced_tile, with_tile
from devices import FEW
from fresh import copied_package, run
from inputs import GuardedOutput, random_blocks, random_rows
from reference import TOLERANCES as ALLOWED
from reference import difference, product_nt

import deep_gemm
from deep_gemm import simulator
from deep_gemm._targets import HOPPER_SMS

CONFIGS = [(False, 64, 2), (False, 96, 2), (False, 128, 2), (True, 128, 2)]
N = 136


@pytest.mark.sampled(5)
@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize(("swapped", "cols", "k_warpgroups"), CONFIGS)
@pytest.mark.parametrize(("m", "k"), [(65, 1280), (129, 1936)])
def test_fp8(device, swapped, cols, k_warpgroups, m, k) -> None:
    a, b = random_rows((m, k), device, 4), random_blocks((N, k), device, 5)
    out = GuardedOutput((m, N), torch.bfloat16, device)
    assert with_tile(candidates(m, N, k, HOPPER_SMS), swapped, 64, cols, k_warpgroups=k_warpgroups).rejection is None
    with simulator.options(num_sms=12), forced_tile(device, (m, N, k), swapped, 64, cols, k_warpgroups=k_warpgroups):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor)
    out.check()
    assert difference(out.tensor, product_nt(a, b)).within(ALLOWED[device.type])


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize(("swapped", "cols", "k_warpgroups"), CONFIGS)
def test_bf16(device, swapped, cols, k_warpgroups) -> None:
    m, k = 129, 1200
    a, b = bf16_inputs.operands(m, N, k, device)
    out = GuardedOutput((m, N), torch.bfloat16, device)
    with simulator.options(num_sms=12), forced_tile(device, (m, N, k), swapped, 64, cols, k_warpgroups=k_warpgroups):
        deep_gemm.bf16_gemm_nt(a, b, out.tensor)
    out.check()
    bf16_inputs.matches(out.tensor, a, b)


MEETING = "if constexpr (c.split_k.parts_in_ring) ptx::named_barrier_wait(kRingDone, c.sm90.math_warpgroups * 128);"
CALL = """
import deep_gemm
from deep_gemm import simulator
C.force_config(True, 0, 64, 64, 1280, 0, 64, 64, 1, 1, 1, 2, 0)
a, b = torch.ones(64, 1280).to(torch.float8_e4m3fn), torch.ones(64, 1280).to(torch.float8_e4m3fn)
d = torch.empty(64, 64, dtype=torch.bfloat16)
deep_gemm.fp8_gemm_nt((a, torch.ones(64, 10)), (b, torch.ones(1, 10)), d)
result = d.float().unique().tolist()
"""


@pytest.mark.parametrize("kept", [True, False])
def test_parts_sent_while_others_multiply_are_found(tmp_path, kept) -> None:
    """The same call with the meeting taken out of the kernel."""
    header = tmp_path / "package" / "include" / "deep_gemm" / "store" / "sm90" / "split_k.cuh"
    edit = f"""
text = open({str(header)!r}).read()
assert text.count({MEETING!r}) == 1
open({str(header)!r}, "w").write(text if {kept} else text.replace({MEETING!r}, ""))
"""
    outcome = run(copied_package(tmp_path / "package") + edit + CALL)
    if kept:
        assert outcome.result == [1280.0], outcome.stderr
    else:
        assert outcome.status != 0
        assert "overwrite: shared memory" in outcome.stderr
