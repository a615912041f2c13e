"""Speed of the kernels for GPUs without wgmma, on a Hopper.

No such GPU is at hand: they are compiled for sm_80 (PTX, which the driver translates) and run beside mma.sync by
itself, Triton's matmul for the same target, and a bare read.

python benchmarks/bench_sm80.py --out results         # h200_sm80.json, on an H200
python benchmarks/bench_sm80.py --table FILE          # the tables that stand in docs/architectures.md, notes/sm80.md
"""

from __future__ import annotations

import argparse
import functools
import operator
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import triton_peer
from bench_packed import DEVICE, fp8, integers, mn_major, packed, packed_for_bf16, scales
from tables import table

import deep_gemm
from deep_gemm._extension import C

sys.path.insert(0, str(Path(__file__).resolve().parent / "micro"))
import mma_rates
from harness import constants, kernel_file, num_sms

Calls = dict[str, Callable[[], None]]
TARGET = "sm_80"
WEIGHTS = [(4096, 7168), (7168, 16384), (24576, 1536)]
TOKENS = [1, 16, 64, 256, 4096]
EXPERTS = (32, 20, 128)  # how many, tokens of each, rows of their matrices
LARGE, FEW = 4096, 16  # tokens from which on rates are told, and up to which reading weights is all
BITS = {"bf16 x bf16": 16, "fp8 x fp8": 8, "int8 x int8": 8}
BITS |= {"bf16 x fp8": 8, "bf16 x int4": 4, "bf16 x mxfp4": 4, "int8 x int4": 4}
BITS |= {"bf16 x int8": 8, "bf16 x int4, zero points": 4, "bf16 x int4, groups of 32": 4, "bf16 x fp4, groups of 32": 4}
BITS |= {"fp8 x int4": 4, "fp8 x mxfp4": 4, "fp8 x int4, zero points": 4}


def read(bits: int, n: int, k: int) -> Callable[[], None]:
    data = torch.randint(0, 256, (n * k * bits // 8,), dtype=torch.uint8, device=DEVICE)
    sink = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    text, grid = constants(kUnroll=8) + kernel_file("read.cu"), num_sms(torch.device(DEVICE)) * 2
    return lambda: C.jit_launch("read", text, grid, 512, 1, 0, False, [data, sink], [data.numel()])


def ceilings() -> dict[str, float]:
    """Of mma.sync: TFLOPS of BF16 and TOPS of int8, by itself and the fastest fed from shared memory."""
    found = {}
    for kind in ("bf16", "int8"):
        of_kind = [variant for variant in mma_rates.variants() if variant.kind == kind]
        rates = [(v.fed, mma_rates.measure(v, torch.device(DEVICE))["tflops"]) for v in of_kind]
        found[kind] = round(max(rate for fed, rate in rates if not fed), 1)
        found[f"{kind}, fed"] = round(max(rate for fed, rate in rates if fed), 1)
    return found


def dense_calls(m: int, n: int, k: int, weights: dict[str, deep_gemm.PackedWeights]) -> Calls:
    d = torch.empty((m, n), device=DEVICE, dtype=torch.bfloat16)
    x, y = (torch.randn((rows, k), device=DEVICE, dtype=torch.bfloat16) for rows in (m, n))
    a, by_group, by_token = fp8(m, k), mn_major(m, k // 128), scales(m)
    b, i, w = (fp8(n, k), scales(-(-n // 128), k // 128)), integers(m, k), (integers(n, k), scales(n))
    return {
        "bf16 x bf16": lambda: deep_gemm.bf16_gemm_nt(x, y, d),
        "fp8 x fp8": lambda: deep_gemm.fp8_gemm_nt((a, by_group), b, d),
        "int8 x int8": lambda: deep_gemm.int8_gemm_nt((i, by_token), w, d),
        "bf16 x fp8": lambda: deep_gemm.bf16_fp8_gemm_nt(x, weights["bf16 x fp8"], d),
        "bf16 x int4": lambda: deep_gemm.bf16_int4_gemm_nt(x, weights["bf16 x int4"], d),
        "bf16 x mxfp4": lambda: deep_gemm.bf16_fp4_gemm_nt(x, weights["bf16 x mxfp4"], d),
        "int8 x int4": lambda: deep_gemm.int8_int4_gemm_nt((i, by_token), weights["int8 x int4"], d),
    }


def masked_calls(e: int, m: int, rows: int, n: int, k: int, weights: dict[str, deep_gemm.PackedWeights]) -> Calls:
    d = torch.empty((e, rows, n), device=DEVICE, dtype=torch.bfloat16)
    counts = torch.full((e,), m, dtype=torch.int32, device=DEVICE)
    x, y = (torch.randn((e, r, k), device=DEVICE, dtype=torch.bfloat16) for r in (rows, n))
    a, by_group = fp8(e, rows, k), mn_major(e, rows, k // 128)
    b = (fp8(e, n, k), scales(e, -(-n // 128), k // 128))
    masked = "m_grouped_{}_gemm_nt_masked"
    return {
        "bf16 x bf16": lambda: deep_gemm.m_grouped_bf16_gemm_nt_masked(x, y, d, counts, m),
        "fp8 x fp8": lambda: deep_gemm.m_grouped_fp8_gemm_nt_masked((a, by_group), b, d, counts, m),
        "bf16 x int4": lambda: getattr(deep_gemm, masked.format("bf16_int4"))(x, weights["bf16 x int4"], d, counts, m),
        "bf16 x mxfp4": lambda: getattr(deep_gemm, masked.format("bf16_fp4"))(x, weights["bf16 x mxfp4"], d, counts, m),
    }


def triton_calls(m: int, n: int, k: int) -> Calls:
    if not triton_peer.installed():
        return {}
    x, y = (torch.randn((rows, k), device=DEVICE, dtype=torch.bfloat16) for rows in (m, n))
    i, j = integers(m, k), integers(n, k)
    found = triton_peer.candidates(x, y, torch.empty((m, n), device=DEVICE, dtype=torch.bfloat16))
    exact = triton_peer.candidates(i, j, torch.empty((m, n), device=DEVICE, dtype=torch.int32))
    return {f"triton bf16, {name}": call for name, call in found.items()} | {
        f"triton int8, {name}": call for name, call in exact.items()
    }


def best_of_triton(us: dict[str, float]) -> dict[str, float]:
    """Its tiles' times as the best of each type."""
    found = {name: time for name, time in us.items() if not name.startswith("triton")}
    for kind in ("triton bf16", "triton int8"):
        if times := [time for name, time in us.items() if name.startswith(kind)]:
            found[kind] = min(times)
    return found


@functools.cache
def timer():
    from timing import Timer

    return Timer(torch.device(DEVICE), 256 << 20, 15)


def times(calls: Calls) -> dict[str, float]:
    for call in calls.values():
        call()
    return {name: round(t.median * 1e6, 2) for name, t in zip(calls, timer().time(*calls.values()), strict=True)}


def measure() -> Iterator[dict]:
    for n, k in WEIGHTS:
        weights = packed(n, k) | packed_for_bf16(n, k)
        reads = {f"read {bits} bits": read(bits, n, k) for bits in (4, 8, 16)}
        for m in TOKENS:
            calls = dense_calls(m, n, k, weights) | reads
            if m >= LARGE:
                calls |= triton_calls(m, n, k)
            yield {"case": ["dense", m, n, k], "us": best_of_triton(times(calls))}
    e, m, rows = EXPERTS
    n, k = WEIGHTS[0]
    weights = packed_for_bf16(n, k, (e,))
    calls = masked_calls(e, m, rows, n, k, weights)
    calls |= {f"read {bits} bits": read(bits, e * n, k) for bits in (4, 8, 16)}
    yield {"case": ["masked", e, m, n, k], "us": times(calls)}


def rate(case: list, us: float | None) -> str:
    _, m, n, k = case
    return "-" if us is None else f"{2 * m * n * k / us / 1e6:.0f}"


def tables(document: dict) -> str:
    rows, peak = document["results"], document["ceilings"]
    few = [row for row in rows if row["case"][0] == "masked" or row["case"][1] < LARGE]
    many = [row for row in rows if row not in few]
    names = [name for name in BITS if any(name in row["us"] for row in rows)]
    header = ["M, N, K", *names, *(f"read {bits} bits" for bits in (16, 8, 4))]
    lines = [
        [
            (f"{row['case'][1]} experts of " if row["case"][0] == "masked" else "")
            + ", ".join(map(str, row["case"][-3:])),
            *(f"{row['us'][name]:.1f}" if name in row["us"] else "-" for name in header[1:]),
        ]
        for row in few
    ]
    text = "Microseconds:\n\n" + table(header, lines)
    header = ["M, N, K", *names, "triton bf16", "triton int8"]
    lines = [
        [", ".join(map(str, row["case"][1:])), *(rate(row["case"], row["us"].get(name)) for name in header[1:])]
        for row in many
    ]
    text += f"\nTFLOPS or TOPS; mma.sync by itself: BF16 {peak['bf16']:.0f}, int8 {peak['int8']:.0f}"
    text += f"; fed from shared memory: BF16 {peak['bf16, fed']:.0f}, int8 {peak['int8, fed']:.0f}:\n\n"
    machine = document["machine"]
    return (
        text
        + table(header, lines)
        + f"\n{machine['gpu']}, driver {machine['driver']}, {machine['compiler']}, compiled "
        f"for {document['target']}, commit {machine['commit']}.\n"
    )


def two_commits(document: dict) -> str:
    """Times of one run with the picks of two commits, and what the later one gains."""
    names = [name for name in BITS if any(name in row["us"] for row in document["results"])]
    lines = []
    for row in document["results"]:
        pairs = [row["us"].get(name) for name in names]
        cells = ["-" if pair is None else f"{pair[0]:.1f} to {pair[1]:.1f} ({pair[1] / pair[0]:.2f})" for pair in pairs]
        lines.append([", ".join(map(str, row["case"])), *cells])
    machine, (before, after) = document["machine"], document["commits"]
    return (
        table(["M, N, K", *names], lines)
        + f"\n{machine['gpu']}, driver {machine['driver']}, {machine['compiler']}, compiled for {document['target']}, "
        f"commits {before} and {after}, in microseconds.\n"
    )


def picks(document: dict) -> str:
    """Of sweeps over the tiles that selection thinks best: what a commit's picks, and the present ones, take of the
    fastest one's time."""
    lines = []
    for name in dict.fromkeys(row["case"][0] for row in document["results"]):
        rows = [row["us"] for row in document["results"] if row["case"][0] == name]
        cells = []
        for pick in document["picks"]:
            shares = [us[pick] / us["fastest"] for us in rows]
            cells.append(f"{statistics.mean(shares):.3f} ({max(shares):.2f})")
        lines.append([name, str(len(rows)), *cells])
    machine = document["machine"]
    return (
        table(["", "sizes", *(f"{pick}, mean (worst)" for pick in document["picks"])], lines)
        + f"\n{machine['gpu']}, driver {machine['driver']}, {machine['compiler']}, compiled for {document['target']}, "
        f"kernels of commit {machine['commit']}.\n"
    )


def unpacked(document: dict) -> str:
    """The fastest tile of each way of a sweep: weights converted in the product, or unpacked ahead of it."""
    lines = []
    for row in document["results"]:
        pair, *sizes = row["case"]
        before, after = (row["us"][way] for way in document["ways"])
        lines.append([pair, ", ".join(map(str, sizes)), f"{before:.1f}", f"{after:.1f} ({after / before:.2f})"])
    machine = document["machine"]
    return (
        table(["", "M, N, K", *document["ways"]], lines)
        + f"\n{machine['gpu']}, driver {machine['driver']}, {machine['compiler']}, compiled for {document['target']}, "
        f"commit {machine['commit']}, in microseconds.\n"
    )


def shares(document: dict) -> Iterator[tuple[str, float, list[float], bool]]:
    """Of each bar: what it is of, itself, what each case reaches, whether more is better."""
    for name, kind, bar in (("bf16 x bf16", "bf16", 0.92), ("int8 x int8", "int8", 0.90)):
        peak = document["ceilings"][f"{kind}, fed"]
        large = [row for row in document["results"] if row["case"][0] == "dense" and row["case"][1] >= LARGE]
        rates = [float(rate(row["case"], row["us"][name])) / peak for row in large]
        yield f"{name}, {LARGE} tokens, of mma.sync fed by ldmatrix", bar, rates, True
    few = [row for row in document["results"] if row["case"][0] == "dense" and row["case"][1] <= FEW]
    for name in BITS:
        times = [row["us"][name] / row["us"][f"read {BITS[name]} bits"] for row in few if name in row["us"]]
        if times:
            yield f"{name}, up to {FEW} tokens, times the read", 1.20, times, False


def bars(document: dict) -> str:
    """What was wanted of these kernels, and what they reach."""
    lines = []
    for name, bar, values, more_is_better in shares(document):
        met = sum(value >= bar if more_is_better else value <= bar for value in values)
        reached = sorted(values, reverse=not more_is_better)
        lines.append([name, f"{bar:.2f}", f"{reached[0]:.2f} to {reached[-1]:.2f}", f"{met} of {len(values)}"])
    return table(["", "bar", "worst to best", "cases that reach it"], lines)


def attempts(document: dict) -> str:
    """Of a few tokens, what each way takes of the read's time: the least and the most of all sizes."""
    ways = {
        "the pick": lambda us: us["pick"],
        "fastest tile": lambda us: min(us["pick"], *us["tiles"].values()),
        **{name: operator.itemgetter(name) for name in ("nothing multiplied", "256 bytes", "weights leave first")},
    }
    rows = [row for row in document["attempts"] if "256 bytes" in row["us"]["bf16 x bf16"]]
    lines = []
    for name in rows[0]["us"]:
        cells = []
        for way in ways.values():
            shares = [way(row["us"][name]) / row["read"][f"read {BITS[name]} bits"] for row in rows]
            cells.append(f"{min(shares):.2f} to {max(shares):.2f}")
        lines.append([name, *cells])
    machine = document["machine"]
    return (
        table(["", *ways], lines)
        + f"\n{machine['gpu']}, driver {machine['driver']}, {machine['compiler']}, compiled for {document['target']}, "
        f"commit {machine['commit']}.\n"
    )


# How a result file is shown, by what only it has.
SHOWN_BY = {"commits": two_commits, "picks": picks, "ways": unpacked, "ceilings": tables, "attempts": attempts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="the folder of h200_sm80.json (by the card's name)")
    parser.add_argument("--commit", help="of the package, where it is no clone")
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    from machine import describe, read_result, write_result

    if options.table:
        document = read_result(options.table)
        (show,) = (show for key, show in SHOWN_BY.items() if key in document)
        print(show(document))
        if show is tables:
            print(bars(document))
        return
    deep_gemm.set_target(TARGET, DEVICE)
    results, machine = [], describe(options.commit)
    peaks = ceilings()
    print(peaks, flush=True)
    card = machine["gpu"].split()[1].lower()
    for row in measure():
        print(row, flush=True)
        results.append(row)
        document = {"machine": machine, "target": TARGET, "ceilings": peaks, "results": results}
        write_result(options.out / f"{card}_sm80.json", document)


if __name__ == "__main__":
    main()
