"""Picks of BF16 beside int4 whose groups are shorter than a K block, by forced tiles of an H200."""

from __future__ import annotations

import pytest
from candidates import candidates


@pytest.mark.parametrize(
    ("m", "n", "k", "group", "pick"),
    [
        (1024, 7168, 16384, 32, (128, 256, 1)),  # 451 us; 128x128 with shared last tiles 503 (h200_issue_order.json)
        (1024, 7168, 16384, 128, (128, 128, 2)),  # 309; 128x256 313
        (256, 7168, 16384, 32, (128, 256, 2)),  # 127; 128x128 143, 128x64 163 (h200_rescaled.json)
        (256, 4096, 7168, 32, (64, 128, 1)),  # 36.0; 128x64 38.2
    ],
)
def test_ends_of_groups_count(m, n, k, group, pick) -> None:
    best = candidates(m, n, k, bf16=1, s4b=1, gran_k_b=group)[0]
    assert (best.rows, best.cols, best.cluster_shape[2]) == pick
