"""Options that several commands have, and what their values must be."""

from __future__ import annotations

import argparse
import re

from .._extension import C
from .._precompile import DEFAULT
from .._products import DEFAULT_PRODUCT, GROUPINGS, PRODUCTS
from .._targets import GPUS, HOPPER_TARGET
from .kernels import INT8_SCALES


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
    for product in (name for name in PRODUCTS if name != DEFAULT_PRODUCT):
        activations, _, weights = product.upper().partition("_")
        kinds = f"{weights} weights, {activations} activations" if weights else f"{activations} operands"
        name = f"--{product.replace('_', '-')}"
        products.add_argument(
            name, action="store_const", const=product, dest="product", help=f"{kinds} instead of FP8 operands"
        )
    parser.set_defaults(product=DEFAULT_PRODUCT)
    add_packing(parser)
    parser.add_argument("--token-scales", action="store_true", help="FP8 activations have one scale a token, or one")
    parser.add_argument("--minus-eight", action="store_true", help="int4 weights for FP8 hold -8")
    parser.add_argument(
        "--far-exponents", action="store_true", help="FP4 weights do not fold exponents, or are pairs of the public API"
    )
    parser.add_argument("--grouping", choices=list(GROUPINGS), default="dense", help="which function of experts")
    parser.add_argument("--experts", type=extent, default=1, help="how many experts a call has")
    parser.add_argument("--expected-m", type=extent, default=0, help="hint of calls with experts (precompile: of psum)")


def add_packing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--group-size",
        type=group_size,
        default=DEFAULT,
        help="of K that share a scale of 4-bit weights, or 'channel': 128 of int4 for FP8, channel for INT8 and int4, "
        "32 of FP4; of FP4 operands 32 (MXFP4) or 16 (NVFP4)",
    )
    parser.add_argument("--zero-points", action="store_true", help="int4 weights have zero points")


def add_target(parser: argparse.ArgumentParser) -> None:
    known = ", ".join(f"{target} ({gpu.names})" for target, gpu in GPUS.items())
    parser.add_argument("--target", choices=list(GPUS), default=HOPPER_TARGET, help=f"what to compile for: {known}")


def add_gpu(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", metavar="NAME", help="as its driver says it, if not the target's first: " + C.gpus())


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
