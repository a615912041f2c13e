"""Names that this library does not serve: asked of another installation of DeepGEMM, if the user says so.

`DG_FALLBACK` names its module; `1` means the copy that vLLM carries. Without it such a name is absent, so that clients
take the way that they have for it.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

_VLLM_COPY = "vllm.third_party.deep_gemm"


def find(name: str) -> Any | None:
    """What the other installation has under a name; None where there is none, or it lacks it.

    Raises:
        ImportError: DG_FALLBACK names a module that cannot be imported.
    """
    wanted = os.environ.get("DG_FALLBACK", "")
    if wanted in ("", "0"):
        return None
    module = _VLLM_COPY if wanted == "1" else wanted
    try:
        other = importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"DG_FALLBACK={wanted} wants {name} from {module}, which cannot be imported: {error}"
        ) from error
    return getattr(other, name, None)
