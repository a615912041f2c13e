"""How the load role starts, and what its copies take: as was measured fastest (docs/notes/tuning-gains.md)."""

from __future__ import annotations

import pytest
import sass
from field_calls import explain, kernel_of

from deep_gemm._extension import C
from deep_gemm._targets import HOPPER_SMS, HOPPER_TARGET

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
        ("masked", EXPERTS | {"expected_m": 192}, False),  # its table of groups is behind the barrier
    ],
)
def test_the_first_tile_is_found_before_all_threads_meet(grouping, fields, early) -> None:
    kernel = kernel_of(grouping, {"num_sms": HOPPER_SMS, **fields})
    ptx = bytes(C.jit_compile(kernel["name"], kernel["text"], HOPPER_TARGET, "ptx")).decode()
    assert ("mul.hi.u32" in ptx[: ptx.index("bar.sync")]) == early  # a division, as the text orders them


@pytest.mark.parametrize(("grouping", "fields"), [("dense", DENSE), ("masked", EXPERTS)])
def test_all_threads_meet_at_one_place(grouping, fields) -> None:
    """compute-sanitizer's synccheck stops where roles meet at several."""
    assert opcodes(grouping, fields).count(sass.BAR) == 1


@pytest.mark.parametrize("m", [64, 4096])
def test_two_threads_share_the_barriers(m) -> None:
    fields = DENSE | {"m": m}
    code = opcodes("dense", fields)
    stages = int(str(explain("dense", {"num_sms": HOPPER_SMS, **fields})).split(" stages ")[1].split()[0])
    runs = "".join("i" if opcode == sass.SYNCS_INIT else " " for opcode in code).split()
    assert max(map(len, runs)) <= stages + 2  # those of the store warp
    assert sum(map(len, runs)) >= 2 * stages


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("grouping", "fields"),
    [
        ("dense", DENSE),
        ("dense", DENSE | {"m": 4096}),
        ("masked", EXPERTS),
        ("k_contiguous", K_GROUPS),
        ("m_contiguous", CONTIGUOUS | {"tile_rows": 128, "tile_cols": 192}),
        ("m_contiguous", CONTIGUOUS | {"tile_rows": 256, "tile_cols": 128}),
    ],
)
def test_what_copies_take_stays_in_uniform_registers(grouping, fields) -> None:
    found = sass.of_problem(grouping, fields)
    loop = sass.loops_with(found, sass.UTMALDG)[0]
    assert not any(found[index] & sass.OPCODE == sass.R2UR for index in loop)
