"""Random calls that are mostly wrong, each a right one with one or two arguments spoiled, and what must hold of them.

As a program: `python tests/support/wrong_calls.py COUNT SEED` runs so many and prints each that broke a rule, as JSON.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from products import OTHER_NAMES, PRODUCTS, ProductCall, make

import deep_gemm

DTYPES = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e8m0fnu,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
]
NO_TENSORS: list[Any] = [None, 0, 1.5, "d", True, [], (), {}, [1, 2], object, float("nan"), 1 << 70]
NO_COUNTS: list[Any] = [None, -1, 1.5, "3", float("nan"), 1 << 40, [1], True]
NO_RECIPES: list[Any] = [(1, 128), (1, 1, 128, 1), (0, 128, 128), (1, 64, 128), (1, 128, 64), "128", 5, (1, None, 128)]
NO_DIMS: list[Any] = [None, "x", "nn", "nkx", 3, ["n"], b"nk"]
# What a message must not hold: signatures of the runtime, traces, addresses.
PRIVATE = re.compile(r"DLTensor|Mismatched|ffi\.|csrc/|\.cpp|\.hpp|0x[0-9a-f]{6}|Traceback|__tvm|argument #?\d")


def of_dtype(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(tensor.shape, dtype=torch.float32).to(dtype)


def spoiled_tensor(draw: random.Random, tensor: torch.Tensor) -> Any:
    """Something else in a tensor's place: often wrong, sometimes merely unusual."""

    def released() -> torch.Tensor:
        copy = tensor.clone()
        copy.untyped_storage().resize_(0)
        return copy

    def strided() -> torch.Tensor:
        wide = torch.zeros([2 * extent for extent in tensor.shape]).to(tensor.dtype)
        return wide[tuple(slice(None, None, 2) for _ in tensor.shape)]

    choices: list[Callable[[], Any]] = [
        lambda: draw.choice(NO_TENSORS),
        lambda: (tensor, None),
        lambda: of_dtype(tensor, draw.choice(DTYPES)),
        lambda: tensor.to("meta"),
        lambda: tensor[..., :0],
        lambda: tensor[:0],
        lambda: tensor[..., :-1],
        lambda: tensor[:-1],
        lambda: tensor[0],
        lambda: tensor[None],
        lambda: tensor.transpose(0, -1),
        lambda: tensor.expand(3, *tensor.shape),
        lambda: tensor[..., :1].expand(tensor.shape),
        lambda: torch.zeros([2 * extent for extent in tensor.shape]).to(tensor.dtype),
        lambda: torch.zeros(tensor.shape).to_sparse() if tensor.is_floating_point() else tensor,
        released,
        strided,
    ]
    return draw.choice(choices)()


def spoil(draw: random.Random, call: ProductCall, spoiled: list[str]) -> str:
    """Spoils one more argument in place. Returns which."""
    names = {*call.arguments, "c", "recipe", "compiled_dims", "unknown"} - {*spoiled}
    name = draw.choice(sorted(names))
    arguments = call.arguments
    value = arguments.get(name)
    if name == "unknown":
        arguments[draw.choice(["e", "alpha", "bias"])] = 1
    elif isinstance(value, torch.Tensor):
        if value.dtype == torch.int32 and draw.random() < 0.5:
            arguments[name] = torch.randint(-(1 << 20), 1 << 20, value.shape, dtype=torch.int32)
        else:
            arguments[name] = spoiled_tensor(draw, value)
    elif isinstance(value, tuple):
        if draw.random() < 0.3:
            arguments[name] = draw.choice([value[0], (value[0],), (*value, value[1]), None, (value[1], value[0]), 7])
        else:
            half = draw.randrange(2)
            arguments[name] = tuple(
                spoiled_tensor(draw, x) if i == half and isinstance(x, torch.Tensor) else x for i, x in enumerate(value)
            )
    elif name == "c":
        arguments[name] = spoiled_tensor(draw, torch.zeros(3, 5))
    elif name == "compiled_dims":
        arguments[name] = draw.choice(NO_DIMS)
    elif name == "recipe":
        arguments[name] = draw.choice(NO_RECIPES)
    elif isinstance(value, list):
        arguments[name] = draw.choice([[], value[:-1], [*value, 16], [-16, 272], [7, 249], ["a", "b"], 5, None, "ab"])
    else:
        arguments[name] = draw.choice(NO_COUNTS)
    return name


def names_of(call: ProductCall) -> list[str]:
    return [*call.arguments, "c", "recipe", "compiled_dims", "positional argument", "keyword argument"]


def contents(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)


def broken_rule(call: ProductCall) -> str | None:
    """Runs the call. What it does against the rules, if anything."""
    d = call.d
    readable = isinstance(d, torch.Tensor) and d.layout is torch.strided and not d.is_meta
    before = contents(d) if readable and d.untyped_storage().nbytes() > 0 else None
    try:
        call()
    except (ValueError, TypeError) as error:
        text = str(error)
        if PRIVATE.search(text) or "\n" in text.strip():
            return f"a message with private parts: {text!r}"
        if not any(re.search(rf"\b{re.escape(name)}\b", text) for name in names_of(call)):
            return f"a message that names no argument: {text!r}"
        if before is not None and not torch.equal(contents(d), before):
            return f"wrote, and refused: {text!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def run(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Each fault found, with what repeats it."""
    for index in range(count):
        draw = random.Random(f"{seed} {index}")
        torch.manual_seed(seed + index)
        name = draw.choice([*PRODUCTS, *OTHER_NAMES])
        call = make(OTHER_NAMES.get(name, name))
        call.name = name
        spoiled: list[str] = []
        for _ in range(draw.choice([1, 1, 1, 2])):
            spoiled.append(spoil(draw, call, spoiled))
        print(f"{index} {name} {spoiled}", file=sys.stderr, flush=True)  # the last line tells what crashed
        fault = broken_rule(call)
        if fault is not None:
            yield {"seed": seed, "index": index, "name": name, "spoiled": spoiled, "fault": fault}


if __name__ == "__main__":
    deep_gemm.set_num_sms(4, "cpu")
    for fault in run(int(sys.argv[1]), int(sys.argv[2])):
        print(json.dumps(fault), flush=True)
