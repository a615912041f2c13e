"""Errors of FP8 beside packed weights with Hopper's own accumulation (`set_fast_accumulation`) and without, by FP64.

python benchmarks/bench_fast_accumulation.py --out results    # h200_fast_accumulation.json, on an H200
python benchmarks/bench_fast_accumulation.py --table FILE     # the table that stands in docs/low_precision.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import torch
from machine import describe, read_result, write_result
from tables import table

import deep_gemm

DEVICE = "cuda"
M, N = 4096, 1024
KS = [1024, 2048, 4096, 7168, 16384]
WEIGHTS = {"int4, channels": ("fp8_int4_gemm_nt", "int4", None), "MXFP4": ("fp8_fp4_gemm_nt", "e2m1", 32)}
TOKENS = ["normal", "positive"]
ERRORS = ["largest", "mean", "toward 0"]


def measure() -> Iterator[dict]:
    for k, name, tokens in product(KS, WEIGHTS, TOKENS):
        torch.manual_seed(k)
        function, element, group = WEIGHTS[name]
        codes = torch.randint(-7, 8, (N, k), device=DEVICE, dtype=torch.int8)
        scales = torch.rand(N, device=DEVICE) + 0.5
        if element == "e2m1":
            codes, scales = (
                codes.to(torch.uint8) & 15,
                torch.exp2(torch.randint(-6, 0, (N, k // group), device=DEVICE).float()),
            )
        w = deep_gemm.pack_weights(codes, scales, element=element, activations="fp8", group_size=group)
        a = torch.randn((M, k), device=DEVICE)
        a = (a.abs() if tokens == "positive" else a).to(torch.float8_e4m3fn)
        of_tokens = torch.rand(M, device=DEVICE) + 0.5
        exact_a, exact_w = a.double() * of_tokens.double()[:, None], w.dequantize().double()
        wanted, sizes = exact_a @ exact_w.mT, exact_a.abs() @ exact_w.abs().mT
        for fast in (False, True):
            d = torch.full((M, N), float("nan"), device=DEVICE)
            deep_gemm.set_fast_accumulation(fast)
            getattr(deep_gemm, function)((a, of_tokens), w, d)
            deep_gemm.set_fast_accumulation(False)
            errors = (d.double() - wanted) / sizes
            found = (errors.abs().max(), errors.abs().mean(), (-errors * wanted.sign()).mean())
            yield {"case": [k, name, tokens, fast], **dict(zip(ERRORS, map(float, found), strict=True))}


def tables(document: dict) -> str:
    """Off and on side by side; errors as shares of the sum of |a| |w|."""
    by_case = {tuple(row["case"]): row for row in document["results"]}
    lines = []
    for k, name, tokens, _ in (case for case in by_case if not case[3]):
        rows = [by_case[k, name, tokens, fast] for fast in (False, True)]
        lines.append([name, tokens, str(k), *(" to ".join(f"{row[error]:.1e}" for row in rows) for error in ERRORS)])
    machine = document["machine"]
    return (
        table(["weights", "tokens", "K", *ERRORS], sorted(lines, key=lambda line: line[:2]))
        + f"\n{machine['gpu']}, driver {machine['driver']}, {machine['compiler']}, commit {machine['commit']}.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="the folder of h200_fast_accumulation.json (by the card's name)")
    parser.add_argument("--commit", help="of the package, where it is no clone")
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    if options.table:
        print(tables(read_result(options.table)))
        return
    machine = describe(options.commit)
    document = {"machine": machine, "results": list(measure())}
    write_result(options.out / f"{machine['gpu'].split()[1].lower()}_fast_accumulation.json", document)
    print(tables(document))


if __name__ == "__main__":
    main()
