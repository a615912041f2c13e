"""Selection: for every legal problem a config comes back, it fits, and equal problems get equal configs."""

from __future__ import annotations

import re
import shutil

import pytest
from candidates import candidates, parse, straight
from cases import ODD, PUBLIC
from fake_driver import launches
from field_calls import explain, kernel_of
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_gemm._targets import HOPPER_SMS

MAX_SMEM_BYTES = 232448


def check(m: int, n: int, k: int, num_sms: int) -> None:
    every = candidates(m, n, k, num_sms)
    legal = [candidate for candidate in every if candidate.rejection is None]
    assert legal, f"no config for {(m, n, k, num_sms)}"
    assert every[: len(legal)] == legal, "refused candidates must come last"
    costs = [candidate.cost for candidate in legal]
    assert costs == sorted(costs)
    assert costs[0] > 0
    for candidate in legal:
        assert candidate.smem <= MAX_SMEM_BYTES
        assert candidate.stages >= 2
        assert 1 <= candidate.ctas <= num_sms
        assert candidate.ctas % candidate.cluster == 0
        assert candidate.rows % 64 == 0
        assert candidate.cols % 8 == 0
        assert candidate.cols <= 256
    for candidate in every[len(legal) :]:
        assert candidate.rejection, "a refused candidate must say why"


@settings(max_examples=300, deadline=None)
@given(
    m=st.one_of(st.integers(1, 300), st.integers(1, 1 << 20)),
    n=st.one_of(st.integers(1, 300), st.integers(1, 1 << 18)),
    k=st.one_of(st.integers(1, 64), st.integers(1, 1 << 14)).map(lambda blocks: blocks * 16),
    num_sms=st.sampled_from([1, 2, 7, 78, 114, HOPPER_SMS, 148]),
)
def test_every_legal_problem_has_a_config_that_fits(m, n, k, num_sms) -> None:
    check(m, n, k, num_sms)


@pytest.mark.parametrize(("m", "n", "k"), [*PUBLIC, *ODD])
def test_known_problems(m, n, k) -> None:
    check(m, n, k, HOPPER_SMS)


def test_equal_problems_get_equal_configs() -> None:
    problem = ("dense", {"m": 4096, "n": 7168, "k": 2048, "num_sms": HOPPER_SMS})
    assert explain(*problem) == explain(*problem)


WEIGHT_GRADIENT = {"per_row_b": 1, "fp32_output": 1, "add_c": 1, "in_place": 1}


def strip(kind: str, rows: int, cols: int, **fields: int) -> int:
    return straight(parse(explain(kind, {"num_sms": HOPPER_SMS, **fields})), rows, cols).strip


@pytest.mark.parametrize(
    ("m", "n", "k", "height"),
    [
        (4096, 24576, 1536, 16),  # the L2 keeps all of A: B is read once
        (4096, 7168, 16384, 8),  # it does not: a wave of 132 tiles is a square
        (4096, 2048, 1536, 4),  # it keeps B, the smaller one: A is read once anyway
        (16384, 8192, 7168, 8),  # the smaller one, but too large for that
    ],
)
def test_strips_are_as_high_as_saves_most_reads(m, n, k, height) -> None:
    assert strip("dense", 256, 128, m=m, n=n, k=k) == height


def test_strips_are_higher_where_d_is_added_to() -> None:
    """As many rows of A as the L2 keeps, if not all: the memory is busy with D."""
    sizes = {"m": 7168, "n": 16384, "k": 4096}
    assert strip("dense", 128, 128, **sizes) < (12 << 20) // (128 * 4096)
    assert strip("dense", 128, 128, **sizes, **WEIGHT_GRADIENT) == (12 << 20) // (128 * 4096)


def test_strips_hold_a_whole_group() -> None:
    """Masked ones as large as groups scatter around what the caller expects, but no larger than their matrix."""
    fields = {"groups": 6, "n": 6144, "k": 7168, "expected_m": 1024}
    assert strip("masked", 128, 192, m=4096, **fields) == 11
    assert strip("masked", 128, 192, m=1024, **fields) == 8
    assert strip("masked", 256, 128, m=4096, groups=32, n=6144, k=7168, expected_m=192) == 1


SIZES = {"m": 512, "n": 576, "k": 7168, "num_sms": HOPPER_SMS}


@pytest.mark.parametrize(("m", "stages"), [(4096, 3), (512, 4)])
def test_tall_tiles_give_up_a_stage_only_for_a_next_tile(m, stages) -> None:
    """All of D staged takes the room of one: worth it where a CTA has many tiles, of which one is stored under the
    next."""
    assert straight(candidates(m, 7168, 4096), 256, 128).stages == stages


@pytest.mark.parametrize(
    ("m", "n", "k", "rows", "cols", "stages", "others"),
    [
        (512, 24576, 1536, 128, 192, 5, {}),  # 3.9 tiles a CTA
        (1024, 24576, 1536, 128, 192, 4, {}),  # 7.8
        (640, 16384, 2048, 128, 128, 6, {}),  # 4.8
        (512, 32768, 512, 128, 128, 5, {}),  # 7.8
        (4096, 4096, 7168, 256, 128, 4, {}),  # 3.9
        (4096, 5120, 7168, 256, 128, 3, {}),  # 4.8
        (512, 7168, 2048, 128, 112, 6, {}),  # buffers of 32 bytes a row
        (256, 24576, 1536, 128, 192, 5, {"bf16": 1}),
        (640, 24576, 1536, 128, 192, 4, {"bf16": 1}),  # 4.8
        (4096, 576, 7168, 128, 144, 6, {"bf16": 1}),  # buffers of 32 bytes a row, but BF16
        (128, 7168, 2048, 64, 112, 9, {"bf16": 1}),  # and 64 rows
    ],
)
def test_few_tiles_give_up_buffers_for_a_stage(m, n, k, rows, cols, stages, others) -> None:
    """Operands come from memory then, and take longest while D goes there."""
    found = parse(explain("dense", {"m": m, "n": n, "k": k, "num_sms": HOPPER_SMS, **others}))
    assert straight(found, rows, cols).stages == stages


@pytest.mark.parametrize(
    ("m", "n", "k", "k_warpgroups"), [(32, 4096, 7168, 2), (64, 4096, 7168, 2), (128, 2048, 1024, 1)]
)
def test_narrow_tiles_take_turns_where_k_is_long(m, n, k, k_warpgroups) -> None:
    """Turns hide a few cycles of each K block, and cost something once."""
    best = candidates(m, n, k)[0]
    assert (best.rows, best.k_warpgroups) == (64, k_warpgroups)
    assert best.cols <= 48


def test_a_ring_that_the_math_warps_hold_is_slow() -> None:
    """Two warpgroups with two accumulators each hold four of eight stages: measured 19.8 us, and one, which holds two,
    15.7 (docs/notes/tried.md: turns_rings)."""
    one, two = (
        next(
            c
            for c in candidates(256, 4096, 7168)
            if (c.swapped, c.rows, c.cols, c.cluster, c.k_warpgroups) == (False, 64, 128, 1, k_warpgroups)
        )
        for k_warpgroups in (1, 2)
    )
    assert one.stages - 2 > two.stages - 4
    assert two.cost > one.cost


@pytest.mark.parametrize(
    ("grouping", "sizes"),
    [
        ("dense", {"m": 4096, "n": 32768, "k": 512}),
        ("dense", {"m": 4096, "n": 7168, "k": 16384}),
        ("masked", {"m": 4096, "groups": 32, "expected_m": 192, "n": 6144, "k": 7168}),
        ("m_contiguous", {"m": 64 * 160, "groups": 64, "n": 6144, "k": 7168}),
    ],
)
def test_many_rows_get_pairs_of_256x128(grouping, sizes) -> None:
    """As was measured fastest (calibration_h200_high, _tall). What 256 rows cost at the end of a tile decides
    the first, what pairs cost the others."""
    best = parse(explain(grouping, {"num_sms": HOPPER_SMS, **sizes}))[0]
    assert (best.rows, best.cols, best.cluster_shape) == (256, 128, (1, 2, 1))


def test_experts_and_splits_of_k_keep_their_buffers() -> None:
    experts = {"groups": 2, "m": 256, "n": 6144, "k": 7168, "expected_m": 256, "num_sms": HOPPER_SMS}
    assert straight(parse(explain("masked", experts)), 128, 192).stages == 4
    assert straight(candidates(128, 7168, 16384), 128, 112, (1, 1, 2)).stages == 5


@pytest.mark.parametrize(("n", "legal"), [(1920, True), (1984, False)])
def test_as_many_clusters_of_four_as_fit(n, legal) -> None:
    """30, as the driver says of 132 SMs. A split K with one more waits for a second wave."""
    [split] = [
        c
        for c in candidates(1, n, 8192)
        if (c.swapped, c.rows, c.cols, c.cluster_shape, c.k_warpgroups) == (True, 64, 8, (1, 1, 4), 1)
    ]
    assert (split.rejection is None) == legal
    assert legal or "all tiles at once" in split.rejection


# One product from operands that lie differently: rows apart by K, by a line's multiple, by 16 bytes more than one;
# weights [G, N, K] whose matrices are 16 bytes further apart; K groups of either kind.
ROWS_APART = """
def operand(stride, groups=1, gap=0, rows=2048):
    flat = torch.zeros(groups * (rows * stride + gap), dtype=torch.uint8)
    shape, strides = (rows, 2048), (stride, 1)
    if groups > 1:
        shape, strides = (groups, *shape), (rows * stride + gap, *strides)
    return pose_as_cuda(flat.as_strided(shape, strides).view(torch.float8_e4m3fn))
sfa, sfb = pose_as_cuda(torch.ones(16, 2048).T), pose_as_cuda(torch.ones(16, 16))
d = pose_as_cuda(torch.zeros(2048, 2048).bfloat16())
for stride in (2048, 2176, 2064):
    deep_gemm.fp8_gemm_nt((operand(stride), sfa), (operand(stride), sfb), d)
sfa, sfb = pose_as_cuda(torch.ones(16, 8192).T), pose_as_cuda(torch.ones(2, 16, 16))
d, owners = pose_as_cuda(torch.zeros(8192, 2048).bfloat16()), pose_as_cuda(torch.zeros(8192, dtype=torch.int32))
for stride, gap in ((2048, 0), (2064, 0), (2048, 16)):
    a, b = operand(stride, rows=8192), operand(stride, 2, gap)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous((a, sfa), (b, sfb), d, owners)
d = pose_as_cuda(torch.zeros(2, 2048, 2048))
for k in (2048, 2064):
    flat = pose_as_cuda(torch.zeros(2 * 2048 * k, dtype=torch.uint8).view(torch.float8_e4m3fn))
    scales, sizes = pose_as_cuda(torch.ones(2 * -(-k // 128), 2048)), pose_as_cuda(torch.tensor([k, k]).int())
    deep_gemm.k_grouped_fp8_gemm_nt_contiguous((flat, scales), (flat, scales), d, [k, k], sizes)
"""


def clusters(problem: tuple[str, dict[str, int]]) -> str:
    return re.search(r"cluster = \{([^}]*)\}", str(kernel_of(*problem)["text"])).group(1)


def test_rows_that_start_within_lines_are_shared_by_pairs() -> None:
    """Copies of them bind the L2, and a pair asks it for half as much."""
    for grouping, fields in (("dense", {"m": 2048}), ("masked", {"m": 256, "groups": 16, "expected_m": 256})):
        aligned, other = ((grouping, {"num_sms": HOPPER_SMS, "n": 2048, "k": k, **fields}) for k in (2048, 2064))
        assert clusters(aligned) == ".rows = 1, .cols = 1, .k = 1"
        assert clusters(other) != ".rows = 1, .cols = 1, .k = 1"


@pytest.mark.parametrize(("m", "n", "k", "fp32"), [(4096, 7168, 1024, 0), (300, 4096, 4096, 1)])
def test_c_is_read_by_straight_tiles_that_do_not_look_ahead(m, n, k, fp32) -> None:
    """Others read it an element at a time, or under wgmma."""
    fields = {"num_sms": HOPPER_SMS, "m": m, "n": n, "k": k, "fp32_output": fp32}
    plain, added = (str(kernel_of("dense", {**fields, "add_c": add})["text"]) for add in (0, 1))
    assert "look_ahead = true" in plain or "swap_ab = true" in plain
    assert "look_ahead = true" not in added
    assert "swap_ab = true" not in added


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_how_rows_lie_is_seen() -> None:
    lines = launches(ROWS_APART)
    # Pairs, which ask the L2 for one operand once, where rows of either operand start within lines.
    assert ["cluster 2 1 1" in line for line in lines] == [False, False, True, False, True, True, False, True]


@pytest.mark.parametrize(
    ("fields", "rows", "cols", "cluster_k", "k_warpgroups", "shared", "stages"),
    [
        ({}, 64, 64, 1, 2, True, 12),
        ({}, 64, 128, 1, 2, True, 8),
        ({"bf16": 1}, 64, 128, 1, 2, True, 8),
        ({}, 64, 32, 1, 2, False, 16),  # deep enough
        ({}, 64, 64, 2, 2, False, 10),  # CTAs that split K would have to meet
        ({}, 128, 128, 2, 1, False, 4),
    ],
)
def test_parts_of_sums_lie_in_a_short_ring(fields, rows, cols, cluster_k, k_warpgroups, shared, stages) -> None:
    tile = {"tile_rows": rows, "tile_cols": cols, "cluster_k": cluster_k, "k_warpgroups": k_warpgroups}
    sizes = {"m": 256, "n": 576, "k": 7168, "num_sms": HOPPER_SMS}
    text = str(kernel_of("dense", {**sizes, **fields, **tile})["text"])
    assert (".parts_in_ring = true" in text) == shared
    assert f".stages = {stages}," in text


@pytest.mark.parametrize(
    ("m", "n", "k", "rows", "cols", "cluster", "k_warpgroups"),
    [
        (192, 3072, 8192, 64, 80, 1, 2),  # by 4 %, since the parts lie in the ring
        (128, 2112, 7168, 64, 64, 2, 1),  # by 2 %, since clusters of a GPC are neighbours
        (256, 2112, 7168, 128, 64, 2, 1),  # 2 %
    ],
)
def test_turns_and_splits_where_they_were_faster(m, n, k, rows, cols, cluster, k_warpgroups) -> None:
    """Than the best of the other kind."""
    pick = candidates(m, n, k)[0]
    assert (pick.swapped, pick.rows, pick.cols, pick.cluster, pick.k_warpgroups) == (
        False,
        rows,
        cols,
        cluster,
        k_warpgroups,
    )


@pytest.mark.parametrize("k", [4096, 7168])
def test_bf16_weights_that_two_read_are_not_split(k) -> None:
    """A fifth slower on an H100 (calibration_h100.json)."""
    sizes = {"m": 128, "n": 4096, "k": k, "bf16": 1, "num_sms": HOPPER_SMS}
    pick = parse(explain("dense", sizes))[0]
    assert pick.cluster == 1


@pytest.mark.parametrize(
    ("m", "n", "k", "groups", "cols"),
    [
        (1536, 2048, 256, 128, 128),
        (3072, 4096, 1024, 32, 128),
        (4096, 14336, 1024, 8, 128),
        (7168, 2048, 8192, 4, 256),
    ],
)
def test_bf16_additions_want_a_store_warp_where_k_is_small(m, n, k, groups, cols) -> None:
    """128x256 has no room for a tile of D: its math warps add between tiles, and multiply nothing meanwhile."""
    layout = {"bf16": 1, "mn_major_a": 1, "mn_major_b": 1, "group_maps": 1, "num_sms": HOPPER_SMS}
    added = {"fp32_output": 1, "add_c": 1, "in_place": 1}
    sizes = {"m": m, "n": n, "k": k * groups, "groups": groups}
    pick = parse(explain("k_contiguous", sizes | layout | added))[0]
    assert (pick.swapped, pick.rows, pick.cols) == (False, 128, cols)


@pytest.mark.parametrize(
    ("more", "refuses"),
    [
        ({"add_c": 1, "in_place": 1}, True),
        ({"add_c": 1, "in_place": 1, "n": 1217}, False),  # rows of D that are no multiples of 16 bytes
        ({}, False),
    ],
    ids=["added by the copy engine", "added from registers", "stored"],
)
def test_no_tile_begins_within_a_line_of_what_it_is_added_to(more, refuses) -> None:
    """128x112 took 47 us at 9024x896x1216, 128x96 33 (calibration_h200_drawn.json)."""
    fields = {"m": 9024, "n": 1216, "k": 896, "fp32_output": 1, "per_row_b": 1, "num_sms": HOPPER_SMS}
    found = parse(explain("dense", fields | more))
    refused = [c for c in found if "within a line" in (c.rejection or "")]
    assert all(not c.swapped and c.cols % 32 != 0 for c in refused)
    assert ({80, 112} <= {c.cols for c in refused}) == refuses
    assert any(c.cols == 112 and c.rejection is None for c in found)


def test_256_rows_want_scales_that_are_uniform_along_columns() -> None:
    """They would spill, or move descriptors between wgmma; with scales per block they serve."""
    for per_row_b, cols, serves in ((0, 112, True), (1, 64, True), (1, 80, False), (1, 112, False), (1, 128, False)):
        sizes = {"m": 4096, "n": 4096, "k": 4096, "num_sms": HOPPER_SMS, "per_row_b": per_row_b}
        assert (straight(parse(explain("dense", sizes)), 256, cols).rejection is None) == serves, (per_row_b, cols)


def test_256_rows_of_integers_want_them_too() -> None:
    sizes = {"m": 4096, "n": 4096, "k": 4096, "num_sms": HOPPER_SMS, "s8": 1, "token_scales": 1, "gran_k_b": 128}
    for per_row_b in (0, 1):
        found = parse(explain("dense", {**sizes, "per_row_b": per_row_b}))
        tall = [c for c in found if c.rows == 256 and not c.swapped and c.rejection is None]
        assert bool(tall) == (per_row_b == 0)


def test_zero_points_leave_many_tokens_their_tile() -> None:
    sizes = {"n": 7168, "k": 16384, "num_sms": HOPPER_SMS, "s8": 1, "token_scales": 1, "channel_scales": 1}
    picks = [parse(explain("dense", {"m": 4096, **sizes, "asymmetric_a": zeros}))[0] for zeros in (0, 1)]
    assert picks[0] == picks[1]
    assert picks[0].cols == 256


@pytest.mark.parametrize(
    ("activations", "plain", "zeros_k"), [("e4m3", "s4m", 128), ("s8", "s4", -1), ("bf16", "s4b", 128)]
)
@pytest.mark.parametrize("m", [16, 256])
def test_zero_points_cost_their_instructions_and_shared_memory(activations, plain, zeros_k, m) -> None:
    """Beside 16 bits shared memory only: they take the place of the zero point that all codes have."""
    shape = {"m": m, "n": 4096, "k": 7168, "num_sms": HOPPER_SMS, "token_scales": 1}
    if activations != "e4m3":
        shape[activations] = 1

    def legal(fields: dict[str, int]) -> dict[tuple, object]:
        found = parse(explain("dense", {**shape, **fields}))
        return {(x.rows, x.cols, x.cluster_shape, x.k_warpgroups): x for x in found if x.rejection is None}

    without, with_zeros = legal({plain: 1}), legal({"u4": 1, "zeros_k": zeros_k})
    assert set(with_zeros) <= set(without)
    assert with_zeros
    for tile, found in with_zeros.items():
        assert found.cost >= without[tile].cost
        assert found.stages < without[tile].stages or found.smem > without[tile].smem
    equal = [(found, without[tile]) for tile, found in with_zeros.items() if found.stages == without[tile].stages]
    assert any(found.cost > other.cost for found, other in equal) == (activations != "bf16")
