"""Tests keep their kernels in the clone: a run leaves hundreds of megabytes, which nobody wants in the user's cache.

DG_JIT_CACHE_DIR says otherwise. Processes that tests start have the same place (fresh.py).
"""

from __future__ import annotations

import os

import pytest
from cache_folder import OURS

MAX_BYTES = 2e9


def pytest_configure(config: pytest.Config) -> None:
    ours = os.environ["DG_JIT_CACHE_DIR"] == str(OURS)
    if ours and not hasattr(config, "workerinput"):  # xdist's workers have these settings from here
        from deep_gemm import jit

        assert jit.cache_dir() == OURS, "the runtime read its settings before the tests chose theirs"
        jit.prune_cache(max_bytes=MAX_BYTES)
