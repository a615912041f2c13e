"""Where the loops that look ahead let a stage go, and how often they wait for wgmma: as was measured fastest
(docs/notes/tuning-gains.md). Read in the machine code, since ptxas moves promotion's FFMA over an arrival."""

from __future__ import annotations

import pytest
import sass

DENSE = {"m": 4096, "n": 7168, "k": 16384}
EXPERTS = {"m": 4096, "expected_m": 192, "n": 6144, "k": 7168, "groups": 32}


def inner_loop(grouping: str, fields: dict[str, int], rows: int, cols: int) -> list[int]:
    """The instructions of the shortest loop over K blocks."""
    code = sass.of_problem(grouping, {**fields, "tile_rows": rows, "tile_cols": cols})
    return [code[index] for index in sass.wgmma_loops(code)[0]]


def positions(loop: list[int], *opcodes: int) -> list[int]:
    return [index for index, word in enumerate(loop) if word & sass.OPCODE in opcodes]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("grouping", "fields", "rows", "cols", "early"),
    [
        ("dense", DENSE, 128, 192, True),
        ("masked", EXPERTS, 128, 192, True),
        ("masked", EXPERTS, 256, 128, True),
        ("dense", DENSE, 128, 176, False),
        ("dense", DENSE, 256, 128, True),
        ("dense", DENSE | {"cluster_cols": 2}, 256, 128, True),
    ],
)
def test_a_stage_is_let_go_before_the_next_issue(grouping, fields, rows, cols, early) -> None:
    loop = inner_loop(grouping, fields, rows, cols)
    (arrival,) = positions(loop, sass.SYNCS_ARRIVE)
    issued = positions(loop, *sass.WGMMA)
    assert arrival < issued[0] if early else arrival > issued[-1]


@pytest.mark.parametrize("cluster_cols", [1, 2])
def test_rounds_of_two_times_64_rows_are_short(cluster_cols) -> None:
    """They begin at a K block's second 64 rows: one that began at the first took some 230 instructions, of which 128
    are promotion's. And nobody waits in them but for what is promoted."""
    loop = inner_loop("dense", DENSE | {"cluster_cols": cluster_cols}, 256, 128)
    assert len(positions(loop, sass.FFMA)) == 128
    assert len(loop) < 215
    assert sum(bool(loop[index] & sass.WAITS) for index in positions(loop, sass.WARPGROUP)) == 2
