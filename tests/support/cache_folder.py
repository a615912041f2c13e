"""Where tests keep their kernels. Set at import: on a GPU, collecting asks the runtime what it is, which reads the
settings (devices.py)."""

from __future__ import annotations

import os
from pathlib import Path

OURS = Path(__file__).resolve().parents[2] / "build" / "test-cache"
os.environ["DG_JIT_CACHE_DIR"] = os.environ.get("DG_JIT_CACHE_DIR") or str(OURS)
