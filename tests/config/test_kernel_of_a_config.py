"""kernel_of with a config instead of the selected one, which calibration compiles ahead."""

from __future__ import annotations

import pytest
from field_calls import kernel_of
from test_selection import SIZES


def test_is_that_config() -> None:
    text = str(kernel_of("dense", SIZES | {"tile_rows": 64, "tile_cols": 80, "k_warpgroups": 2})["text"])
    assert ".tile = {.rows = 64, .cols = 80, .k = 128}" in text
    assert ".warpgroups = 2" in text


@pytest.mark.parametrize(
    ("fields", "rows", "cols", "ahead"),
    [
        ({}, 256, 128, True),
        ({"k": 512}, 256, 128, True),
        ({}, 192, 128, False),  # three warpgroups
        ({}, 128, 128, False),  # two partial accumulators
        ({}, 128, 192, True),
        ({"k": 512}, 128, 192, True),
        ({}, 128, 144, True),
        ({"per_row_b": 1, "fp32_output": 1, "add_c": 1, "in_place": 1}, 128, 128, True),
        ({"per_row_b": 1, "fp32_output": 1, "add_c": 1, "in_place": 1}, 128, 160, False),
    ],
)
def test_looks_ahead_where_that_was_faster(fields, rows, cols, ahead) -> None:
    text = str(kernel_of("dense", SIZES | fields | {"tile_rows": rows, "tile_cols": cols})["text"])
    assert f".look_ahead = {str(ahead).lower()}" in text


@pytest.mark.parametrize(
    ("fields", "rows", "cols", "products"),
    [
        ({"per_row_b": 1}, 128, 128, True),
        ({"per_row_b": 1, "swap_ab": 1}, 128, 128, True),
        ({"per_row_b": 1}, 128, 112, True),
        ({"per_row_b": 1, "swap_ab": 1}, 128, 64, True),
        ({"per_row_b": 1}, 128, 48, False),
        ({"per_row_b": 1}, 128, 144, False),  # no registers for a third accumulator
        ({"per_row_b": 1}, 192, 128, False),  # no registers for a third accumulator
        ({"per_row_b": 1, "cluster_k": 2}, 128, 128, False),
        ({}, 128, 128, False),
    ],
)
def test_products_of_scales_by_wgmma(fields, rows, cols, products) -> None:
    text = str(kernel_of("dense", SIZES | fields | {"tile_rows": rows, "tile_cols": cols})["text"])
    assert f".wgmma_products = {str(products).lower()}" in text


def test_half_a_tile() -> None:
    with pytest.raises(ValueError, match="both tile_rows and tile_cols"):
        kernel_of("dense", SIZES | {"tile_rows": 64})


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_of_no_tile_that_there_is(target) -> None:
    with pytest.raises(ValueError, match="cannot serve the problem: selection knows no such config"):
        kernel_of("dense", SIZES | {"tile_rows": 3, "tile_cols": 5}, target)


def test_that_cannot_serve() -> None:
    with pytest.raises(ValueError, match="cannot serve the problem: groups do not split K"):
        kernel_of("masked", SIZES | {"groups": 4, "tile_rows": 64, "tile_cols": 64, "cluster_k": 2})
