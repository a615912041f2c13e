"""The tiles of a last wave that few CTAs would have are shared by pairs, each of which multiplies half of K
(docs/kernels/tiles.md, "The last wave")."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import bf16_inputs
import pytest
import torch
from call_checks import settings
from candidates import forced_tile, parse
from devices import FEW
from field_calls import explain, kernel_of
from fresh import copied_package, run
from inputs import GuardedOutput, random_blocks, random_rows, random_values
from reference import BF16_TOLERANCES, assert_matches, product_nt

import deep_gemm
from deep_gemm._targets import HOPPER_SMS

WGRAD = {"recipe": (1, 1, 128)}
ADDED = {"fp32_output": 1, "per_row_b": 1, "add_c": 1, "in_place": 1}
PAIR = (1, 1, 2)
# With four SMs: tiles for all of them, once or twice, and behind those one or two for pairs.
TILES = [  # swapped, rows, cols, M, N
    (False, 128, 128, 520, 104),  # two partial sums
    (False, 128, 192, 380, 384),  # stored late, by a store warp
    (False, 256, 128, 1200, 128),  # 128 rows a warpgroup: each CTA stores half of them
    (False, 128, 112, 640, 208),
    (False, 192, 128, 200, 380),  # three math warpgroups
    (False, 64, 96, 260, 176),  # one
    (True, 128, 64, 300, 200),
    (True, 64, 32, 70, 160),
    (False, 128, 192, 100, 380),  # two tiles for two pairs: the largest share all of one wave
    (False, 192, 128, 190, 250),
]


@contextmanager
def four_sms(device: torch.device) -> Iterator[None]:
    """As the simulator has."""
    with settings(device, num_sms=4) if device.type == "cuda" else nullcontext():
        yield


def shares(swapped: bool, rows: int, cols: int, m: int, n: int, k: int, **more: int) -> bool:
    config = {"swap_ab": int(swapped), "tile_rows": rows, "tile_cols": cols, "cluster_k": 2, "num_sms": 4}
    return ".last_tiles = true" in kernel_of("dense", {"m": m, "n": n, "k": k, **config, **more})["text"]


def check(device: torch.device, m: int, n: int, k: int, *tile, cluster: tuple[int, int, int] = PAIR) -> None:
    """An FP8 product on a tile: swapped, rows, columns."""
    a, b = random_rows((m, k), device, 1), random_blocks((n, k), device, 2)
    out = GuardedOutput((m, n), torch.bfloat16, device)
    with forced_tile(device, (m, n, k), *tile, cluster):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(a, b))


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("swapped", "rows", "cols", "m", "n"), TILES)
@pytest.mark.parametrize("k", [6 * 128, 9 * 128 - 48])
def test_fp8(device, swapped, rows, cols, m, n, k) -> None:
    assert shares(swapped, rows, cols, m, n, k)
    with four_sms(device):
        check(device, m, n, k, swapped, rows, cols)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("swapped", "rows", "cols", "m", "n"),
    [(False, 128, 128, 520, 104), (False, 192, 128, 200, 380), (False, 128, 96, 300, 188), (True, 128, 64, 300, 200)],
)
@pytest.mark.parametrize("add", ["nothing", "c_is_d", "c_separate"])
def test_fp32_and_what_it_is_added_to(device, swapped, rows, cols, m, n, add) -> None:
    k = 7 * 128
    a, b, c = random_rows((m, k), device, 1), random_rows((n, k), device, 2), random_values((m, n), device, 3)
    out = GuardedOutput((m, n), torch.float32, device)
    if add == "c_is_d":
        out.tensor.copy_(c)
    added = {"nothing": None, "c_is_d": out.tensor, "c_separate": c}[add]
    with four_sms(device), forced_tile(device, (m, n, k), swapped, rows, cols, PAIR):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor, c=added, **WGRAD)
    out.check()
    assert_matches(out.tensor, product_nt(a, b, None if add == "nothing" else c))


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("n", [101, 102])
def test_rows_of_d_that_are_not_aligned(device, n) -> None:
    with four_sms(device):
        check(device, 520, n, 768, False, 128, 128)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("swapped", "rows", "cols", "m", "n"),
    [(False, 128, 128, 520, 104), (False, 128, 256, 380, 512), (True, 128, 64, 300, 200), (False, 64, 96, 260, 176)],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_bf16(device, swapped, rows, cols, m, n, dtype) -> None:
    k = 13 * 64 - 16
    a, b = bf16_inputs.operands(m, n, k, device)
    c = random_values((m, n), device, 3).to(dtype)
    out = GuardedOutput((m, n), dtype, device)
    if dtype == torch.float32:
        out.tensor.copy_(c)
    with four_sms(device), forced_tile(device, (m, n, k), swapped, rows, cols, PAIR):
        deep_gemm.bf16_gemm_nt(a, b, out.tensor, c=out.tensor if dtype == torch.float32 else None)
    out.check()
    expected = product_nt(a, b, c if dtype == torch.float32 else None)
    assert_matches(out.tensor, expected, "bf16", BF16_TOLERANCES)


CALL = """
import deep_gemm
from deep_gemm import simulator
def rows(m, seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(m, 768, generator=g).to(torch.float8_e4m3fn)
C.force_config(True, 0, 520, 100, 768, 0, ROWS, 128, 1, 1, 2, 1, 0)
a, b = (rows(M, 1), torch.ones(M, 6)), (rows(100, 2), torch.ones(1, 6))
result = []
for options in ({"schedule": "lazy"}, {"schedule": "eager"}, *({"schedule": "random", "seed": i} for i in range(4))):
    d = torch.empty(M, 100)
    with simulator.options(num_sms=4, **options):
        deep_gemm.fp8_gemm_nt(a, b, d)
    result.append(d.numpy().tobytes().hex())
result = len(set(result))
"""
MEETING = "ptx::barrier_wait(smem.ring_done(), 0);"


@pytest.mark.parametrize("rows", [128, 192])
@pytest.mark.parametrize("kept", [True, False])
def test_parts_wait_until_nothing_is_multiplied(tmp_path, rows, kept) -> None:
    """Equal bits on every schedule; and the same with that wait taken out of the kernel."""
    header = tmp_path / "package" / "include" / "deep_gemm" / "store" / "sm90" / "shared_tile.cuh"
    edit = f"""
text = open({str(header)!r}).read()
assert text.count({MEETING!r}) == 1
open({str(header)!r}, "w").write(text if {kept} else text.replace({MEETING!r}, ""))
"""
    call = CALL.replace("ROWS", str(rows)).replace("M,", f"{rows * 4 + 8},").replace("520", str(rows * 4 + 8))
    outcome = run(copied_package(tmp_path / "package") + edit + call)
    if kept:
        assert outcome.result == 1, outcome.stderr
    else:
        assert outcome.status != 0
        assert "shared memory" in outcome.stderr


def test_which_problems_share() -> None:
    """Those whose last wave has no more tiles than there are pairs."""
    text = explain("dense", {"m": 2112, "n": 4096, "k": 7168, "num_sms": HOPPER_SMS, **ADDED})
    pairs = {(c.swapped, c.rows, c.cols): c.rejection for c in parse(text) if c.cluster_shape == PAIR}
    assert pairs[False, 128, 128] is None  # 544 tiles: four waves, and 16
    assert pairs[True, 128, 64] == "no last tiles that pairs could share"  # 1,056: eight waves
    assert pairs[False, 192, 128] == "no last tiles that pairs could share"  # 352: two waves, and 88
    text = kernel_of("dense", {"m": 384, "n": 3584, "k": 18944, "num_sms": HOPPER_SMS})["text"]
    assert ".rows = 128, .cols = 192" in text  # 57 tiles: the largest share them all
    assert ".last_tiles = true" in text


@pytest.mark.kernels_of("sm90")
@pytest.mark.parametrize("device", FEW, indirect=True)
def test_not_where_bits_must_not_depend_on_m(device, batch_invariant) -> None:
    m, n, k = 520, 100, 768
    a, b = random_rows((m, k), device, 1), random_blocks((n, k), device, 2)
    out = GuardedOutput((m, n), torch.bfloat16, device)
    with (
        four_sms(device),
        forced_tile(device, (m, n, k), False, 128, 128, PAIR),
        pytest.raises(ValueError, match="set_batch_invariant forbids that"),
    ):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor)
    out.assert_untouched()
