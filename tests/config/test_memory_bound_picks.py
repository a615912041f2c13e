"""Selection where reading weights is nearly all of the time: what the L2 should keep, and SMs that idle meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from candidates import Candidate, parse, straight
from field_calls import explain, kernel_of

from deep_gemm._targets import GPUS, HOPPER_SMS

SM100 = "sm_100a"


@pytest.mark.parametrize(
    ("grouping", "fields", "streams"),
    [
        ("dense", {"m": 16, "n": 7168, "k": 16384}, True),
        ("dense", {"m": 16, "n": 57344, "k": 8192}, False),  # 470 MB
        ("dense", {"m": 16, "n": 57344, "k": 4096}, True),  # 235 MB
        ("dense", {"m": 16, "n": 57344, "k": 4096, "bf16": 1}, False),
        ("dense", {"m": 4096, "n": 7168, "k": 16384}, False),  # not most of what is moved
        ("masked", {"m": 4096, "n": 4096, "k": 2048, "groups": 32, "expected_m": 20}, True),  # 268 MB
        ("masked", {"m": 4096, "n": 7168, "k": 3072, "groups": 32, "expected_m": 20}, False),  # 705 MB
        ("masked", {"m": 4096, "n": 1792, "k": 3584, "groups": 6, "expected_m": 201}, True),  # straight, 39 MB
        ("masked", {"m": 4096, "n": 4096, "k": 1536, "groups": 32, "expected_m": 128}, False),  # straight, 201 MB
        ("masked", {"m": 4096, "n": 6912, "k": 768, "groups": 11, "expected_m": 121}, False),  # 58 MB beside 19
        ("m_contiguous", {"m": 1152, "n": 1536, "k": 2432, "groups": 9, "alignment": 128}, True),  # straight, 34 MB
    ],
)
def test_weights_leave_the_l2_first_if_they_are_not_huge(grouping, fields, streams) -> None:
    kernel = kernel_of(grouping, {"num_sms": HOPPER_SMS, **fields})
    assert (".stream_b = true" in str(kernel["text"])) == streams


@pytest.mark.parametrize(
    ("grouping", "fields", "streams"),
    [
        ("dense", {"m": 16, "n": 57344, "k": 8192}, True),  # 470 MB; the L2 is 2.5 times Hopper's
        ("dense", {"m": 16, "n": 57344, "k": 16384}, False),
        ("dense", {"m": 4096, "n": 7168, "k": 16384}, False),  # not most of what is moved
        ("masked", {"m": 4096, "n": 4096, "k": 7168, "groups": 32, "expected_m": 20}, True),  # 940 MB
        ("masked", {"m": 4096, "n": 7168, "k": 4096, "groups": 64, "expected_m": 20}, False),
    ],
)
def test_so_they_do_on_sm100(grouping, fields, streams) -> None:
    kernel = kernel_of(grouping, {"num_sms": GPUS[SM100].sms, **fields}, SM100)
    assert (".stream_b = true" in str(kernel["text"])) == streams


@pytest.mark.parametrize(
    ("m", "n", "k", "bf16"),
    [(5, 17984, 24576, 0), (12, 8960, 24320, 0), (3, 6016, 17408, 1), (2, 10176, 15104, 1)],
)
def test_no_sms_idle_where_reading_takes_long(m, n, k, bf16) -> None:
    """What was picked before had SMs idle for a third to half of the time, in which memory has less to do: on an H100 3
    to 5 % slower."""
    best = parse(explain("dense", {"m": m, "n": n, "k": k, "bf16": bf16, "num_sms": HOPPER_SMS}))[0]
    tiles = -(-n // (best.rows if best.swapped else best.cols)) * best.cluster
    assert tiles / (-(-tiles // HOPPER_SMS) * HOPPER_SMS) > 0.8


@pytest.mark.parametrize(
    ("m", "n", "k", "tile", "slower"),
    [
        (64, 51200, 2048, (64, 80), (64, 96)),  # 4.85 waves; 64x96 has 4.04 (32.6, 35.3 us)
        (128, 40960, 512, (64, 128), (128, 80)),  # D in whole lines; 80 columns are pieces of 32 bytes (12.3, 13.2 us)
    ],
)
def test_wide_weights_of_few_tokens(m, n, k, tile, slower) -> None:
    """As measured on an H200 (calibration_h200_wide.json): the last wave hides none of the time in which memory was
    read before, and D in pieces of less than a line takes longer to write."""
    found = parse(explain("dense", {"m": m, "n": n, "k": k, "num_sms": HOPPER_SMS}))
    assert (found[0].rows, found[0].cols) == tile
    assert straight(found, *slower).cost > found[0].cost


RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
LARGE_TILES = json.loads((RESULTS / "h200_int8_int4.json").read_text())["large_tiles_as_sm_80"]["rows"]


@pytest.mark.parametrize("element", ["s8", "bf16"])
def test_large_tiles_are_the_fastest_of_24_sizes(element) -> None:
    """As measured on an H200 that stands in for an sm_80: s8 is faster with 256x128, BF16 with 128x256."""
    cases = [case[1:] for case, _ in LARGE_TILES if case[0] == element]
    fastest = [min(us, key=us.get) for case, us in LARGE_TILES if case[0] == element]
    assert len(cases) == 24
    assert [large_tile(element, *case, "NVIDIA H200", HOPPER_SMS) for case in cases] == fastest


def large_tile(element: str, m: int, n: int, k: int, gpu: str, num_sms: int) -> str:
    best = parse(explain("dense", {"m": m, "n": n, "k": k, element: 1, "num_sms": num_sms}, "sm_80", gpu))[0]
    return f"{'swapped ' if best.swapped else ''}{best.rows}x{best.cols}"


def test_a_wave_of_tiles_is_a_wave_though_padding_is_left_out() -> None:
    """34 x 4 tiles of 256x128 are more than 132: a second wave, of which four were thought to vanish as three quarters
    of a tile are real. On an H100 256x128 takes 62.4 us, DeepGEMM 51.4."""
    fields = {"m": 4096, "expected_m": 192, "n": 4352, "k": 4736, "groups": 4, "num_sms": HOPPER_SMS}
    more, fit = (parse(explain("masked", fields | {"n": n})) for n in (4352, 4224))
    assert straight(more, 256, 128).cost > 1.3 * straight(fit, 256, 128).cost
    assert straight(more, 128, 96).cost < straight(more, 256, 128).cost


# N and K of weights that models have.
WEIGHTS = [(2112, 7168), (576, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048)]
# At 7.1 TB/s, 1,400 cycles of 1.85 GHz behind each request (csrc/config/sm100/cost_constants.hpp).
BYTES_IN_FLIGHT = 7.1e12 * 1400 / 1.85e9
# Clusters that run at once, wherever a B200's missing SMs are (csrc/config/sm100/clusters.hpp).
AT_ONCE = {1: 148, 2: 74, 3: 46, 4: 34, 5: 26, 6: 22, 7: 16, 8: 16}


def sm100_pick(grouping: str, fields: dict[str, int]) -> Candidate:
    return parse(explain(grouping, {"num_sms": GPUS[SM100].sms, **fields}, SM100))[0]


@pytest.mark.parametrize("kind", ["fp8", "fp32_scales", "bf16"])
@pytest.mark.parametrize(("n", "k"), WEIGHTS)
@pytest.mark.parametrize("m", [1, 16, 64])
def test_few_tokens_on_sm100(m, n, k, kind) -> None:
    """They are columns, as many as there are; enough SMs read to take what memory gives, 64 bytes a cycle each; what
    they have asked for covers its latency, or is all that there is; and no cluster waits for another one to end."""
    best = sm100_pick("dense", {"m": m, "n": n, "k": k, **({} if kind == "fp8" else {kind: 1})})
    assert best.swapped
    assert best.cols <= max(16, m)
    row_tiles = -(-n // 128)
    assert best.ctas >= min(100, 8 * row_tiles)
    k_blocks = -(-k * (1 + (kind == "bf16")) // 128 // best.cluster_shape[2])
    assert best.ctas * best.stages * 128 * 128 >= BYTES_IN_FLIGHT or best.stages >= k_blocks
    assert best.ctas // best.cluster <= AT_ONCE[best.cluster]


@pytest.mark.parametrize(("experts", "tokens"), [(128, 8), (32, 20), (64, 4)])
@pytest.mark.parametrize(("n", "k"), [(4096, 7168), (7168, 2048)])
def test_few_tokens_an_expert_on_sm100(experts, tokens, n, k) -> None:
    best = sm100_pick("masked", {"m": 1024, "n": n, "k": k, "groups": experts, "expected_m": tokens})
    assert best.swapped
    assert best.cols == (16 if tokens <= 16 else 32)
    assert best.ctas == GPUS[SM100].sms
    assert best.ctas * best.stages * 128 * 128 >= 4 * BYTES_IN_FLIGHT


MXFP4_BESIDE_BF16 = {"bf16": 1, "e2m1": 1, "conversion_scales": 1, "gran_k_b": 32, "num_sms": HOPPER_SMS}


@pytest.mark.parametrize("m", [1, 16, 32, 64])
def test_one_tile_converts_a_weight_for_few_tokens(m) -> None:
    pick = parse(explain("dense", {"m": m, "n": 4096, "k": 7168, **MXFP4_BESIDE_BF16}, "sm_90a"))[0]
    assert pick.cols >= m
    assert (pick.cluster_shape[2], pick.k_warpgroups) == (2, 2)


def test_tiles_that_convert_under_products_have_stages_to_wait_for_none() -> None:
    """Of which a warpgroup holds two."""
    pick = parse(explain("dense", {"m": 4096, "n": 4096, "k": 7168, **MXFP4_BESIDE_BF16}, "sm_90a"))[0]
    assert pick.cols == 256
    assert pick.stages >= 4


@pytest.mark.parametrize(
    ("m", "fields", "tile"),
    [
        (1024, {}, (128, 128, 1)),  # conversion hides behind another warp's products only
        (4096, {"s8": 1, "gran_k_a": 128, "gran_k_b": 128}, (128, 128, 1)),
        (64, {"bf16": 1}, (64, 64, 2)),  # a ring of two stages hides no copy
        (128, {"s8": 1, "s4": 1, "token_scales": 1, "channel_scales": 1}, (64, 64, 1)),
    ],
)
def test_picks_that_were_fast_as_sm_80(m, fields, tile) -> None:
    """Within 11 % of the fastest in sweeps on an H100, where other tiles took 1.3 to 1.5 of its time."""
    problem = {"m": m, "n": 7168, "k": 16384, "num_sms": HOPPER_SMS, **fields}
    pick = parse(explain("dense", problem, "sm_80", "NVIDIA H100 80GB HBM3"))[0]
    assert (pick.rows, pick.cols, pick.k_warpgroups) == tile
