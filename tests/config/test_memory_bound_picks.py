"""Selection where reading weights is nearly all of the time: what the L2 should keep, and SMs that idle meanwhile."""

from __future__ import annotations

import pytest
from candidates import parse, straight

from deep_gemm._extension import C
from deep_gemm._targets import HOPPER_SMS


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
    kernel = C.problem_kernel(grouping, {"num_sms": HOPPER_SMS, **fields})
    assert (".stream_b = true" in str(kernel["text"])) == streams


@pytest.mark.parametrize(
    ("m", "n", "k", "bf16"),
    [(5, 17984, 24576, 0), (12, 8960, 24320, 0), (3, 6016, 17408, 1), (2, 10176, 15104, 1)],
)
def test_no_sms_idle_where_reading_takes_long(m, n, k, bf16) -> None:
    """What was picked before had SMs idle for a third to half of the time, in which memory has less to do: on an H100 3
    to 5 % slower."""
    best = parse(C.explain("dense", {"m": m, "n": n, "k": k, "bf16": bf16, "num_sms": HOPPER_SMS}))[0]
    tiles = -(-n // (best.rows if best.swapped else best.cols)) * best.cluster
    assert tiles / (-(-tiles // HOPPER_SMS) * HOPPER_SMS) > 0.8


def test_a_wave_of_tiles_is_a_wave_though_padding_is_left_out() -> None:
    """34 x 4 tiles of 256x128 are more than 132: a second wave, of which four were thought to vanish as three quarters
    of a tile are real. On an H100 256x128 takes 62.4 us, DeepGEMM 51.4."""
    fields = {"m": 4096, "expected_m": 192, "n": 4352, "k": 4736, "groups": 4, "num_sms": HOPPER_SMS}
    more, fit = (parse(C.explain("masked", fields | {"n": n})) for n in (4352, 4224))
    assert straight(more, 256, 128).cost > 1.3 * straight(fit, 256, 128).cost
    assert straight(more, 128, 96).cost < straight(more, 256, 128).cost
