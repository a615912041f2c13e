"""`python -m deep_gemm sim run KERNEL`: a kernel of any compiler on the simulator, with its hazards."""

from __future__ import annotations

import argparse
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from .. import simulator
from .demo import tell_statistics
from .output import Output

_DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "i64": torch.int64,
    "i32": torch.int32,
    "i8": torch.int8,
    "u8": torch.uint8,
}
_NUMBERS = {"i64": "q", "i32": "i", "f64": "d", "f32": "f"}
_TENSOR = re.compile(r"(\w+)\[([0-9]+(?:,[0-9]+)*)\](?:=(.+))?")
_NUMBER = re.compile(r"(\w+)=(.+)")
FORMS = "f32[64,32]=random, =arange or =1.5 (zeros without), @file.pt (torch.save), i32=5, f32=0.5"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="KERNEL",
        help="KERNEL.ptx, as nvcc --ptx or Triton's cache has it, or KERNEL.cu to compile first",
    )
    parser.add_argument("--target", default="sm_90a", help="of a KERNEL.cu: what NVRTC compiles it for")
    parser.add_argument("--timeline", action="store_true", help="what happened at barriers, and when")
    parser.add_argument("--entry", default="", help="the kernel's name; the first one of the file by default")
    for name, default in (("grid", "1"), ("block", "32"), ("cluster", "1")):
        parser.add_argument(f"--{name}", type=_extents, default=_extents(default), metavar="X[,Y[,Z]]")
    parser.add_argument("--smem", type=int, default=0, metavar="BYTES", help="dynamic shared memory")
    parser.add_argument(
        "--args", nargs="*", default=[], metavar="ARG", help=f"the kernel's parameters in order: {FORMS}"
    )
    parser.add_argument("--save", metavar="FILE", help="write the tensors there afterwards, as a list, by torch.save")
    parser.add_argument("--schedule", choices=list(simulator.SCHEDULES), default="eager")
    parser.add_argument("--rules", choices=list(simulator.RULES), default="manual")
    parser.add_argument("--seed", type=int, default=0, help="of the random schedule, and of random tensors")


def _extents(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9][0-9]*(,[1-9][0-9]*){0,2}", text):
        raise argparse.ArgumentTypeError(f"one to three whole numbers from 1 up are wanted, as 8 or 4,2, not {text!r}")
    return tuple(map(int, text.split(",")))


def argument(text: str, generator: torch.Generator) -> torch.Tensor | bytes:
    """A tensor whose address is passed, or the bytes of a number."""
    if text.startswith("@"):
        loaded = torch.load(text[1:], weights_only=True)
        if not isinstance(loaded, torch.Tensor):
            raise ValueError(f"{text[1:]} must hold a tensor, got {type(loaded).__name__}")
        return loaded.contiguous()
    if (found := _TENSOR.fullmatch(text)) and found[1] in _DTYPES:
        return _tensor(_DTYPES[found[1]], [int(extent) for extent in found[2].split(",")], found[3], generator)
    if (found := _NUMBER.fullmatch(text)) and found[1] in _NUMBERS:
        try:
            value = float(found[2]) if found[1].startswith("f") else int(found[2], 0)
            return struct.pack("<" + _NUMBERS[found[1]], value)
        except (ValueError, struct.error):
            raise ValueError(f"{text!r} must be a number that {found[1]} can hold") from None
    raise ValueError(f"an argument must be like {FORMS}; types are {', '.join(_DTYPES)}; got {text!r}")


def _tensor(dtype: torch.dtype, shape: list[int], fill: str | None, generator: torch.Generator) -> torch.Tensor:
    if fill == "random":
        if dtype.is_floating_point:
            return torch.randn(shape, generator=generator).to(dtype)
        return torch.randint(0, 100, shape, generator=generator).to(dtype)
    if fill == "arange":
        return torch.arange(torch.Size(shape).numel(), dtype=torch.float64).view(shape).to(dtype)
    try:
        return torch.full(shape, 0.0 if fill is None else float(fill), dtype=torch.float64).to(dtype)
    except ValueError:
        raise ValueError(f"a tensor is filled by random, arange or a number, got {fill!r}") from None


@contextmanager
def _prints_to_stderr(wanted: bool) -> Iterator[None]:
    """What kernels print: standard output has the JSON only."""
    if not wanted:
        yield
        return
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def sim(arguments: argparse.Namespace, output: Output) -> int:
    """Run PTX on the simulator: its hazards, and what it did."""
    generator = torch.Generator().manual_seed(arguments.seed)
    given = [argument(text, generator) for text in arguments.args]
    tensors = [each for each in given if isinstance(each, torch.Tensor)]
    text = Path(arguments.file).read_text()
    if arguments.file.endswith(".cu"):
        text = simulator.compile_cuda(text, arguments.target, arguments.file)
    with _prints_to_stderr(output.as_json):
        report = simulator.run(
            text,
            entry=arguments.entry,
            grid=arguments.grid,
            block=arguments.block,
            cluster=arguments.cluster,
            smem_bytes=arguments.smem,
            params=simulator.parameters(*given),
            tensors=tensors,
            schedule=arguments.schedule,
            seed=arguments.seed,
            hazards="report",
            rules=arguments.rules,
            timeline=arguments.timeline,
        )
    if arguments.save:
        torch.save(tensors, arguments.save)
    output.facts |= {"file": arguments.file, "hazards": [vars(hazard) for hazard in report.hazards]}
    output.facts["statistics"] = report.statistics
    output.say("hazards", len(report.hazards) or "none")
    for hazard in report.hazards[:5]:
        output.line(hazard)
    if arguments.timeline:
        output.facts["timeline"] = [vars(event) for event in report.timeline]
        output.facts["timeline_left_out"] = report.timeline_left_out
        output.line(report.timeline_text())
    tell_statistics(report.statistics, output)
    return 1 if report.hazards else 0
