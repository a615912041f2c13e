"""Contiguous tiles of 256 rows begin where an expert's rows do, whatever the alignment: the device finds the runs."""

from __future__ import annotations

import pytest
import torch
from candidates import HOPPER_SMS, forced, grouped_candidates, straight
from devices import FEW
from grouped_inputs import Contiguous, alignment_of, contiguous
from inputs import GuardedOutput, ceil_div

import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C

N, K = 392, 272


def run(
    case: Contiguous, layout: torch.Tensor, rows: int = 256, cluster_cols: int = 1, alignment: int = 128
) -> GuardedOutput:
    n, k = case.n, case.a.data.shape[1]
    found = grouped_candidates("m_contiguous", len(case.counts), case.m, n, k, 0, alignment)
    candidate = straight(found, rows, 128, (1, cluster_cols, 1))
    assert candidate.refusal is None or "twice what" in candidate.refusal
    out = case.output()
    with alignment_of(alignment), forced(case.device, 512, n, k, candidate):
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, layout)
    out.check(complete=False)
    return out


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("cluster_cols", [1, 2])
@pytest.mark.parametrize(
    "counts", [[5, 0, 130, 300], [256, 250], [1, 1, 1], [300, 40, 200, 1, 128]], ids=lambda counts: str(counts)
)
def test_against_fp64(device, counts, cluster_cols) -> None:
    case = contiguous(counts, N, K, device)
    case.check(run(case, case.indices, cluster_cols=cluster_cols).tensor)


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("missing", [0, 1, 2, 3])
def test_blocks_of_padding_are_not_written(device, missing) -> None:
    """Before an expert's block, between two, or behind it."""
    case = contiguous([5, 130, 300, 7], N, K, device)
    layout, start = case.indices, case.starts[missing]
    end = (*case.starts, case.m)[missing + 1]
    layout[start:end] = -1
    case.counts[missing] = 0
    out = run(case, layout)
    case.check(out.tensor)
    assert out.tensor[start:end].isnan().all()


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("cut_rows", [50, 120])
def test_the_last_tile_may_be_cut(device, cut_rows) -> None:
    for counts in ([200, 5], [5, 200, 8], [256, 6]):
        case = contiguous(counts, N, K, device, cut_rows=cut_rows)
        case.check(run(case, case.indices).tensor)


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_an_expert_may_come_twice(device) -> None:
    case = contiguous([100, 200, 20], N, K, device)
    layout = case.indices
    layout[layout == 2] = 0  # expert 0 again, behind expert 1
    b = case.b.data.clone(), case.b.scales.clone()
    case.b.data[2], case.b.scales[2] = b[0][0], b[1][0]
    case.check(run(case, layout).tensor)


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("alignment", [64, 192, 256])
def test_other_alignments(device, alignment) -> None:
    case = contiguous([100, 0, 300, 1, 70], N, K, device, alignment=alignment)
    case.check(run(case, case.indices, alignment=alignment).tensor)


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_the_same_bits_as_lower_tiles(device) -> None:
    """Which multiply another way: with a second partial accumulator."""
    case = contiguous([300, 40, 200, 128], N, K, device)
    high, low = (run(case, case.indices, rows).tensor for rows in (256, 128))
    real = case.indices >= 0
    assert torch.equal(high[real].view(torch.int16), low[real].view(torch.int16))


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_layouts_of_several_passes(device) -> None:
    """16,384 rows are looked at in one pass: experts end there, cross it, or are many on both sides."""
    for counts in ([16384, 130], [16300, 900], [40] * 127 + [200] + [70] * 8):
        case = contiguous(counts, 16, 16, device)
        case.check(run(case, case.indices).tensor)


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_more_runs_than_any_legal_layout_has(device) -> None:
    """Nothing is written beyond the table, or beyond D."""
    case = contiguous([64] * 260, 16, 16, device, alignment=64)
    layout = case.indices
    found = grouped_candidates("m_contiguous", 260, case.m, 16, 16, 0, 128)
    out = case.output()
    with forced(case.device, 512, 16, 16, straight(found, 256, 128)):  # 64 rows an expert, though 128 are promised
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, layout)
    out.check(complete=False)


@pytest.mark.parametrize("counts", [[200, 5], [130, 250], [5, 130, 300], [128, 300, 128]], ids=str)
def test_each_tile_is_of_one_expert(counts) -> None:
    """Its weights and scales are copied once: an expert that begins in the middle of 256 rows costs no more."""
    case = contiguous(counts, 128, K, "cpu")
    case.check(run(case, case.indices).tensor)
    report = simulator.last_report()
    assert report is not None
    found = report.statistics["instructions"]
    copies = sum(n for name, n in found.items() if name.startswith("cp.async.bulk.tensor.3d.shared::cluster"))
    of_64_rows, tiles = (sum(ceil_div(count, rows) for count in counts) for rows in (64, 256))
    assert copies == ceil_div(K, 128) * (of_64_rows + 2 * tiles)


def test_refusals() -> None:
    problem = {"m": 8192, "n": 6142, "k": 7168, "groups": 4, "num_sms": HOPPER_SMS, "tile_rows": 256, "tile_cols": 128}
    with pytest.raises(ValueError, match="stored by the copy engine"):  # rows of D do not start at 16 bytes
        C.problem_kernel("m_contiguous", problem)
    with pytest.raises(ValueError, match="do not start at multiples of 64"):
        C.problem_kernel("m_contiguous", problem | {"n": 6144, "alignment": 96})
    with pytest.raises(ValueError, match="more runs of rows"):
        C.problem_kernel("m_contiguous", problem | {"n": 6144, "m": 1 << 18})


def test_the_table_has_room_for_few_kernels() -> None:
    def kernel(m: int) -> str:
        problem = {"m": m, "n": 6144, "k": 7168, "groups": 64, "num_sms": HOPPER_SMS}
        return str(C.problem_kernel("m_contiguous", problem | {"tile_rows": 256, "tile_cols": 128})["text"])

    assert kernel(1024) == kernel(16384) == kernel(30000)
    assert kernel(40000) != kernel(30000)


@pytest.mark.parametrize("m", [30000, 60000, 97000])
def test_the_table_takes_no_stage(m) -> None:
    found = grouped_candidates("m_contiguous", 64, m, 6144, 7168, 0, 128, HOPPER_SMS)
    assert straight(found, 256, 128).stages == 4
