"""Products of BF16 operands of experts and of K groups: counts, hints, sizes and tiles beside those of the matrix."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from bf16_grouped_inputs import Experts, run_contiguous, run_masked
from bf16_inputs import lying, matches, values
from candidates import forced_tile
from devices import FEW, ONE_OF_EACH_ARCH
from grouped_inputs import alignment_of
from inputs import GuardedOutput, ceil_div, random_values

import deep_gemm


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("nn", [False, True], ids=["nt", "nn"])
@pytest.mark.parametrize("psum", [False, True], ids=["indices", "psum"])
@pytest.mark.parametrize("counts", [[200], [0, 0, 33, 0], [128, 256]], ids=str)
def test_any_number_of_rows(device, counts, psum, nn) -> None:
    run_contiguous(Experts(counts, 136, 200, device), psum, nn)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("psum", [False, True], ids=["indices", "psum"])
@pytest.mark.parametrize(("alignment", "n", "k"), [(16, 1, 8), (16, 264, 512), (64, 24, 72), (128, 100, 64)])
def test_contiguous_of_odd_sizes(device, alignment, n, k, psum) -> None:
    with alignment_of(alignment):
        for nn in (False, True):
            run_contiguous(Experts([3, 129, 0, 40], n, k, device, alignment), psum, nn)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("psum", [False, True], ids=["indices", "psum"])
@pytest.mark.parametrize(("alignment", "padding"), [(16, 0), (32, 3), (48, 8), (64, 0), (224, 1)])
def test_rows_that_lie_along_m_in_any_alignment(device, alignment, padding, psum, dtype) -> None:
    """Experts start where no tile does that reads such rows where they lie, and lines where no copy engine reads."""
    case = Experts([3, 0, 40], 72, 136, device, alignment, dtype)
    m, k = case.a.shape
    room = torch.full((k, m + padding), float("nan"), dtype=dtype, device=device)
    room[:, :m] = case.a.T
    case.a = room[:, :m].T
    with alignment_of(alignment):
        run_contiguous(case, psum, nn=alignment == 48, dtype=dtype)


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize(
    ("swapped", "rows", "cols"), [(False, 128, 256), (False, 256, 128), (False, 192, 128), (True, 128, 32)]
)
@pytest.mark.parametrize("kind", ["contiguous", "masked"])
@pytest.mark.parametrize("n", [280, 276])  # whose rows of D the copy engine stores, or not
def test_tiles_of_experts(device, n, kind, swapped, rows, cols) -> None:
    k = 264
    with alignment_of(256), forced_tile(device, (600, n, k), swapped, rows, cols):
        if kind == "masked":
            run_masked([5, 0, 300, 257], 320, n, k, device, 200)
        elif rows == 128 or (n % 8 == 0 and rows == 256):  # tiles that end with their expert want the copy engine
            run_contiguous(Experts([5, 0, 300, 257], n, k, device, 256), False, False)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("expected_m", [1, 20, 64, 100_000])
@pytest.mark.parametrize("counts", [[5, 0, 130, 200], [0, 0, 0], [200, 200], [1]], ids=str)
def test_masked_with_any_hint(device, counts, expected_m) -> None:
    run_masked(counts, 200, 136, 200, device, expected_m)


def run_k_groups(
    ks: Sequence[int],
    m: int,
    n: int,
    device: torch.device,
    add: str = "nothing",
    psum_alignment: int = 0,
) -> None:
    dtype = torch.float32
    starts, ends, end = [], [], 0
    for k in ks:
        start = ceil_div(end, psum_alignment) * psum_alignment if psum_alignment else end
        starts.append(start)
        ends.append(end := start + k)
    rows_of_k = end
    sides = [values((rows_of_k, extent), device, seed) for seed, extent in ((1, m), (2, n))]
    for side in sides:
        for before, after in zip(ends, [*starts[1:], rows_of_k], strict=True):
            side[before:after] = float("nan")
    shape = (len(ks), m, n)
    c = None if add == "nothing" else (random_values(shape, device, 7) * 10).to(dtype)
    out = GuardedOutput(shape, dtype, device)
    if add == "c_is_d":
        out.tensor.copy_(c)
    sizes = torch.tensor(ends if psum_alignment else ks, dtype=torch.int32, device=device)
    a, b = (lying(side, False, padding=8) for side in sides)
    deep_gemm.k_grouped_bf16_gemm_tn_contiguous(
        a, b, out.tensor, ks, sizes, c=out.tensor if add == "c_is_d" else c, use_psum_layout=psum_alignment > 0
    )
    out.check()
    for g, (start, stop) in enumerate(zip(starts, ends, strict=True)):
        a_part, b_part = (side[start:stop].T for side in sides)
        matches(out.tensor[g], a_part, b_part, None if c is None else c[g], f"group {g} of {ks}")


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("add", ["nothing", "c_is_d", "c_separate"])
@pytest.mark.parametrize("ks", [[128], [128, 256, 0, 384], [0, 7, 145, 0], [272, 48, 1, 0, 0, 16]], ids=str)
def test_k_groups_of_any_size(device, ks, add) -> None:
    run_k_groups(ks, 72, 136, device, add)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (200, 100), (65, 264)])
def test_k_groups_of_odd_sizes(device, m, n) -> None:
    run_k_groups([100, 0, 65], m, n, device)
    with alignment_of(64):
        run_k_groups([100, 0, 64, 3], m, n, device, psum_alignment=64)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_more_k_groups_than_one_launch_takes(device) -> None:
    run_k_groups([(7 * g) % 40 for g in range(130)], 24, 16, device)


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize(("rows", "cols"), [(128, 128), (128, 256), (256, 128)])
@pytest.mark.parametrize("add", ["nothing", "c_is_d", "c_separate"])
def test_tiles_of_k_groups(device, add, rows, cols) -> None:
    with forced_tile(device, (300, 280, 256), False, rows, cols):
        run_k_groups([200, 0, 65, 64], 300, 280, device, add)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_refused_k_groups(device) -> None:
    a, b = values((128, 64), device, 1), values((128, 64), device, 2)
    d = torch.zeros(2, 64, 64, device=device)
    sizes = torch.tensor([64, 64], dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match="ks_cpu is missing"):
        deep_gemm.k_grouped_bf16_gemm_tn_contiguous(a, b, d, None, sizes, use_psum_layout=True)
    with pytest.raises(ValueError, match="sum_k=120 as ks_cpu adds up"):
        deep_gemm.k_grouped_bf16_gemm_tn_contiguous(a, b, d, [64, 56], sizes)
    with pytest.raises(ValueError, match=r"a must be .* with M contiguous"):
        deep_gemm.k_grouped_bf16_gemm_tn_contiguous(a.T.contiguous().T, b, d, [64, 64], sizes)
    assert not d.any()
