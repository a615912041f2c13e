"""Runs `python -m deep_gemm` in a process that has imported it already."""

from __future__ import annotations

import fresh

RUN = """
import sys
from deep_gemm.__main__ import main
sys.argv = ["deep_gemm", *{arguments!r}]
try:
    result = main()
except SystemExit as left:
    result = left.code
"""


def run(*arguments: str, **environment: object) -> tuple[int, str]:
    """Exit status, and what was printed, errors too."""
    outcome = fresh.check(RUN.format(arguments=arguments), **environment)
    return outcome.result, outcome.stderr


def succeed(*arguments: str, **environment: object) -> str:
    status, printed = run(*arguments, **environment)
    assert status == 0, printed
    return printed


def refuse(*arguments: str, **environment: object) -> str:
    status, printed = run(*arguments, **environment)
    assert status in (1, 2), printed
    assert "Traceback" not in printed
    return printed
