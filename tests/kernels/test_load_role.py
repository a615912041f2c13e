"""How the load role starts, what its copies take, and how many K blocks it asks for at once: as was measured fastest
(docs/performance.md). Read in the machine code, since ptxas decides."""

from __future__ import annotations

import pytest
import sass

from deep_gemm._extension import C
from deep_gemm._targets import HOPPER_SMS

DENSE = {"m": 64, "n": 7168, "k": 2048}
EXPERTS = {"m": 4096, "expected_m": 20, "n": 6144, "k": 7168, "groups": 32}
CONTIGUOUS = {"m": 32768, "n": 6144, "k": 7168, "groups": 8}
K_GROUPS = {"m": 4096, "n": 7168, "k": 32768, "groups": 8, "per_row_b": 1, "fp32_output": 1, "add_c": 1, "in_place": 1}


def opcodes(grouping: str, fields: dict[str, int]) -> list[int]:
    return [word & sass.OPCODE for word in sass.of_problem(grouping, fields)]


@pytest.mark.parametrize(
    ("grouping", "fields", "early"),
    [
        ("dense", DENSE, True),
        ("dense", DENSE | {"m": 4096}, True),
        ("masked", EXPERTS, False),  # its table of groups is behind the barrier
    ],
)
def test_the_first_tile_is_found_before_all_threads_meet(grouping, fields, early) -> None:
    code = opcodes(grouping, fields)
    copy = code.index(sass.UTMALDG)
    met = max(index for index in range(copy) if code[index] == sass.BAR)
    assert any(opcode in sass.IMAD_HI for opcode in code[met:copy]) != early


@pytest.mark.parametrize(
    ("grouping", "fields", "places"),
    [
        ("dense", DENSE, 3),  # the load warp, other warps of its warpgroup, the math warps
        ("masked", EXPERTS, 1),
    ],
)
def test_with_a_table_all_threads_meet_at_one_place(grouping, fields, places) -> None:
    assert opcodes(grouping, fields).count(sass.BAR) == places


@pytest.mark.parametrize("m", [64, 4096])
def test_two_threads_share_the_barriers(m) -> None:
    fields = DENSE | {"m": m}
    code = opcodes("dense", fields)
    stages = int(str(C.explain("dense", {"num_sms": HOPPER_SMS, **fields})).split(" stages ")[1].split()[0])
    runs = "".join("i" if opcode == sass.SYNCS_INIT else " " for opcode in code).split()
    assert max(map(len, runs)) <= stages + 2  # those of the store warp
    assert sum(map(len, runs)) >= 2 * stages


@pytest.mark.parametrize(
    ("grouping", "fields", "pairs"),
    [
        ("masked", EXPERTS, True),
        ("masked", EXPERTS | {"expected_m": 8}, True),
        ("masked", EXPERTS | {"expected_m": 128}, False),
        ("dense", DENSE | {"m": 16}, False),
    ],
)
def test_few_tokens_of_experts_are_copied_with_two_k_blocks_at_once(grouping, fields, pairs) -> None:
    found = sass.of_problem(grouping, fields)
    loop = sass.loops_with(found, sass.UTMALDG)[0]
    waits = sum(found[index] & sass.OPCODE == sass.SYNCS_WAIT for index in loop)
    assert waits == (2 if pairs else 1)


@pytest.mark.parametrize(
    ("grouping", "fields", "by_warp"),
    [
        ("dense", DENSE, True),
        ("dense", DENSE | {"m": 4096}, True),
        ("masked", EXPERTS, True),
        ("k_contiguous", K_GROUPS, True),
        ("m_contiguous", CONTIGUOUS, False),  # 128x192
        ("m_contiguous", CONTIGUOUS | {"n": 4096}, True),  # 256x128
    ],
)
def test_what_copies_take_stays_in_uniform_registers(grouping, fields, by_warp) -> None:
    found = sass.of_problem(grouping, fields)
    loop = sass.loops_with(found, sass.UTMALDG)[0]
    moves = sum(found[index] & sass.OPCODE == sass.R2UR for index in loop)
    assert moves == 0 if by_warp else moves > 3


@pytest.mark.parametrize(
    ("grouping", "fields"),
    [
        ("dense", DENSE | {"m": 512}),  # 128x112, seven runs of columns
        ("masked", EXPERTS | {"expected_m": 192}),  # 256x128
    ],
)
def test_block_scales_stay_out_of_uniform_registers(grouping, fields) -> None:
    found = sass.of_problem(grouping, fields)
    loop = min(sass.wgmma_loops(found), key=len)
    assert not any(found[index] & sass.OPCODE == sass.R2UR for index in loop)
