"""Packed weights beside FP8 activations with scales for 128 of K, many tokens, on Hopper: converted in the product, and
unpacked ahead of it.

python benchmarks/bench_unpacked.py --out results   # h100_unpacked.json, on an H100
python benchmarks/bench_unpacked.py --table FILE    # the table that stands in docs/notes/packed-speed.md

Each way with the config that selection takes for it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import paths  # noqa: F401
import torch
from bench_packed import WEIGHTS, fp8, mn_major, scales
from candidates import Candidate, forced, parse
from field_calls import explain
from tables import table

import deep_gemm
from deep_gemm._extension import C

TOKENS = [512, 1024, 2048, 4096]
# The element, the K that shares a scale, and how selection is told of the weights.
KINDS: dict[str, tuple[str, int, dict[str, int]]] = {
    "int4": ("int4", 128, {"s4m": 1}),
    "int4, zero points": ("uint4", 128, {"u4": 1}),
    "mxfp4": ("e2m1", 32, {"e2m1x": 1, "gran_k_b": 128}),
}
WAYS = ("converted", "unpacked")
DEVICE = "cuda"


def packed(kind: str, n: int, k: int) -> deep_gemm.PackedWeights:
    element, group, _ = KINDS[kind]
    low, high = (-7, 8) if element == "int4" else (0, 16)
    values = torch.randint(low, high, (n, k), dtype=torch.int8, device=DEVICE)
    zeros = torch.randint(0, 16, (n, k // group), dtype=torch.int32, device=DEVICE) if element == "uint4" else None
    near = torch.randint(-3, 3, (n, k // group), device=DEVICE)
    given = torch.exp2(near.float()) if element == "e2m1" else scales(n, k // group)
    values = values.to(torch.uint8) if element == "e2m1" else values
    return deep_gemm.pack_weights(values, given, zeros, element=element, activations="fp8", group_size=group)


def picks(sizes: tuple[int, int, int], fields: dict[str, int], target: str, num_sms: int) -> list[Candidate]:
    """Of each way the config that costs least by the model."""
    problem = {**dict(zip("mnk", sizes, strict=True)), **fields, "num_sms": num_sms}
    found = [c for c in parse(explain("dense", problem, target)) if c.rejection is None]
    return [next(c for c in found if (c.preconvert == "b") == (way == "unpacked")) for way in WAYS]


def calls_of(m: int, n: int, k: int, weights: dict[str, deep_gemm.PackedWeights]) -> dict[str, Callable[[], None]]:
    facts = C.device_facts(False, torch.cuda.current_device())
    device, d = torch.device(DEVICE), torch.empty((m, n), device=DEVICE, dtype=torch.bfloat16)
    a, by_group = fp8(m, k), mn_major(m, k // 128)
    b, of_blocks, of_rows = fp8(n, k), scales(-(-n // 128), k // 128), mn_major(n, k // 128)
    calls: dict[str, Callable[[], None]] = {
        "fp8 x fp8": lambda: deep_gemm.fp8_gemm_nt((a, by_group), (b, of_blocks), d),
        "fp8 x fp8, rows": lambda: deep_gemm.fp8_gemm_nt((a, by_group), (b, of_rows), d, recipe=(1, 1, 128)),
    }
    for kind, (_, _, fields) in KINDS.items():
        call = deep_gemm.fp8_fp4_gemm_nt if kind == "mxfp4" else deep_gemm.fp8_int4_gemm_nt
        configs = picks((m, n, k), fields, str(facts["target"]), int(facts["num_sms"]))
        for name, config in zip(WAYS, configs, strict=True):

            def run(call=call, w=weights[kind], config=config) -> None:
                with forced(device, m, n, k, config):
                    call((a, by_group), w, d)

            calls[f"fp8 x {kind}, per 128, {name}"] = run
    return calls


def tables(document: dict) -> str:
    """Of weights, both ways. (The kept file has tokens with one scale each, too, which are no longer unpacked for.)"""
    results = document["results"]
    names = [name.removesuffix(", converted") for name in results[0]["us"] if name.endswith("converted")]
    fp8_names = ["fp8 x fp8", "fp8 x fp8, rows"]
    lines = [
        [
            ", ".join(map(str, row["case"])),
            *(f"{row['us'][name]:.1f}" for name in fp8_names),
            *(" / ".join(f"{row['us'][f'{name}, {way}']:.1f}" for way in WAYS) for name in names),
        ]
        for row in results
    ]
    machine = document["machine"]
    where = f"{machine['gpu']}, driver {machine['driver']}, {machine['compiler']}, commit {machine['commit']}.\n"
    return table(["M, N, K", *fp8_names, *names], lines) + "\n" + where


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="the folder of h100_unpacked.json (by the card's name)")
    parser.add_argument("--commit", help="of the package, where it is no clone")
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    from machine import describe, read_result, write_result
    from timing import Timer

    if options.table:
        print(tables(read_result(options.table)))
        return

    machine, results = describe(options.commit), []
    timer = Timer(torch.device(DEVICE), 256 << 20, 9)
    for n, k in WEIGHTS:
        weights = {kind: packed(kind, n, k) for kind in KINDS}
        for m in TOKENS:
            calls = calls_of(m, n, k, weights)
            for call in calls.values():
                call()
            times = zip(calls, timer.time(*calls.values()), strict=True)
            results.append({"case": [m, n, k], "us": {name: round(t.median * 1e6, 2) for name, t in times}})
            print(results[-1], flush=True)
    write_result(
        options.out / f"{machine['gpu'].split()[1].lower()}_unpacked.json", {"machine": machine, "results": results}
    )


if __name__ == "__main__":
    main()
