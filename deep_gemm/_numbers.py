"""What Python's numbers must be before they are used: errors name the argument, what it must be and what came."""

from __future__ import annotations

import numbers
import operator
import struct
from typing import Any

NO_FACTOR, ROUND_AT_RANDOM = 0xFFFFFFFF, 1  # in the bits' place, and above them: see csrc's check_alpha


def integer(name: str, value: Any, smallest: int | None = None) -> int:
    """`value` as an int. True and False are none, nor is a float, even one without a fraction."""
    if type(value) is int and smallest is None:
        return value
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if smallest is not None and number < smallest:
        raise ValueError(f"{name} must be at least {smallest}, got {number}")
    return number


def fp32_bits(name: str, value: Any) -> int:
    """The bits of `value` as FP32."""
    if type(value) not in (float, int) and (isinstance(value, bool) or not isinstance(value, numbers.Real)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        raise ValueError(f"{name} must be a number that FP32 can hold, got {value}") from None
    return bits


def flag(name: str, value: Any) -> int:
    """`value`, which must be True or False (or 1 or 0), as 1 or 0."""
    if not isinstance(value, int) or value not in (0, 1):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return int(value)
