"""Names of the public API that this library does not serve yet.

Programs look for them when they load, so they are there; calling one raises NotImplementedError, which says what is
missing and what serves in its place. With DG_FALLBACK they are another installation's (_fallback.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _fallback

__all__ = [
    "SymmBuffer",
    "bf16_mega_moe",
    "fp8_fp4_mega_moe",
    "transform_weights_for_mega_moe",
]


def _message(name: str, missing: str, instead: str) -> str:
    return f"deep_gemm.{name} is not there yet: {missing}. Use {instead}."


def _planned(name: str, missing: str, instead: str) -> Callable[..., Any]:
    def function(*arguments: Any, **keywords: Any) -> Any:
        if (other := _fallback.find(name)) is not None:
            return other(*arguments, **keywords)
        raise NotImplementedError(_message(name, missing, instead))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Raises NotImplementedError: {missing}. Use {instead}."
    return function


_MEGA = "no kernel sends tokens to other GPUs while it multiplies"
_MEGA_INSTEAD = (
    "a library that dispatches and combines tokens, with m_grouped_fp8_gemm_nt_contiguous, _masked, or their BF16 "
    "counterparts between"
)
transform_weights_for_mega_moe = _planned("transform_weights_for_mega_moe", _MEGA, _MEGA_INSTEAD)
fp8_fp4_mega_moe = _planned("fp8_fp4_mega_moe", _MEGA, _MEGA_INSTEAD)
bf16_mega_moe = _planned("bf16_mega_moe", _MEGA, _MEGA_INSTEAD)


class SymmBuffer:
    """The buffer that mega-MoE calls share between GPUs. Raises NotImplementedError, as they do."""

    def __new__(cls, *arguments: Any, **keywords: Any) -> Any:
        if (other := _fallback.find("SymmBuffer")) is not None:
            return other(*arguments, **keywords)
        raise NotImplementedError(_message("SymmBuffer", _MEGA, _MEGA_INSTEAD))
