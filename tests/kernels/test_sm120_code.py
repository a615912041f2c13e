"""What stands in SM120's loops over K (docs/architectures.md, "Counted in the machine code")."""

from __future__ import annotations

import pytest
from sass_sm120 import KINDS, SIZES, of_problem


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_leave_nothing_to_promote(kind) -> None:
    """A warp of 64x48 sums multiplies 4 by 6 products in each of 4 steps; of FP32 scales 64x32, each sum promoted."""
    _, block = of_problem({**SIZES[0], **KINDS[kind]})
    assert (block.products, block.promotes) == ((64, 64) if kind == "FP8, FP32 scales" else (96, 0))
    assert block.waits == block.arrivals == 2
    # Of FP32 scales those of blocks are copied by threads.
    assert (block.copies > 0, block.boxes) == ((True, 3) if kind == "FP8, FP32 scales" else (False, 4))
