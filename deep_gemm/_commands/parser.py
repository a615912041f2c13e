"""The command line of `python -m deep_gemm`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

from deep_gemm import __version__

from .._precompile import BIASES
from .._targets import GPUS
from .bench import add_arguments as add_bench_arguments
from .bench import bench
from .cache import cache
from .demo import SIMULATOR_SHAPE, demo, simulate
from .doctor import doctor
from .kernels import explain, precompile
from .logits import add_arguments as add_logits_arguments
from .logits import logits
from .options import add_gpu, add_packing, add_product, add_scales, add_target, amount, extent, weight
from .output import Output
from .prenorm import add_arguments as add_prenorm_arguments
from .prenorm import prenorm
from .sim import add_arguments as add_sim_arguments
from .sim import sim

Run = Callable[[argparse.Namespace, Output], int]


def add_json(parser: argparse.ArgumentParser) -> None:
    # Without a default: what is said before a command's name holds behind it, too.
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object instead")


class Parser(argparse.ArgumentParser):
    """Whose errors are two lines."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\nSee: {self.prog} --help\n")


def parse_arguments(description: str | None) -> argparse.Namespace:
    parser = Parser(prog="python -m deep_gemm", description=description)
    parser.add_argument("--version", action="version", version=f"deep_gemm {__version__}")
    add_json(parser)
    commands = parser.add_subparsers(dest="command")

    def command(
        name: str,
        run: Run,
        help: str,
        shape: bool = True,
        default: tuple[int, int, int] | None = None,
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help, description=run.__doc__)
        added.set_defaults(run=run)
        add_json(added)
        if shape:
            for place, side in enumerate(("m", "n", "k")):
                if default:
                    added.add_argument(side, type=extent, metavar=side.upper(), nargs="?", default=default[place])
                else:
                    added.add_argument(side, type=extent, metavar=side.upper())
        return added

    command(
        "doctor",
        lambda _, output: 0 if doctor(output) else 1,
        "what was found: GPU, driver, compiler, cache",
        shape=False,
    )
    command("demo", lambda _, output: demo(output), "one FP8 GEMM, checked and timed", shape=False)
    explained = command("explain", explain, "candidates for a shape, why each was refused, and the choice")
    add_target(explained)
    add_gpu(explained)
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
    compiled.add_argument("--training", action="store_true", help="of a model: also gradients of tokens and weights")
    compiled.add_argument("--mega-moe", action="store_true", help="of a model: also its experts by fp8_mega_moe")
    compiled.add_argument("--dry-run", action="store_true", help="say which kernels there are, and compile none")
    compiled.add_argument("--max-m", type=extent, default=4096, help="the most rows (tokens) of a call")
    add_target(compiled)
    add_gpu(compiled)
    compiled.add_argument("--sms", type=extent, help="SMs of the GPU that will run them, if not all")
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
    add_logits_arguments(scored, extent)
    add_target(scored)
    before = command("prenorm", prenorm, "kernels of the product before the norm, and compiling them", shape=False)
    add_prenorm_arguments(before, extent)
    add_target(before)
    add_gpu(before)
    cached = command("cache", cache, "list, check and delete compiled kernels", shape=False)
    actions = cached.add_subparsers(dest="action", required=True)

    def action(name: str, help: str) -> argparse.ArgumentParser:
        added = actions.add_parser(name, help=help)
        add_json(added)
        return added

    action("list", help="each kernel: when and for what it was compiled")
    action("size", help="what the cache takes on disk")
    verified = action("verify", help="read every kernel, and report those that are not what was written")
    verified.add_argument("--remove", action="store_true", help="delete damaged entries")
    action("clear", help="delete everything")
    packed = action("pack", help="write all kernels into one file, as for an image")
    packed.add_argument("file", help="a compressed tar file to write")
    packed.add_argument("--target", action="append", choices=list(GPUS), help="only of this target, or these")
    unpacked = action("unpack", help="add the kernels of such a file, from whom you trust")
    unpacked.add_argument("file")
    pruned = action("prune", help="delete the oldest kernels")
    pruned.add_argument("--max-mb", type=amount, help="until no more than this is left")
    pruned.add_argument("--older-than", type=amount, metavar="DAYS", help="those compiled longer ago than this")
    benched = command("bench", bench, "time of any function, shapes or a model's products", shape=False)
    add_bench_arguments(benched)
    add_target(benched)
    add_packing(benched)
    simulated = command(
        "simulate", simulate, "one GEMM on the simulator: result, hazards, statistics", default=SIMULATOR_SHAPE
    )
    add_target(simulated)
    simulated.add_argument("--schedule", choices=["lazy", "eager", "random"], default="eager")
    simulated.add_argument("--seed", type=int, default=0)
    any_kernel = command("sim", sim, "run PTX of any compiler on the simulator", shape=False)
    ran = any_kernel.add_subparsers(dest="action", required=True).add_parser("run", help="its hazards and statistics")
    add_json(ran)
    add_sim_arguments(ran)
    return parser.parse_args()
