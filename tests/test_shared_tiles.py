"""Sums that are added to D in FP32: the tiles of a last wave that few CTAs would have are shared by pairs, which add
their halves one after the other (docs/kernels.md, "The last wave")."""

from __future__ import annotations

from contextlib import contextmanager

import bf16_inputs
import pytest
import torch
from candidates import HOPPER_SMS, forced_tile, parse
from devices import FEW
from fresh import copied_package, run
from inputs import GuardedOutput, random_rows, random_values
from reference import BF16_TOLERANCES, assert_matches, product_nt

import deep_gemm
from deep_gemm._extension import C

RECIPE = (1, 1, 128)
ADDED = {"fp32_output": 1, "per_row_b": 1, "add_c": 1, "in_place": 1}
PAIR = (1, 1, 2)
# With four SMs: four tiles for all of them, and behind those one or two for pairs. (swapped, rows, cols, M, N)
TILES = [
    (False, 128, 128, 520, 100),  # products by wgmma, a store warp
    (False, 128, 128, 380, 200),
    (True, 128, 64, 300, 200),  # math warps store
    (False, 128, 96, 300, 188),
    (False, 192, 128, 200, 380),  # three math warpgroups
]


@contextmanager
def four_sms(device: torch.device):
    before = deep_gemm.get_num_sms(device)
    if device.type == "cuda":
        deep_gemm.set_num_sms(4, device)
    try:
        yield
    finally:
        if device.type == "cuda":
            deep_gemm.set_num_sms(before, device)


def kernel(swapped: bool, rows: int, cols: int, m: int, n: int, k: int, **more: int) -> str:
    config = {"swap_ab": int(swapped), "tile_rows": rows, "tile_cols": cols, "cluster_k": 2, "num_sms": 4}
    return C.problem_kernel("dense", {"m": m, "n": n, "k": k, **ADDED, **config, **more})["text"]


@pytest.mark.parametrize(("swapped", "rows", "cols", "m", "n"), TILES)
@pytest.mark.parametrize("k", [6 * 128, 9 * 128 - 48])
def test_fp8(device, swapped, rows, cols, m, n, k) -> None:
    assert ".shares_last = true" in kernel(swapped, rows, cols, m, n, k)
    a, b = random_rows((m, k), device, 1), random_rows((n, k), device, 2)
    c = random_values((m, n), device, 3)
    out = GuardedOutput((m, n), torch.float32, device)
    out.tensor.copy_(c)
    with four_sms(device), forced_tile(device, (m, n, k), swapped, rows, cols, PAIR):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor, c=out.tensor, recipe=RECIPE)
    out.check()
    assert_matches(out.tensor, product_nt(a, b, c))


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize(
    ("swapped", "rows", "cols", "m", "n"), [(False, 128, 128, 520, 100), (True, 128, 64, 300, 200)]
)
def test_bf16(device, swapped, rows, cols, m, n) -> None:
    k = 13 * 64 - 16
    a, b = bf16_inputs.operands(m, n, k, device)
    c = random_values((m, n), device, 3)
    out = GuardedOutput((m, n), torch.float32, device)
    out.tensor.copy_(c)
    with four_sms(device), forced_tile(device, (m, n, k), swapped, rows, cols, PAIR):
        deep_gemm.bf16_gemm_nt(a, b, out.tensor, c=out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(a, b, c), "bf16", BF16_TOLERANCES)


CALL = """
import deep_gemm
from deep_gemm import simulator
def rows(m, seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(m, 768, generator=g).to(torch.float8_e4m3fn), torch.rand(m, 6, generator=g)
C.force_config(True, 0, 520, 100, 768, SWAPPED, 128, COLS, 1, 1, 2, 1)
c = torch.randn(520, 100, generator=torch.Generator().manual_seed(3)) * 100
result = []
for options in ({"schedule": "lazy"}, {"schedule": "eager"}, *({"schedule": "random", "seed": i} for i in range(6))):
    d = c.clone()
    with simulator.options(num_sms=4, **options):
        deep_gemm.fp8_gemm_nt(rows(520, 1), rows(100, 2), d, c=d, recipe=(1, 1, 128))
    result.append(d.numpy().tobytes().hex())
result = len(set(result))
"""
WAIT = "ptx::barrier_wait_cluster(barrier_, 0);"
LATER = "const ClusterPosition<c> position;"  # when this CTA's additions are over


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("kept", [True, False])
def test_order_of_additions_is_fixed(tmp_path, swapped, kept) -> None:
    """On every schedule. And not where the second CTA waits for the first behind its own additions."""
    header = tmp_path / "package" / "include" / "deep_gemm" / "tile" / "adding_turn.cuh"
    edit = f"""
text = open({str(header)!r}).read()
assert text.count({WAIT!r}) == text.count({LATER!r}) == 1
late = text.replace({WAIT!r}, "").replace({LATER!r}, {LATER + "if (shared_ && position.k > 0) " + WAIT!r})
open({str(header)!r}, "w").write(text if {kept} else late)
"""
    call = CALL.replace("SWAPPED", str(int(swapped))).replace("COLS", "128")
    outcome = run(copied_package(tmp_path / "package") + edit + call)
    assert outcome.status == 0, outcome.stderr
    assert (outcome.result == 1) == kept


def test_which_problems_share() -> None:
    """Those whose last wave has no more tiles than there are pairs."""
    text = C.explain("dense", {"m": 2112, "n": 4096, "k": 7168, "num_sms": HOPPER_SMS, **ADDED})
    pairs = {(c.swapped, c.rows, c.cols): c.refusal for c in parse(text) if c.cluster_shape == PAIR}
    assert pairs[False, 128, 128] is None  # 544 tiles: four waves, and 16
    assert pairs[True, 128, 64] == "no last tiles that pairs could share"  # 1,056: eight waves
    assert pairs[False, 192, 128] == "no last tiles that pairs could share"  # 352: two waves, and 88


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_not_where_bits_must_not_depend_on_m(device) -> None:
    m, n, k = 520, 100, 768
    a, b = random_rows((m, k), device, 1), random_rows((n, k), device, 2)
    d = random_values((m, n), device, 3)
    deep_gemm.set_batch_invariant(True, device)
    try:
        with four_sms(device), forced_tile(device, (m, n, k), False, 128, 128, PAIR):
            with pytest.raises(ValueError, match="set_batch_invariant forbids that"):
                deep_gemm.fp8_gemm_nt(a, b, d, c=d, recipe=RECIPE)
    finally:
        deep_gemm.set_batch_invariant(False, device)
