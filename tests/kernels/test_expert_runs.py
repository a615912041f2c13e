"""Contiguous tiles begin where an expert's rows do, whatever the alignment: the device finds the runs of its rows."""

from __future__ import annotations

import pytest
import torch
from candidates import forced, grouped_candidates, straight, with_tile
from devices import EVERY_DEVICE, FEW
from field_calls import kernel_of
from grouped_inputs import (
    Contiguous,
    alignment_of,
    assert_zero_padding,
    contiguous,
    poison_rows,
    run_more_runs_than_any_legal_layout_has,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import GuardedOutput, Operand, ceil_div
from reference import assert_matches, product_nt
from sampling import examples

import deep_gemm
from deep_gemm import simulator
from deep_gemm._targets import HOPPER_SMS

N, K = 392, 272
STORED_BOX = "cp.async.bulk.tensor.3d.global.shared::cta"
# swapped, rows, cols: of one and two warpgroups, of each way through the K blocks, and of 64 to 256 rows of an expert.
HIGH = (False, 256, 128)
TILES = [HIGH, (False, 128, 192), (False, 128, 96), (False, 64, 128), (True, 128, 64)]


def height(tile: tuple[bool, int, int]) -> int:
    swapped, rows, cols = tile
    return cols if swapped else rows


def run(
    case: Contiguous,
    layout: torch.Tensor,
    tile: tuple[bool, int, int] = HIGH,
    cluster: tuple[int, int, int] = (1, 1, 1),
    alignment: int = 128,
) -> GuardedOutput:
    n, k = case.n, case.a.data.shape[1]
    found = grouped_candidates("m_contiguous", len(case.counts), case.m, n, k, 0, alignment)
    candidate = with_tile(found, *tile, cluster)
    assert candidate.rejection is None or "twice what" in candidate.rejection
    out = case.output()
    with alignment_of(alignment), forced(case.device, 512, n, k, candidate):
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, layout)
    out.check(complete=False)
    assert_zero_padding(out.tensor, layout, len(case.counts))
    return out


@pytest.mark.sampled(5)
@pytest.mark.parametrize("device", EVERY_DEVICE, indirect=True)
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("counts", [[5, 0, 130, 300], [256, 250], [1, 1, 1], [300, 40, 200, 1, 128]], ids=str)
def test_against_fp64(device, counts, tile) -> None:
    case = contiguous(counts, N, K, device)
    case.check(run(case, case.indices, tile).tensor)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("n", [N, N - 1], ids=["by the copy engine", "from registers"])
@pytest.mark.parametrize("alignment", [128, 256])
@pytest.mark.parametrize("tile", [*TILES[1:], (True, 128, 128)], ids=str)
def test_rows_may_begin_behind_padding(device, tile, alignment, n) -> None:
    """Of a block of rows as high as the tile, the first 64 or those between are none's, as where tokens were dropped:
    the tile behind them leaves the next expert's rows alone."""
    case = contiguous([64, 250, 250, 128, 70], n, K, device, alignment=alignment)
    layout = case.indices
    for expert, first in ((1, 128), (2, 0), (3, 0)):
        row = case.starts[expert] + first
        layout[row : row + 64] = -1
    poison_rows(case.a, layout < 0)
    found = run(case, layout, tile, alignment=alignment).tensor
    for expert in range(5):
        rows = (layout == expert).nonzero().flatten()
        a, b = case.a, Operand(case.b.data[expert], case.b.scales[expert])
        assert_matches(found[rows], product_nt(Operand(a.data[rows], a.scales[rows]), b), f"expert {expert},")
    if device.type == "cpu" and tile[0] and height(tile) > 64 and n == N:  # whoever writes last, none may write more
        of_64_rows = int((layout.view(-1, 64) >= 0).any(1).sum())
        assert boxes_stored() == of_64_rows * ceil_div(N, tile[1]) * tile[1] // 16


def boxes_stored() -> int:
    report = simulator.last_report()
    assert report is not None
    return sum(n for name, n in report.statistics["instructions"].items() if name.startswith(STORED_BOX))


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_pairs(device) -> None:
    case = contiguous([5, 0, 130, 300], N, K, device)
    case.check(run(case, case.indices, cluster=(1, 2, 1)).tensor)


def multiplications() -> int:
    """Of the simulator's last launch."""
    report = simulator.last_report()
    assert report is not None
    return report.statistics["matrix_multiplies"]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("missing", [0, 1, 2, 3])
def test_blocks_of_padding_are_not_computed(missing, tile) -> None:
    """Before an expert's block, between two, or behind it; they become zeros all the same."""
    case = contiguous([5, 130, 300, 7], N, K, torch.device("cpu"))
    run(case, case.indices, tile)
    of_all = multiplications()
    layout, start = case.indices, case.starts[missing]
    end = (*case.starts, case.m)[missing + 1]
    layout[start:end] = -1
    case.counts[missing] = 0
    case.check(run(case, layout, tile).tensor)
    assert multiplications() < of_all


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("cut_rows", [50, 120])
def test_the_last_tile_may_be_cut(device, cut_rows, tile) -> None:
    for counts in ([200, 5], [5, 200, 8], [256, 6]):
        case = contiguous(counts, N, K, device, cut_rows=cut_rows)
        case.check(run(case, case.indices, tile).tensor)


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_an_expert_may_come_twice(device, tile) -> None:
    case = contiguous([100, 200, 20], N, K, device)
    layout = case.indices
    layout[layout == 2] = 0  # expert 0 again, behind expert 1
    b = case.b.data.clone(), case.b.scales.clone()
    case.b.data[2], case.b.scales[2] = b[0][0], b[1][0]
    case.check(run(case, layout, tile).tensor)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("alignment", [64, 192, 256])
def test_other_alignments(device, alignment, tile) -> None:
    """Straight tiles that end with their expert leave the next one's rows alone."""
    case = contiguous([100, 0, 300, 1, 70], N, K, device, alignment=alignment)
    case.check(run(case, case.indices, tile, alignment=alignment).tensor)


@st.composite
def layouts(draw) -> tuple[list[int], int, bool, int]:
    """Tokens of each expert, the alignment, whether padding names its expert too, and one of the legal tiles."""
    tokens = st.one_of(st.just(0), st.sampled_from([1, 63, 64, 65, 127, 128, 129]), st.integers(1, 300))
    counts = draw(st.lists(tokens, min_size=1, max_size=6).filter(any))
    return counts, draw(st.sampled_from([64, 128, 192, 256])), draw(st.booleans()), draw(st.integers(0, 99))


@settings(max_examples=examples(12), deadline=None)
@given(
    layout=layouts(), n=st.integers(1, 40).map(lambda chunks: 8 * chunks), k=st.integers(1, 17).map(lambda x: 16 * x)
)
def test_any_layout_and_tile(layout, n, k) -> None:
    counts, alignment, named, chosen = layout
    case = contiguous(counts, n, k, "cpu", alignment=alignment)
    indices = case.indices
    if named:
        for start, end in zip(case.starts, (*case.starts[1:], case.m), strict=True):
            indices[start:end] = indices[start] if start < end else -1
    found = grouped_candidates("m_contiguous", len(counts), case.m, n, k, 0, alignment)
    legal = [candidate for candidate in found if candidate.rejection is None]
    candidate = legal[chosen % len(legal)]
    tile = (candidate.swapped, candidate.rows, candidate.cols)
    case.check(run(case, indices, tile, candidate.cluster_shape, alignment).tensor)


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_three_warpgroups(device) -> None:
    case = contiguous([100, 0, 300, 1, 70], N, K, device, alignment=192)
    case.check(run(case, case.indices, (False, 192, 128), alignment=192).tensor)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("tile", TILES[1:], ids=str)
def test_the_same_bits_as_other_tiles(device, tile) -> None:
    """Which multiply another way: with a second partial accumulator."""
    case = contiguous([300, 40, 200, 128], N, K, device)
    high, low = (run(case, case.indices, each).tensor for each in (HIGH, tile))
    real = case.indices >= 0
    assert torch.equal(high[real].view(torch.int16), low[real].view(torch.int16))


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("tile", [HIGH, (False, 64, 64)], ids=str)
def test_layouts_of_several_passes(device, tile) -> None:
    """All threads look at 128 rows each in one pass: experts end there, cross it, or are many on both sides."""
    rows = 128 * (384 if tile == HIGH else 256)
    for counts in ([rows, 130], [rows - 84, 900], [40] * (rows // 256 - 1) + [rows // 2 + 200] + [70] * 8):
        case = contiguous(counts, 16, 16, device)
        case.check(run(case, case.indices, tile).tensor)


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("tile", [(False, 128, 96), (True, 128, 64)], ids=str)
def test_more_rows_than_the_table_has_room_for(device, tile) -> None:
    """The layout itself then tells each tile's expert. Most rows are padding."""
    rows = 98304 + 128
    problem = {"m": rows, "n": 16, "k": 16, "groups": 5, "num_sms": HOPPER_SMS}
    names = ("swap_ab", "tile_rows", "tile_cols")
    kernel = kernel_of("m_contiguous", problem | dict(zip(names, map(int, tile), strict=True)))
    assert ".group_capacity = 0" in str(kernel["text"])
    case = contiguous([40, 200, 98304 - 768, 300, 100], 16, 16, device)
    layout = case.indices
    assert case.m == rows
    layout[case.starts[2] + 150 : case.starts[3]] = -1
    case.counts[2] = 150
    case.check(run(case, layout, tile).tensor)


@pytest.mark.gpu
def test_more_runs_than_any_legal_layout_has(cuda) -> None:
    """Nothing is written beyond the table, or beyond D."""
    run_more_runs_than_any_legal_layout_has(cuda)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("tile", [HIGH, (False, 128, 128), (False, 64, 128), (True, 128, 64)], ids=str)
@pytest.mark.parametrize("counts", [[200, 5], [130, 250], [5, 130, 300], [128, 300, 128]], ids=str)
def test_each_tile_is_of_one_expert(counts, tile) -> None:
    """Its weights and scales are copied once: an expert that begins in the middle of 256 rows costs no more, and one of
    64 rows has one tile of them."""
    case = contiguous(counts, 128, K, "cpu")
    case.check(run(case, case.indices, tile).tensor)
    report = simulator.last_report()
    assert report is not None
    found = report.statistics["instructions"]
    copies = sum(n for name, n in found.items() if name.startswith("cp.async.bulk.tensor.3d.shared::cluster"))
    of_64_rows, tiles = (sum(ceil_div(count, rows) for count in counts) for rows in (64, height(tile)))
    assert copies == ceil_div(K, 128) * ((of_64_rows if tile == HIGH else tiles) + 2 * tiles)


def test_blocks_of_one_expert_are_walked_together() -> None:
    """Those of other experts read other weights: CTAs side by side share rows or weights, not neither."""
    few, many = (grouped_candidates("m_contiguous", 32, m, 6144, 7168, 0) for m in (4096, 16384))
    assert straight(few, 128, 192).strip == 1
    assert straight(few, 64, 128).strip == 2
    assert straight(many, 128, 192).strip == 4


def test_rejections() -> None:
    problem = {"m": 8192, "n": 6142, "k": 7168, "groups": 4, "num_sms": HOPPER_SMS, "tile_rows": 256, "tile_cols": 128}
    with pytest.raises(ValueError, match="stored by the copy engine"):  # rows of D do not start at 16 bytes
        kernel_of("m_contiguous", problem)
    with pytest.raises(ValueError, match="do not start at multiples of 64"):
        kernel_of("m_contiguous", problem | {"n": 6144, "alignment": 96})
    with pytest.raises(ValueError, match="more runs of rows"):
        kernel_of("m_contiguous", problem | {"n": 6144, "m": 1 << 18})
    with pytest.raises(ValueError, match="does not divide the experts' alignment"):
        kernel_of("m_contiguous", problem | {"n": 6144, "tile_rows": 192})
    with pytest.raises(ValueError, match="would spill"):
        kernel_of("m_contiguous", problem | {"n": 6144, "swap_ab": 1})


def test_the_table_has_room_for_few_kernels() -> None:
    def kernel(m: int) -> str:
        problem = {"m": m, "n": 6144, "k": 7168, "groups": 64, "num_sms": HOPPER_SMS}
        return str(kernel_of("m_contiguous", problem | {"tile_rows": 256, "tile_cols": 128})["text"])

    assert kernel(1024) == kernel(16384) == kernel(30000)
    assert kernel(40000) != kernel(30000)


@pytest.mark.parametrize("m", [30000, 60000, 97000])
def test_the_table_takes_no_stage(m) -> None:
    found = grouped_candidates("m_contiguous", 128, m, 6144, 7168, 0, 128, HOPPER_SMS)
    assert straight(found, 256, 128).stages == 4
