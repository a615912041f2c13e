"""`python -m deep_gemm bench`: time of any public function, of shapes or of a model's weights."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from .. import _models
from .._cases import FUNCTIONS, Case, Wanted, build, build_weight
from .._progress import progress
from .doctor import usable_gpu
from .output import Output, first_line
from .results import require_matplotlib, table, write_csv, write_png
from .timing import gpu_seconds

DEFAULT_FUNCTION, DEFAULT_ROWS = "fp8_gemm_nt", (1, 16, 64, 256, 4096)
_SHAPE = re.compile(r"[1-9][0-9]*(x[1-9][0-9]*)*")
NO_TIMES = "on the simulator, which executes each instruction: times there mean nothing, and none is given"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="*",
        metavar="FUNCTION | SHAPE",
        help=f"functions ({DEFAULT_FUNCTION} if none is named) and shapes: 4096x7168x2048 is MxNxK, of experts and K "
        "groups GxMxNxK; M N K as three numbers will do",
    )
    parser.add_argument("--list", metavar="FILE", help="lines of a function and a shape, or of a shape")
    parser.add_argument("--functions", action="store_true", help="say which functions there are")
    parser.add_argument("--model", metavar="CONFIG", help="a model's config.json, or its directory: all its products")
    parser.add_argument(
        "--rows",
        type=_count,
        nargs="+",
        default=DEFAULT_ROWS,
        help="of a model: tokens of a call, of experts those of all GPUs that share them",
    )
    parser.add_argument("--tensor-parallel", type=_count, default=1, help="of a model: GPUs that share its layers")
    parser.add_argument("--expert-parallel", type=_count, default=1, help="of a model: GPUs that share its experts")
    parser.add_argument("--expr", default="bhr,hdr->bhd", help="of einsum and fp8_einsum, of BxHxDxR")
    parser.add_argument("--calls", type=_count, default=20, help="timed calls of each; the median counts")
    parser.add_argument("--csv", metavar="FILE", help="write the rows there, too")
    parser.add_argument("--png", metavar="FILE", help="draw them there, too (needs matplotlib)")
    parser.add_argument("--simulate", action="store_true", help="check on the CPU's simulator, without times")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a whole number from 1 up is wanted, not {text!r}")
    return int(text)


def bench(arguments: argparse.Namespace, output: Output) -> int:
    """Time of public functions on the GPU, each checked against FP64, beside torch's own product where it has one."""
    if arguments.functions:
        output.facts["functions"] = sorted(FUNCTIONS)
        output.line("\n".join(sorted(FUNCTIONS)))
        return 0
    wanted_of = _weights(arguments) if arguments.model else _shapes(arguments)
    if arguments.png and arguments.simulate:
        raise ValueError("--png draws times, and --simulate has none")
    if arguments.png:
        require_matplotlib()  # before anything runs
    gpu, what = usable_gpu()
    if not arguments.simulate and not gpu:
        output.line(f"nothing was measured: GPU: {what}")
        output.line("With --simulate the calls are checked on the CPU's simulator, without times.")
        output.facts["error"] = f"nothing was measured: GPU: {what}"
        return 1
    output.facts |= {"device": "simulator" if arguments.simulate else what, "rows": []}
    output.line(f"{len(wanted_of)} calls, {NO_TIMES if arguments.simulate else what}")
    with _device(arguments) as wanted:
        bar = progress(wanted_of, "measuring", "calls", len(wanted_of))
        rows = [_run(name, make, wanted, arguments) for name, make in bar]
    output.facts["rows"] = rows
    output.line(table(rows))
    if arguments.csv:
        write_csv(arguments.csv, rows)
    if arguments.png:
        write_png(arguments.png, rows)
    return 0 if all(row["right"] for row in rows) else 1


@contextlib.contextmanager
def _device(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What `Wanted` is made of."""
    import deep_gemm
    from deep_gemm import simulator

    how = {"group_size": arguments.group_size, "zero_points": arguments.zero_points, "expr": arguments.expr}
    if not arguments.simulate:
        device = torch.device("cuda", torch.cuda.current_device())
        yield {"device": device, "target": deep_gemm.get_target(device), **how}
        return
    with simulator.options(target=arguments.target, hazards="error"):
        yield {"device": torch.device("cpu"), "target": arguments.target, **how}


def _shapes(arguments: argparse.Namespace) -> list[tuple[str, Any]]:
    """What makes each case, behind what it is called."""
    names = [word for word in arguments.what if not _SHAPE.fullmatch(word)]
    shapes = [word for word in arguments.what if _SHAPE.fullmatch(word)]
    if len(shapes) == 3 and not any("x" in shape for shape in shapes):
        shapes = ["x".join(shapes)]
    pairs = [(name, shape) for name in names or [DEFAULT_FUNCTION] for shape in shapes]
    for line in Path(arguments.list).read_text().splitlines() if arguments.list else ():
        parts = line.partition("#")[0].split()
        if parts:
            name, shape = parts if len(parts) == 2 else (DEFAULT_FUNCTION, parts[0])
            if len(parts) > 2 or not _SHAPE.fullmatch(shape):
                raise ValueError(f"{arguments.list}: a line must be FUNCTION SHAPE or SHAPE, got {line!r}")
            pairs.append((name, shape))
    if not pairs:
        raise ValueError("bench wants shapes (4096x7168x2048 ...), --list FILE or --model config.json")
    for name, _ in pairs:
        if name not in FUNCTIONS:
            raise ValueError(f"there is no such function to bench: {name!r} (bench --functions lists them)")

    def maker(name: str, shape: str) -> Any:
        return lambda wanted: build(name, tuple(map(int, shape.split("x"))), wanted)

    return [(name, maker(name, shape)) for name, shape in pairs]


def _weights(arguments: argparse.Namespace) -> list[tuple[str, Any]]:
    if arguments.what:
        raise ValueError("bench wants shapes or --model, not both")
    calls = _models.ModelCalls(arguments.tensor_parallel, arguments.expert_parallel)
    weights = _models.weights_of_model(arguments.model, calls)

    def maker(weight: _models.ModelWeight, m: int) -> Any:
        def make(wanted: Wanted) -> Case:
            wanted.group_size, wanted.zero_points = weight.calls.operands.group_size, weight.calls.operands.zero_points
            return build_weight(weight, m, wanted)

        return make

    return [(weight.name, maker(weight, m)) for weight in weights for m in arguments.rows]


def _run(name: str, make: Any, how: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """A row of the table."""
    row: dict[str, Any] = {"weight": name} if arguments.model else {"function": name}
    try:
        _fill(row, make(Wanted(**how)), how["device"], arguments.calls)
    except (RuntimeError, ValueError, TypeError) as error:  # what the library says to its caller; others go on
        row |= {"right": False, "error": first_line(error)}
    return row


def _fill(row: dict[str, Any], case: Case, device: torch.device, calls: int) -> None:
    row |= {"function": case.function, "shape": case.text}
    case.call()
    row["difference"] = case.check()
    row["right"] = row["difference"] <= case.limit
    if device.type != "cuda":
        return
    seconds = gpu_seconds(case.call, device, calls)
    row |= {"us": seconds * 1e6, "gb_per_s": case.bytes / seconds * 1e-9}
    if case.flops:
        row["tflops"] = case.flops / seconds * 1e-12
    if case.torch_call is not None:
        row["torch_is"] = case.torch_is
        try:
            case.torch_call()
            row["torch_us"] = gpu_seconds(case.torch_call, device, calls) * 1e6
            row["times_as_fast"] = row["torch_us"] / row["us"]
        except (RuntimeError, ValueError, TypeError) as error:
            row["torch_is"] += f": {first_line(error)}"
