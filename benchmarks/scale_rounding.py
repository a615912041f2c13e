"""What becomes of an FP8 checkpoint with FP32 scales on SM100: docs/migrating.md's table, on the simulator.

    python benchmarks/scale_rounding.py

writes it between the document's `<!-- begin scale rounding` and `<!-- end scale rounding -->`. Weights are E4M3 with an
FP32 scale for each 128x128 block, as made for Hopper; tokens are cast by the caller. Each product is compared
with FP64's of the tokens before they were cast and the weights that the checkpoint holds, or those that it was made of.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import paths  # noqa: F401
import torch
from tables import table

import deep_gemm
from deep_gemm import simulator
from deep_gemm.utils import ceil_to_ue8m0, per_block_cast_to_fp8, per_token_cast_to_fp8

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "migrating.md"
M, N, K, BLOCK = 32, 128, 1024, 128
Scaled = tuple[torch.Tensor, torch.Tensor]


def normal(rows: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn((rows, K), generator=generator)


def outlying_channels(rows: int, generator: torch.Generator) -> torch.Tensor:
    """One of 64 channels of K is 50 times as large, the same ones for all rows."""
    values = normal(rows, generator)
    values[:, ::64] *= 50
    return values


def outlying_values(rows: int, generator: torch.Generator) -> torch.Tensor:
    """One of 1,000 values is 100 times as large, anywhere."""
    values = normal(rows, generator)
    return torch.where(torch.rand(values.shape, generator=generator) < 0.001, 100 * values, values)


DATA = {
    "normal": (normal, normal),
    "tokens with outlying channels": (outlying_channels, normal),
    "tokens and weights with outlying values": (outlying_values, outlying_values),
}


def of_weights(scaled: Scaled) -> torch.Tensor:
    codes, scales = scaled
    spread = scales.double().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return codes.double() * spread[: codes.shape[0], : codes.shape[1]]


def as_they_are(tokens: torch.Tensor, weights: Scaled) -> torch.Tensor:
    return product(per_token_cast_to_fp8(tokens, use_ue8m0=False), weights, disable_ue8m0_cast=True)


def rounded_up(tokens: torch.Tensor, weights: Scaled) -> torch.Tensor:
    codes, scales = per_token_cast_to_fp8(tokens, use_ue8m0=False)
    return product((codes, ceil_to_ue8m0(scales)), (weights[0], ceil_to_ue8m0(weights[1])))


def anew(tokens: torch.Tensor, weights: Scaled) -> torch.Tensor:
    again = per_block_cast_to_fp8(of_weights(weights).float(), use_ue8m0=True)
    return product(per_token_cast_to_fp8(tokens, use_ue8m0=True), again)


WAYS: dict[str, Callable[[torch.Tensor, Scaled], torch.Tensor]] = {
    "FP32 scales as they are (`disable_ue8m0_cast=True`)": as_they_are,
    "quantised anew, with powers of two": anew,
    "scales rounded up to powers of two, codes kept": rounded_up,
}


def product(a: Scaled, b: Scaled, **more: bool) -> torch.Tensor:
    d = torch.empty((a[0].shape[0], b[0].shape[0]))
    deep_gemm.fp8_gemm_nt(a, b, d, **more)
    return d.double()


def error(found: torch.Tensor, expected: torch.Tensor) -> str:
    """Root of the mean square, relative to that of what is expected."""
    return f"{100 * float((found - expected).norm() / expected.norm()):.1f} %"


def errors() -> str:
    columns: dict[str, list[str]] = {name: [] for name in WAYS}
    for make_tokens, make_weights in DATA.values():
        generator = torch.Generator().manual_seed(0)
        tokens, original = make_tokens(M, generator), make_weights(N, generator)
        weights = per_block_cast_to_fp8(original, use_ue8m0=False)
        with simulator.options(target="sm_100a"):
            for name, way in WAYS.items():
                found = way(tokens, weights)
                columns[name] += [
                    error(found, tokens.double() @ expected.T) for expected in (of_weights(weights), original.double())
                ]
    header = [text for name in DATA for text in (f"{name}: from the checkpoint's product", "from the original")]
    return table(["", *header], [[name, *values] for name, values in columns.items()])


def with_table(document: str, written: str) -> str:
    marked = re.compile(r"(<!-- begin scale rounding[^\n]*-->\n).*?(<!-- end scale rounding -->)", re.DOTALL)
    found, count = marked.subn(lambda match: f"{match[1]}\n{written.strip()}\n\n{match[2]}", document)
    if count != 1:
        raise SystemExit(f"the document has {count} places for the table of what rounding scales does")
    return found


if __name__ == "__main__":
    print(errors())
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(), errors()))
