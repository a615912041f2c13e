"""Which elements of weights are served for which activations, and how packing changes them: a row for each pair."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .._extension import C

K_BLOCK = 128
SMALLEST_GROUP = 32

# Of weights for 16-bit activations: where the bits of a code are, the lowest first, for each register that a word fills
# (deep_gemm/weights/words.py).
Places = tuple[tuple[int, ...], ...]

# The first register's where BF16 has its sign, exponent and mantissa; the next ones' where a shift brings them there.
_E2M1: Places = ((6, 7, 8, 15), (3, 4, 5, 12), (0, 1, 2, 9), (11, 13, 14, 10))
_E4M3: Places = ((4, 5, 6, 7, 8, 9, 10, 15), (0, 1, 2, 3, 12, 13, 14, 11))
_NIBBLES: Places = ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15))

_BYTES: Places = ((0, 1, 2, 3, 4, 5, 6, 7), (8, 9, 10, 11, 12, 13, 14, 15))

# Orders beside those of `Packing.orders` and `Packing.zeros_order`: of groups with integer scales within others; with
# folded exponents; and rows of codes, as Blackwell multiplies them (rows.py). Before a comma stands what kernels
# multiply, as the runtime's element table names it.
TWO_LEVELS, FOLDED, ROWS = "u4, two levels", "e2m1x", "e2m1r"

ELEMENTS = ("int4", "uint4", "e2m1", "int8", "uint8", "e4m3")
ACTIVATIONS = ("int8", "int4", "fp8", "bf16")
# By their names in the runtime's element table.
ELEMENT_NUMBERS = {name: number for number, name in enumerate(C.element_names().split())}


@dataclass(frozen=True)
class Packing:
    """How weights of one element lie for one kind of activations."""

    smallest: int
    largest: int
    # Stored is the code less this, and so are zero points: unsigned codes share the conversion of signed ones.
    offset: int
    # Kernels multiply by what the conversion leaves, a power of two away from the value: the stored scales make it up.
    scale_factor: float
    # What kernels convert from, as the runtime's element table names it: codes lie as the first of these that can hold
    # all of them. ('s4m', sign and magnitude, cannot hold -8.)
    orders: tuple[str, ...]
    # The same where zero points are subtracted on the way; None where there are none.
    zeros_factor: float | None
    # Whether groups may have integer scales within one of all of K.
    two_levels: bool
    # So much of K at most shares a row of stored scales, because the kernel adds up no more before it scales.
    largest_scale_group: int | None
    # Whether exponents of groups are multiplied in by the conversion, where they allow it (exponents.py).
    folds_exponents: bool = False
    # Whether codes lie in rows where they are packed on Blackwell.
    in_rows: bool = False
    # Activations may have zero points, so that sums of weights are wanted.
    integer_activations: bool = False
    # None: bytes, in the order of codes.py.
    places: Places | None = None
    # Stored with `places` is the code and this.
    added: int = 0
    smallest_group: int = SMALLEST_GROUP
    # How codes lie from which zero points are subtracted.
    zeros_order: str = "u4"
    # Scales of groups up to this may be multiplied into weights when they are converted (conversion_scales.py).
    converted_group: int = 0

    @property
    def middle(self) -> int:
        """The zero point of unsigned codes that the conversion of signed ones subtracts."""
        return self.offset - self.smallest

    @property
    def largest_code(self) -> int:
        """Of unsigned codes, the smallest of which is 0."""
        return self.largest - self.smallest

    @property
    def every_order(self) -> tuple[str, ...]:
        others = {
            self.zeros_order: self.zeros_factor,
            TWO_LEVELS: self.two_levels,
            FOLDED: self.folds_exponents,
            ROWS: self.in_rows,
        }
        return (*self.orders, *(order for order, is_served in others.items() if is_served))

    @property
    def block_bytes(self) -> int:
        """Of 64 rows by 128 of K."""
        return 4096 if self.places is None else 64 * K_BLOCK * len(self.places[0]) // 8

    def factor(self, order: str) -> float:
        """What scales of codes in this order are multiplied by."""
        if order == ROWS:
            return 1.0
        if order not in (self.zeros_order, TWO_LEVELS):
            return self.scale_factor
        assert self.zeros_factor is not None
        return self.zeros_factor

    def scale_group(self, group_size: int | None) -> int | None:
        """The K that one row of stored scales, or of zero points, is for. None: all of it."""
        largest = self.largest_scale_group
        return largest if group_size is None else math.gcd(group_size, largest or K_BLOCK)


PACKINGS = {
    ("int4", "int8"): Packing(-8, 7, 0, 1 / 16, ("s4",), 1.0, True, None, integer_activations=True),
    ("uint4", "int8"): Packing(0, 15, 8, 1 / 16, ("s4",), 1.0, True, None, integer_activations=True),
    ("int4", "int4"): Packing(-8, 7, 0, 1 / 16, ("s4",), 1.0, True, None, integer_activations=True),
    ("uint4", "int4"): Packing(0, 15, 8, 1 / 16, ("s4",), 1.0, True, None, integer_activations=True),
    ("int4", "fp8"): Packing(-8, 7, 0, 512.0, ("s4m", "s4"), 512.0, False, K_BLOCK),
    ("uint4", "fp8"): Packing(0, 15, 8, 512.0, ("s4m", "s4"), 512.0, False, K_BLOCK),
    ("e2m1", "fp8"): Packing(0, 15, 0, 64.0, ("e2m1",), None, False, 32, folds_exponents=True, in_rows=True),
    ("int4", "bf16"): Packing(-8, 7, 0, 512.0, ("s4b",), 512.0, False, None, places=_NIBBLES, added=8),
    ("uint4", "bf16"): Packing(0, 15, 8, 512.0, ("s4b",), 512.0, False, None, places=_NIBBLES, added=8),
    ("e2m1", "bf16"): Packing(
        0, 15, 0, 1.0, ("e2m1",), None, False, None, places=_E2M1, smallest_group=16, converted_group=32
    ),
    ("int8", "bf16"): Packing(
        -128, 127, 0, 512.0, ("s8b",), 512.0, False, None, places=_BYTES, added=128, zeros_order="u8"
    ),
    ("uint8", "bf16"): Packing(
        0, 255, 128, 512.0, ("s8b",), 512.0, False, None, places=_BYTES, added=128, zeros_order="u8"
    ),
    ("e4m3", "bf16"): Packing(0, 255, 0, 256.0, ("e4m3p",), None, False, None, places=_E4M3),
}


def packing_of(element: str, activations: str) -> Packing:
    """Raises where the pair is unknown (ValueError) or not served yet (NotImplementedError)."""
    if element not in ELEMENTS:
        raise ValueError(f"element must be one of {', '.join(ELEMENTS)}, got {element!r}")
    if activations not in ACTIVATIONS:
        raise ValueError(f"activations must be one of {', '.join(ACTIVATIONS)}, got {activations!r}")
    packing = PACKINGS.get((element, activations))
    if packing is None:
        served = ", ".join(f"{weights} for {tokens}" for weights, tokens in PACKINGS)
        raise NotImplementedError(
            f"weights of {element} for {activations} activations are not served yet: {served} are"
        )
    return packing
