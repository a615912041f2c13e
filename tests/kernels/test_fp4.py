"""FP4 with FP4 (SM100, SM120): codes, the ends of K, scales behind it and of padding, tiles, words in tensor memory."""

from __future__ import annotations

import pytest
import torch
from candidates import can_serve, forced_tile, parse
from devices import MULTIPLY_FP4, SCHEDULES, on_simulator
from field_calls import explain
from fp4_operands import BYTES, NAN, assert_near, operand, recipe
from grouped_inputs import alignment_of
from inputs import GuardedOutput
from matrix import decoded

import deep_gemm
from deep_gemm import simulator

EACH_SCHEDULE = [param for arch in ("sm100", "sm120") for param in on_simulator(*SCHEDULES, arch=arch)]
KINDS = ("mxfp4", "nvfp4")
ONE = {"mxfp4": 127, "nvfp4": 0x38}  # the scale 1
CODES = torch.arange(16, dtype=torch.int8)
VALUES = decoded("e2m1r", CODES)

kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
@pytest.mark.parametrize("place", [0, 1, 31])
@pytest.mark.parametrize("device", MULTIPLY_FP4, indirect=True)
def test_each_code_times_each_code_is_exact(device, kind, place) -> None:
    """At a place of K, of which even ones are in the low half of their byte."""
    codes = torch.zeros((16, 16), dtype=torch.int8)
    codes[:, place // 2] = CODES << 4 * (place % 2)
    scales = torch.full((16, 32 // recipe(kind)[2]), ONE[kind], dtype=torch.uint8).view(BYTES[kind])
    d = GuardedOutput((16, 16), torch.float32, device)
    deep_gemm.fp4_gemm_nt((codes, scales), (codes, scales), d.tensor)
    d.check()
    assert torch.equal(d.tensor.double(), VALUES[:, None] * VALUES)


@kinds
@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("k", [2, 30, 34, 62, 66, 96, 142, 258, 288, 322, 510])
@pytest.mark.parametrize("device", MULTIPLY_FP4, indirect=True)
def test_k_may_end_anywhere(device, kind, words, k) -> None:
    """Behind its end the bytes of a word may be NaN."""
    a, b = operand(kind, 40, k, k), operand(kind, 72, k, k + 1)
    d = GuardedOutput((40, 72), torch.float32, device)
    pairs = (a.words_with_nan, b.words_with_nan) if words else (a.pair, b.pair)
    deep_gemm.fp4_gemm_nt(*pairs, d.tensor, recipe=recipe(kind))
    d.check()
    assert_near(d.tensor, a.exact, b.exact)


@kinds
@pytest.mark.parametrize("device", EACH_SCHEDULE, indirect=True)
def test_k_groups_end_anywhere(device, kind) -> None:
    """At multiples of 32, behind which words may hold NaN; the words of the next group follow."""
    ks = [96, 0, 288, 32, 640]
    operands = {rows: [operand(kind, rows, k, rows + k) for k in ks] for rows in (40, 72)}
    a, b = (
        (torch.cat([x.codes.flatten() for x in group]), torch.cat([x.words_with_nan[1].T for x in group]).contiguous())
        for group in operands.values()
    )
    d = GuardedOutput((len(ks), 40, 72), torch.float32, device)
    sizes = torch.tensor(ks, dtype=torch.int32)
    deep_gemm.k_grouped_fp4_gemm_nt_contiguous(a, b, d.tensor, ks, sizes, recipe=recipe(kind))
    d.check()
    for group in range(len(ks)):
        assert_near(d.tensor[group], operands[40][group].exact, operands[72][group].exact)


@kinds
@pytest.mark.parametrize("device", MULTIPLY_FP4, indirect=True)
def test_scales_of_padding_do_not_matter(device, kind) -> None:
    counts, n, k = [5, 0, 70], 72, 160
    heights = [128, 0, 128]
    weights = [operand(kind, n, k, seed) for seed in range(3)]
    b = tuple(
        torch.stack([x.pair[i].view(torch.uint8) for x in weights]).view((torch.int8, BYTES[kind])[i]) for i in (0, 1)
    )
    tokens = [operand(kind, height, k, 10 + height) for height in heights]
    for x, count in zip(tokens, counts, strict=True):
        x.scales[count:] = NAN[kind]
    a = (torch.cat([x.codes for x in tokens]), torch.cat([x.scales for x in tokens]).view(BYTES[kind]))
    layout = torch.full((sum(heights),), -1, dtype=torch.int32)
    start = 0
    for expert, (count, height) in enumerate(zip(counts, heights, strict=True)):
        layout[start : start + count] = expert
        start += height
    d = GuardedOutput((sum(heights), n), torch.float32, device)
    with alignment_of(128):
        deep_gemm.m_grouped_fp4_gemm_nt_contiguous(a, b, d.tensor, layout)
    d.check()
    assert_near(d.tensor[:5], tokens[0].exact[:5], weights[0].exact)
    assert_near(d.tensor[128:198], tokens[2].exact[:70], weights[2].exact)
    assert not d.tensor[layout < 0].any()
    masked = GuardedOutput((3, 128, n), torch.float32, device)
    groups = [tokens[0], tokens[2], tokens[0]]
    a = (torch.stack([x.codes for x in groups]), torch.stack([x.scales for x in groups]).view(BYTES[kind]))
    rows = torch.tensor([5, 70, 0], dtype=torch.int32)
    deep_gemm.m_grouped_fp4_gemm_nt_masked(a, b, masked.tensor, rows, 30)
    masked.check(complete=False)
    for group in (0, 1):
        assert_near(masked.tensor[group, : rows[group]], groups[group].exact[: rows[group]], weights[group].exact)


SIZES = (136, 264, 6 * 256 + 96)
FEW_SMS, MANY_SMS = 4, 256  # CTAs that split K have one tile each


def tiles(kind: str) -> list[tuple]:
    """Of each cluster, straight and swapped: the narrowest and the widest tile, and the widest that always has two
    accumulators beside several sets of words.
    """
    m, n, k = SIZES
    size = recipe(kind)[2]
    fields = {"m": m, "n": n, "k": k, "num_sms": MANY_SMS, "fp4": 1, "gran_k_a": size, "gran_k_b": size}
    legal = [  # `forced_tile` asks of a D in BF16 first
        {(c.swapped, c.cluster_shape, c.cols) for c in parse(explain("dense", each, "sm_100a")) if can_serve(c)}
        for each in (fields, {**fields, "fp32_output": 1})
    ]
    by_frame: dict[tuple, list[int]] = {}
    for *frame, cols in legal[0] & legal[1]:
        by_frame.setdefault(tuple(frame), []).append(cols)
    chosen = set()
    for frame, columns in by_frame.items():
        two_accumulators = max(cols for cols in columns if cols <= 192)
        chosen |= {(*frame, cols) for cols in (min(columns), max(columns), two_accumulators)}
    return sorted(chosen)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("kind", "tile"), [(kind, tile) for kind in KINDS for tile in tiles(kind)], ids=str)
@pytest.mark.parametrize("device", on_simulator(*SCHEDULES, arch="sm100"), indirect=True)
def test_every_tile_takes_its_words_in_turn(device, kind, tile) -> None:
    """More K blocks than sets of words in tensor memory, and several tiles for a CTA."""
    m, n, k = SIZES
    swapped, cluster, cols = tile
    a, b = operand(kind, m, k, 1), operand(kind, n, k, 2)
    d = GuardedOutput((m, n), torch.float32, device)
    pairs = [(a.pair, b.pair), (a.words_with_nan, b.words_with_nan), (a.pair, b.words_with_nan)][cols // 32 % 3]
    with (
        simulator.options(num_sms=MANY_SMS if cluster[2] > 1 else FEW_SMS),
        forced_tile(device, SIZES, swapped, 128, cols, cluster),
    ):
        deep_gemm.fp4_gemm_nt(*pairs, d.tensor, recipe=recipe(kind))
    d.check()
    assert_near(d.tensor, a.exact, b.exact)
