"""What compiled programs hold as it was when they were compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .settings import get_mk_alignment_for_contiguous_layout

Function = TypeVar("Function", bound=Callable[..., Any])


def constant_when_compiled(function: Function) -> Function:
    """`torch.compiler.assume_constant_result`, which imports all of Dynamo."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@constant_when_compiled
def alignment_now() -> int:
    return get_mk_alignment_for_contiguous_layout()
