"""What Python's numbers must be before they are used: errors name the argument, what it must be and what came."""

from __future__ import annotations

import operator
from typing import Any


def integer(name: str, value: Any, smallest: int | None = None) -> int:
    """`value` as an int. True and False are none, nor is a float, even one without a fraction."""
    if type(value) is int and smallest is None:
        return value
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, but is {value}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, but is {value!r}") from None
    if smallest is not None and number < smallest:
        raise ValueError(f"{name} must be at least {smallest}, but is {number}")
    return number


def flag(name: str, value: Any) -> int:
    """`value`, which must be True or False (or 1 or 0), as 1 or 0."""
    if not isinstance(value, int) or value not in (0, 1):
        raise TypeError(f"{name} must be True or False, but is {value!r}")
    return int(value)
