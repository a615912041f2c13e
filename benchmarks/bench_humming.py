"""Products with weights of few bits beside humming-kernels' (PyPI), in one run.

python benchmarks/bench_humming.py --warm            # compiles both libraries' kernels into their caches, on all cores
python benchmarks/bench_humming.py --out results     # h200_humming.json, on an H200
python benchmarks/bench_humming.py --table FILE      # the tables that stand in docs/notes/packed-speed.md
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

import humming_peer
import torch
from bench_packed import DEVICE, EXPERT_WEIGHTS, TOKENS, Calls, fp8, integers, mn_major, scales
from machine import describe, read_result, write_result
from tables import table

import deep_gemm

WEIGHTS = [(4096, 7168), (7168, 16384)]
EXPERTS = [(32, 20, 128), (32, 192, 512)]  # how many, their tokens, rows of their matrices
SCATTERED, SCATTER = 64, 0.3  # from so many tokens on counts are drawn, to so much of them more and less
PACKED = {  # element and group of K
    "int8 x int4": ("int4", None),
    "int8 x int4, groups of 128": ("int4", 128),
    "fp8 x int4": ("int4", 128),
    "fp8 x int4, channels": ("int4", None),
    "fp8 x mxfp4": ("e2m1", 32),
    "bf16 x int4": ("int4", 128),
    "bf16 x int4, groups of 32": ("int4", 32),
    "bf16 x mxfp4": ("e2m1", 32),
    "bf16 x fp8": ("e4m3", 128),
}
FAST, PEER = ", fast", "humming "  # `set_fast_accumulation`; the other library's
WITH_FAST = ("fp8 x int4, channels", "fp8 x mxfp4")
FINER = {"fp8 x fp8, channels": "fp8 x fp8"}  # what we have instead: scales for 128 x 128
MASKED = [name for name in humming_peer.FORMATS if name not in FINER]


def pack(name: str, *shape: int) -> deep_gemm.PackedWeights:
    element, group = PACKED[name]
    if element == "e4m3":
        values = fp8(*shape)
    elif element == "e2m1":
        values = torch.randint(0, 16, shape, dtype=torch.uint8, device=DEVICE)
    else:
        values = torch.randint(-7, 8, shape, dtype=torch.int8, device=DEVICE)
    *rows, k = shape
    given = scales(*rows, k // group) if group else scales(*rows)
    if element == "e2m1":  # as far apart as those of normal numbers are
        given = torch.exp2(torch.randint(-6, 0, given.shape, device=DEVICE).float())
    return deep_gemm.pack_weights(values, given, element=element, activations=name.partition(" ")[0], group_size=group)


def function_of(name: str) -> str:
    """The dense one; of two operands of one kind a name has it once."""
    tokens, weights = name.partition(",")[0].replace("mxfp4", "fp4").split(" x ")
    return f"{tokens}_gemm_nt" if tokens == weights else f"{tokens}_{weights}_gemm_nt"


def fast(call: Callable[[], None]) -> Callable[[], None]:
    """With the tensor cores' own accumulation."""

    def with_setting() -> None:
        deep_gemm.set_fast_accumulation(True)
        call()
        deep_gemm.set_fast_accumulation(False)

    return with_setting


def weights_of(*shape: int) -> dict[str, Any]:
    """[N, K], or of experts."""
    *experts, n, k = shape
    return {
        "fp8 x fp8": (fp8(*shape), scales(*experts, -(-n // 128), k // 128)),
        "int8 x int8": (integers(*shape), scales(*experts, n)),
        **{name: pack(name, *shape) for name in PACKED},
    }


def our_calls(rows: Sequence[int], weights: dict[str, Any], product_of: Callable[[str, Any, Any], None]) -> Calls:
    """Of tokens [..., M, K]; `product_of` gets the name of a dense function and its operands."""
    by_token = scales(*rows[:-1])
    tokens = {
        "fp8": (fp8(*rows), by_token),
        "int8": (integers(*rows), by_token),
        "bf16": torch.randn(rows, device=DEVICE, dtype=torch.bfloat16),
    }
    calls: Calls = {}
    for name, w in weights.items():
        a = tokens[name.partition(" ")[0]]
        if name == "fp8 x fp8":
            a = (a[0], mn_major(*rows[:-1], rows[-1] // 128))
        calls[name] = partial(product_of, function_of(name), a, w)
    return calls | {name + FAST: fast(calls[name]) for name in WITH_FAST}


def dense_calls(m: int, n: int, k: int, weights: dict[str, Any]) -> Calls:
    d = torch.empty((m, n), device=DEVICE, dtype=torch.bfloat16)
    return our_calls((m, k), weights, lambda name, a, w: getattr(deep_gemm, name)(a, w, d))


def counts_of(e: int, m: int) -> torch.Tensor:
    if m < SCATTERED:
        return torch.full((e,), m, dtype=torch.int32, device=DEVICE)
    bounds = (round(m * (1 - SCATTER)), round(m * (1 + SCATTER)) + 1)
    drawn = torch.randint(*bounds, (e,), dtype=torch.int32, generator=torch.Generator().manual_seed(m))
    return drawn.to(DEVICE)


def masked_calls(e: int, m: int, rows: int, n: int, k: int, weights: dict[str, Any]) -> Calls:
    d = torch.empty((e, rows, n), device=DEVICE, dtype=torch.bfloat16)
    counts = counts_of(e, m)
    return our_calls(
        (e, rows, k), weights, lambda name, a, w: getattr(deep_gemm, f"m_grouped_{name}_masked")(a, w, d, counts, m)
    )


def of_peers(make: Callable[[str], Any], names: Iterable[str]) -> dict[str, Any]:
    """What can be made of each; of others it is said why not."""
    found = {}
    for name in names:
        try:
            found[name] = make(name)
        except Exception as error:
            print(f"{PEER}{name}: {error}"[:300], flush=True)
    return found


def peers_of(names: Iterable[str], n: int, k: int, experts: int = 0) -> dict[str, humming_peer.Peer]:
    return of_peers(lambda name: humming_peer.Peer(name, n, k, experts), names)


def dense_peers(peers: dict[str, humming_peer.Peer], m: int) -> Calls:
    return {PEER + name: call for name, call in of_peers(lambda name: peers[name].dense(m), peers).items()}


def masked_peers(peers: dict[str, humming_peer.Peer], e: int, m: int, rows: int) -> Calls:
    counts = counts_of(e, m)
    return {PEER + name: call for name, call in of_peers(lambda name: peers[name].masked(counts, rows), peers).items()}


def measure() -> Iterator[dict]:
    from timing import Timer

    timer = Timer(torch.device(DEVICE), 256 << 20, 15)

    def times(calls: Calls) -> dict[str, float]:
        for call in calls.values():
            call()
        return {name: round(t.median * 1e6, 2) for name, t in zip(calls, timer.time(*calls.values()), strict=True)}

    for n, k in WEIGHTS:
        weights, peers = weights_of(n, k), peers_of(humming_peer.FORMATS, n, k)
        for m in TOKENS:
            calls = dense_calls(m, n, k, weights) | dense_peers(peers, m)
            yield {"case": ["dense", m, n, k], "us": times(calls)}
    for (e, m, rows), (n, k) in product(EXPERTS, EXPERT_WEIGHTS):
        weights, peers = weights_of(e, n, k), peers_of(MASKED, n, k, e)
        calls = masked_calls(e, m, rows, n, k, weights) | masked_peers(peers, e, m, rows)
        yield {"case": ["masked", e, m, n, k], "us": times(calls)}


def calls_of(task: Sequence) -> Calls:
    what, *sizes = task
    if what == "dense":
        m, n, k = sizes
        return dense_calls(m, n, k, weights_of(n, k))
    if what == "masked":
        (e, m, rows), (n, k) = sizes
        return masked_calls(e, m, rows, n, k, weights_of(e, n, k))
    if what == "peer":
        name, (n, k) = sizes
        peers = peers_of([name], n, k)
        return {f"{m}": call for m in TOKENS for call in dense_peers(peers, m).values()}
    name, (e, m, rows), (n, k) = sizes
    return masked_peers(peers_of([name], n, k, e), e, m, rows)


def warm(task: Sequence) -> str:
    """Compiles what a part of `measure` needs, by calling it once."""
    for call in calls_of(task).values():
        call()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return f"{task}: compiled"


def tasks() -> list[tuple]:
    """What takes long first; experts, whose weights take much memory, among others."""
    dense: list[tuple] = [("peer", name, weight) for weight in WEIGHTS for name in humming_peer.FORMATS]
    dense += [("dense", m, *weight) for weight in WEIGHTS for m in TOKENS]
    few, many = EXPERTS
    experts: list[tuple] = [("masked", few, weight) for weight in EXPERT_WEIGHTS]
    experts += [("masked peer", name, few, weight) for weight in EXPERT_WEIGHTS for name in MASKED]
    both = [task for pair in zip_longest(dense, experts) for task in pair if task]
    both += [("masked", many, weight) for weight in EXPERT_WEIGHTS]
    return both + [("masked peer", name, many, weight) for weight in EXPERT_WEIGHTS for name in MASKED]


def cell(us: dict[str, float], name: str) -> str:
    """Our time, the peer's, and their ratio."""
    ours, peers = us.get(FINER.get(name, name)), us.get(PEER + name.removesuffix(FAST))
    return "-" if ours is None or peers is None else f"{ours:.1f} / {peers:.1f} ({ours / peers:.2f})"


def tables(document: dict) -> str:
    """One for each kind of case, and for activations of 8 and of 16 bits."""
    text = ""
    names = [name + end for name in humming_peer.FORMATS for end in ("", FAST) if not end or name in WITH_FAST]
    for kind, wide in product(("dense", "masked"), (False, True)):
        rows = [row for row in document["results"] if row["case"][0] == kind]
        shown = [
            name for name in names if ("bf16" in name) == wide and any(cell(row["us"], name) != "-" for row in rows)
        ]
        if shown:
            header = ["M, N, K" if kind == "dense" else "experts, tokens, N, K", *shown]
            lines = [[", ".join(map(str, row["case"][1:])), *(cell(row["us"], name) for name in shown)] for row in rows]
            text += table(header, lines) + "\n"
    machine = document["machine"]
    return text + f"{machine['gpu']}, driver {machine['driver']}, {machine['compiler']}, commit {machine['commit']}.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--out", type=Path, help="the folder of h200_humming.json (by the card's name)")
    parser.add_argument("--commit", help="of the package, where it is no clone")
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    if options.table:
        print(tables(read_result(options.table)))
    elif options.warm:
        with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
            for line in pool.imap_unordered(warm, tasks()):
                print(line, flush=True)
    else:
        machine, results = describe(options.commit), []
        for row in measure():
            print(row, flush=True)
            results.append(row)  # written each time: humming-kernels take long to set up, and a session may end
            file = f"{machine['gpu'].split()[1].lower()}_humming.json"
            write_result(options.out / file, {"machine": machine, "results": results})


if __name__ == "__main__":
    main()
