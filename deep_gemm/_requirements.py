"""Imported before everything else: says in one sentence what is missing, where torch is."""

import importlib.util

if importlib.util.find_spec("torch") is None:
    raise ImportError("deep_gemm needs torch 2.4 or newer, which is not installed: pip install torch")
