"""Calls of public functions with values, of any shape, each with its check: what `python -m deep_gemm bench` runs."""

from .case import Case, Wanted
from .table import FUNCTIONS, build, build_weight

__all__ = ["FUNCTIONS", "Case", "Wanted", "build", "build_weight"]
