"""`python -m deep_gemm logits HEADS D`: which kernels calls of index logits get, and compiling them."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from .. import jit
from .._extension import C
from ..logits import DTYPES, FORMS, logits_kernels
from .kernels import compile_and_tell
from .output import Output


def add_arguments(parser: argparse.ArgumentParser, extent: Callable[[str], int]) -> None:
    parser.add_argument("heads", type=extent, help="heads of the indexer, a multiple of 4 up to 128")
    parser.add_argument("d", type=extent, help="D: 32, 64 or 128")
    parser.add_argument("--rows", type=extent, nargs="+", default=[1, 8192], help="query rows of a call, or next_n")
    parser.add_argument("--form", choices=list(FORMS), default="fp8", help="what queries and keys are")
    parser.add_argument("--block-kv", type=extent, default=0, help="keys of a block, for paged calls")
    parser.add_argument("--weights", choices=DTYPES, default="fp32")
    parser.add_argument("--logits", choices=DTYPES, default="fp32")
    parser.add_argument("--compile", action="store_true", help="compile the kernels into the disk cache")


def sources_of(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    return logits_kernels(
        arguments.heads,
        arguments.d,
        rows=arguments.rows,
        form=arguments.form,
        block_kv=arguments.block_kv,
        weights=arguments.weights,
        logits=arguments.logits,
        target=arguments.target,
    )


def logits(arguments: argparse.Namespace, output: Output) -> int:
    """Kernels of index logits by the number of query rows, and compiling them."""
    if arguments.compile:
        target = arguments.target
        kernels = [jit.RecordedKernel(*source, target) for source in sources_of(arguments)]
        return compile_and_tell(jit.Recording(target, kernels), output)
    return explain(arguments, output)


def explain(arguments: argparse.Namespace, output: Output) -> int:
    """Print the kernel of each number of rows, and the text of the last."""
    text = ""
    fields = {"heads": arguments.heads, "d": arguments.d, "block_kv": arguments.block_kv, **FORMS[arguments.form]}
    fields |= {f"bf16_{name}": int(getattr(arguments, name) == "bf16") for name in ("weights", "logits")}
    kernels = output.facts["kernels"] = []
    for rows in arguments.rows:
        kernel = C.logits_kernel({**fields, "rows": rows}, arguments.target)
        facts = {name: kernel[name] for name in ("name", "threads", "smem_bytes", "text")}
        kernels.append({"rows": rows, "rows_at_once": kernel["rows"], **facts})
        output.line(
            f"rows {rows}: {kernel['name']}: {kernel['threads']} threads, {kernel['smem_bytes']} bytes of shared "
            f"memory, {kernel['rows']} rows of a CTA at once"
        )
        text = str(kernel["text"])
    output.line(f"\n{text}")
    return 0
