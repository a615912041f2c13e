"""`python -m deep_gemm prenorm N K`: which kernels the product before the norm gets, and compiling them."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from .. import jit
from .._model_calls import before_norm
from .._precompile import each_once, record_parts
from .kernels import compile_and_tell, given_machine
from .output import Output


def add_arguments(parser: argparse.ArgumentParser, extent: Callable[[str], int]) -> None:
    parser.add_argument("n", type=extent, help="rows of B: 24 where there are four copies of the residual")
    parser.add_argument("k", type=extent, help="K: the copies' hidden sizes together")
    parser.add_argument("--rows", type=extent, nargs="+", default=[1, 64, 4096], help="tokens of a call")
    parser.add_argument("--num-splits", type=extent, help="as calls pass it")
    parser.add_argument("--sms", type=extent, help="SMs that the kernel may use, if not all")
    parser.add_argument("--compile", action="store_true", help="compile what 1 to the most of --rows need")


def prenorm(arguments: argparse.Namespace, output: Output) -> int:
    """The kernel of each number of tokens, or compiling those of all numbers up to the largest."""
    machine = given_machine(arguments)
    if arguments.compile:
        parts = before_norm(arguments.n, arguments.k, max(arguments.rows), arguments.num_splits).parts
        kernels = each_once(record_parts(parts, machine, progress=False))
        return compile_and_tell(jit.Recording(machine.target, kernels), output)
    listed = output.facts["kernels"] = []
    for rows in arguments.rows:
        with jit.record(machine.target, machine.num_sms, machine.gpu) as recording:
            part = before_norm(arguments.n, arguments.k, rows, arguments.num_splits).parts[-1]
            part.make(rows)
        listed += [{"rows": rows, "name": kernel.name, "text": kernel.text} for kernel in recording.kernels]
        output.line(f"rows {rows}: {', '.join(kernel.name for kernel in recording.kernels)}")
    output.line(f"\n{listed[-1]['text']}")
    return 0
