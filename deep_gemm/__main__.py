"""Command line: `python -m deep_gemm [COMMAND]`.

Without a command: say what was found (GPU, driver, compiler, cache), then run one FP8 GEMM and check it.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable

import torch

from deep_gemm import __version__, _logits_command, jit
from deep_gemm._cache_command import cache
from deep_gemm._demo import (
    SIMULATOR_SHAPE,
    demo,
    doctor,
    gpu_seconds,
    print_speed,
    print_statistics,
    run_and_check,
    say,
    usable_gpu,
)
from deep_gemm._kernel_commands import INT8_SCALES, compile_and_tell, explain, precompile
from deep_gemm._precompile import BIASES, DEFAULT, GROUPINGS, PRODUCTS
from deep_gemm._targets import GPUS, HOPPER_TARGET


def logits(arguments: argparse.Namespace) -> int:
    """Kernels of index logits by the number of query rows, and compiling them."""
    if arguments.compile:
        target = arguments.target
        kernels = [jit.RecordedKernel(*source, target) for source in _logits_command.sources_of(arguments)]
        return compile_and_tell(jit.Recording(target, kernels))
    _logits_command.explain(arguments)
    return 0


def bench(arguments: argparse.Namespace) -> int:
    """Time of one shape on the GPU."""
    gpu, why_not = usable_gpu()
    if not gpu:
        print(f"nothing was measured: GPU: {why_not}")
        return 1
    device = torch.device("cuda", torch.cuda.current_device())
    call, right = run_and_check(arguments.m, arguments.n, arguments.k, device)
    print_speed(arguments.m, arguments.n, arguments.k, gpu_seconds(call, device))
    return 0 if right else 1


def simulate(arguments: argparse.Namespace) -> int:
    """One GEMM on the simulator: result, hazards, statistics."""
    from deep_gemm import simulator

    shape = (arguments.m, arguments.n, arguments.k)
    where = f"the PTX simulator as {arguments.target}"
    print("FP8 GEMM, M={} N={} K={}, on {}".format(*shape, where), flush=True)
    with simulator.options(target=arguments.target, schedule=arguments.schedule, seed=arguments.seed, hazards="report"):
        _, right = run_and_check(*shape, torch.device("cpu"))
        report = simulator.last_report()
    assert report is not None
    say("hazards", len(report.hazards) or "none")
    for hazard in report.hazards[:5]:
        print(hazard)
    print_statistics(report.statistics)
    return 0 if right and not report.hazards else 1


def extent(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a whole number from 1 up is wanted, not {text!r}")
    return int(text)


def weight(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9][0-9]*)x([1-9][0-9]*)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"a weight's shape is NxK, as 7168x2048, not {text!r}")
    return int(match[1]), int(match[2])


def amount(text: str) -> float:
    value = float(text) if re.fullmatch(r"[0-9]+(\.[0-9]*)?", text) else -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"a number from 0 up is wanted, not {text!r}")
    return value


def group_size(text: str) -> int | str | None:
    return text if text == DEFAULT else None if text == "channel" else extent(text)


def add_product(parser: argparse.ArgumentParser) -> None:
    products = parser.add_mutually_exclusive_group()
    for product in PRODUCTS[1:]:
        activations, _, weights = product.upper().partition("_")
        kinds = f"{weights} weights, {activations} activations" if weights else f"{activations} operands"
        name = f"--{product.replace('_', '-')}"
        products.add_argument(
            name, action="store_const", const=product, dest="product", help=f"{kinds} instead of FP8 operands"
        )
    parser.set_defaults(product=PRODUCTS[0])
    parser.add_argument(
        "--group-size",
        type=group_size,
        default=DEFAULT,
        help="of K that share a scale of 4-bit weights, or 'channel': 128 of int4 for FP8, channel for INT8 and int4, "
        "32 of FP4; of FP4 operands 32 (MXFP4) or 16 (NVFP4)",
    )
    parser.add_argument("--token-scales", action="store_true", help="FP8 activations have one scale a token, or one")
    parser.add_argument("--minus-eight", action="store_true", help="int4 weights for FP8 hold -8")
    parser.add_argument("--zero-points", action="store_true", help="int4 weights have zero points")
    parser.add_argument(
        "--far-exponents", action="store_true", help="FP4 weights do not fold exponents, or are pairs of the public API"
    )
    parser.add_argument("--grouping", choices=list(GROUPINGS), default="dense", help="which function of experts")
    parser.add_argument("--experts", type=extent, default=1, help="how many experts a call has")
    parser.add_argument("--expected-m", type=extent, help="hint of calls with experts (precompile: of psum)")


def add_target(parser: argparse.ArgumentParser) -> None:
    known = ", ".join(f"{target} ({gpu.names})" for target, gpu in GPUS.items())
    parser.add_argument("--target", choices=list(GPUS), default=HOPPER_TARGET, help=f"what to compile for: {known}")


def add_scales(parser: argparse.ArgumentParser) -> None:
    for name in "ab":
        parser.add_argument(
            f"--gran-k-{name}",
            choices=["32", "128"],
            default="128",
            help=f"of K that share a scale of {name.upper()}",
        )
        parser.add_argument(
            f"--scales-{name}",
            choices=["fp32", "packed"],
            default="fp32",
            help=f"how calls on SM100 hand over scales of {name.upper()}",
        )
    parser.add_argument(
        "--fp32-scales",
        action="store_true",
        help="calls on SM100 multiply FP32 scales of FP8 as they are (disable_ue8m0_cast, set_fp32_scales)",
    )
    parser.add_argument("--alpha", action="store_true", help="calls have an alpha, or an epilogue Alpha")
    parser.add_argument("--row-scale", action="store_true", help="calls have an epilogue RowScale")
    parser.add_argument(
        "--int8-scales",
        choices=list(INT8_SCALES),
        default="whole",
        help="of INT8 weights: for all of K, for each row and 128 of K, or for blocks of 128x128",
    )
    parser.add_argument(
        "--int8-tokens",
        choices=["whole", "groups"],
        default="whole",
        help="scales of INT8 activations: for all of K, or for each token and 128 of K",
    )
    parser.add_argument("--asymmetric", action="store_true", help="INT8 activations have zero points")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m deep_gemm", description=__doc__)
    parser.add_argument("--version", action="version", version=f"deep_gemm {__version__}")
    commands = parser.add_subparsers(dest="command")

    def command(
        name: str,
        run: Callable[[argparse.Namespace], int],
        help: str,
        shape: bool = True,
        default: tuple[int, int, int] | None = None,
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help, description=run.__doc__)
        added.set_defaults(run=run)
        if shape:
            for place, side in enumerate(("m", "n", "k")):
                if default:
                    added.add_argument(side, type=extent, metavar=side.upper(), nargs="?", default=default[place])
                else:
                    added.add_argument(side, type=extent, metavar=side.upper())
        return added

    command("doctor", lambda _: 0 if doctor() else 1, "what was found: GPU, driver, compiler, cache", shape=False)
    command("demo", lambda _: demo(), "one FP8 GEMM, checked and timed", shape=False)
    explained = command("explain", explain, "candidates for a shape, why each was refused, and the choice")
    add_target(explained)
    explained.add_argument("--sms", type=extent, help="SMs that the kernel may use, if not all")
    explained.add_argument("--all", action="store_true", help="print every candidate")
    add_product(explained)
    add_scales(explained)
    compiled = command("precompile", precompile, "compile the kernels of weights, with or without a GPU", shape=False)
    compiled.add_argument("weight", type=weight, nargs="*", metavar="NxK", help="a weight's shape, as 7168x2048")
    compiled.add_argument("--model", metavar="CONFIG", help="a model's config.json, or its directory: all its products")
    compiled.add_argument("--tensor-parallel", type=extent, default=1, help="of a model: GPUs that share its layers")
    compiled.add_argument("--expert-parallel", type=extent, default=1, help="of a model: GPUs that share its experts")
    compiled.add_argument("--max-masked-m", type=extent, default=1024, help="of a model: room of each masked expert")
    compiled.add_argument("--dry-run", action="store_true", help="say which kernels there are, and compile none")
    compiled.add_argument("--max-m", type=extent, default=4096, help="the most rows (tokens) of a call")
    add_target(compiled)
    compiled.add_argument("--sms", type=extent, help="SMs of the GPU that will run them")
    compiled.add_argument(
        "--newer-gpu", action="store_true", help="for a newer GPU that stands in for the target (DG_TARGET): PTX"
    )
    compiled.add_argument(
        "--layouts", action="store_true", help="also what copies and transposes operands and scales that lie otherwise"
    )
    output = compiled.add_mutually_exclusive_group()
    for name, dtype, of_fp16 in (("--fp32", "fp32", " (of FP16 operands: FP16)"), ("--fp16-output", "fp16", "")):
        output.add_argument(
            name,
            action="store_const",
            const=dtype,
            dest="output",
            help=f"for {dtype.upper()} output instead of BF16{of_fp16}",
        )
    add_product(compiled)
    add_scales(compiled)
    compiled.add_argument("--bias", choices=list(BIASES), help="for calls that pass a bias of this dtype")
    compiled.add_argument("--add-c", action="store_true", help="for calls that pass c")
    scored = command("logits", logits, "kernels of index logits, and compiling them", shape=False)
    _logits_command.add_arguments(scored, extent)
    add_target(scored)
    cached = command("cache", cache, "list, check and delete compiled kernels", shape=False)
    actions = cached.add_subparsers(dest="action", required=True)
    actions.add_parser("list", help="each kernel: when and for what it was compiled")
    actions.add_parser("size", help="what the cache takes on disk")
    verified = actions.add_parser("verify", help="read every kernel, and report those that are not what was written")
    verified.add_argument("--remove", action="store_true", help="delete damaged entries")
    actions.add_parser("clear", help="delete everything")
    packed = actions.add_parser("pack", help="write all kernels into one file, as for an image")
    packed.add_argument("file", help="a compressed tar file to write")
    packed.add_argument("--target", action="append", choices=list(GPUS), help="only of this target, or these")
    unpacked = actions.add_parser("unpack", help="add the kernels of such a file, from whom you trust")
    unpacked.add_argument("file")
    pruned = actions.add_parser("prune", help="delete the oldest kernels")
    pruned.add_argument("--max-mb", type=amount, help="until no more than this is left")
    pruned.add_argument("--older-than", type=amount, metavar="DAYS", help="those compiled longer ago than this")
    command("bench", bench, "time of one shape on the GPU")
    simulated = command(
        "simulate", simulate, "one GEMM on the simulator: result, hazards, statistics", default=SIMULATOR_SHAPE
    )
    add_target(simulated)
    simulated.add_argument("--schedule", choices=["lazy", "eager", "random"], default="eager")
    simulated.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    if arguments.command is None:
        return demo() if doctor() else 1
    try:
        return int(arguments.run(arguments))
    except BrokenPipeError:  # see below
        raise
    except (RuntimeError, ValueError, OSError) as error:  # what the library says to its caller
        print(f"python -m deep_gemm {arguments.command}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("\npython -m deep_gemm: interrupted", file=sys.stderr)
        status = 130  # as shells report it: 128 and the signal's number
    except BrokenPipeError:  # the reader, as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        status = 0
    raise SystemExit(status)
