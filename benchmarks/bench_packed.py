"""Speed of products with packed weights of four bits, beside FP8 and INT8 weights and a bare read of as many bytes.

python benchmarks/bench_packed.py --out results       # h100_packed.json, on an H100
python benchmarks/bench_packed.py --out results --kind rest   # h100_packed_rest.json: forms that the others leave out
python benchmarks/bench_packed.py --table FILE        # the tables that stand in docs/notes/packed-speed.md
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path

import torch
from tables import table

import deep_gemm

Calls = dict[str, Callable[[], None]]
WEIGHTS = [(4096, 7168), (7168, 16384), (24576, 1536)]
TOKENS = [1, 16, 64, 256, 4096]
TINY_TOKENS = 16  # up to which torch's tinygemm is timed, and from which on its product of INT8
EXPERTS = [(32, 20, 128), (32, 192, 512), (64, 4, 128)]  # how many, tokens of each, rows of their matrices
KINDS = ["dense", "masked", "rest"]
EXPERT_WEIGHTS = [(4096, 7168), (7168, 2048)]
DEVICE = "cuda"


def fp8(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE).to(torch.float8_e4m3fn)


def integers(*shape: int) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8, device=DEVICE)


def scales(*shape: int) -> torch.Tensor:
    return torch.rand(shape, device=DEVICE) + 0.5


def mn_major(*shape: int) -> torch.Tensor:
    """Scales [..., rows, groups] as kernels read them."""
    *groups, rows, k_groups = shape
    return scales(*groups, k_groups, -(-rows // 4) * 4)[..., :rows].mT


def packed(n: int, k: int, experts: tuple[int, ...] = ()) -> dict[str, deep_gemm.PackedWeights]:
    values = torch.randint(-7, 8, (*experts, n, k), dtype=torch.int8, device=DEVICE)
    codes = values.to(torch.uint8) & 15

    def pack(element: str, activations: str, group: int | None) -> deep_gemm.PackedWeights:
        given = scales(*experts, n, k // group) if group else scales(*experts, n)
        if element == "e2m1":  # MXFP4's: as far apart as those of normal numbers are
            given = torch.exp2(torch.randint(-6, 0, given.shape, device=DEVICE).float())
        what = codes if element == "e2m1" else values
        return deep_gemm.pack_weights(what, given, element=element, activations=activations, group_size=group)

    groups = (*experts, n, k // 128)
    zeros = torch.randint(0, 16, groups, dtype=torch.int32, device=DEVICE)
    factors, second = torch.randint(1, 9, groups, dtype=torch.int8, device=DEVICE), scales(*experts, n)
    with_zeros = {"element": "uint4", "group_size": 128}
    return {
        "fp8 x int4, zero points": deep_gemm.pack_weights(
            codes.to(torch.int8), scales(*groups), zeros, activations="fp8", **with_zeros
        ),
        "int8 x int4, two levels": deep_gemm.pack_weights(
            codes.to(torch.int8), factors, zeros, activations="int8", second_scales=second, **with_zeros
        ),
        "int8 x int4": pack("int4", "int8", None),
        "fp8 x int4": pack("int4", "fp8", 128),
        "fp8 x int4, groups of 32": pack("int4", "fp8", 32),
        "fp8 x mxfp4": pack("e2m1", "fp8", 32),
    }


def reader(count: int) -> Callable[[], None]:
    """Reads so many bytes."""
    import triton
    import triton.language as tl

    @triton.jit
    def read(source, target, size, BLOCK: tl.constexpr, TIMES: tl.constexpr):
        total = tl.zeros((BLOCK,), tl.int32)
        first = tl.program_id(0) * BLOCK * TIMES
        for i in tl.static_range(TIMES):
            at = first + i * BLOCK + tl.arange(0, BLOCK)
            total += tl.load(source + at, mask=at < size, other=0)
        all_of_them = tl.sum(total, 0)
        if all_of_them == 123456789:  # never: small numbers
            tl.store(target, all_of_them)

    source = torch.randint(0, 100, (count // 4,), dtype=torch.int32, device=DEVICE)
    target, block, times = torch.zeros(1, dtype=torch.int32, device=DEVICE), 2048, 4
    grid = (triton.cdiv(source.numel(), block * times),)
    return lambda: read[grid](source, target, source.numel(), block, times, num_warps=8)


def dense_calls(m: int, n: int, k: int, weights: dict[str, deep_gemm.PackedWeights]) -> Calls:
    d = torch.empty((m, n), device=DEVICE, dtype=torch.bfloat16)
    a, by_group, by_token = fp8(m, k), mn_major(m, k // 128), scales(m)
    b, i, w = (fp8(n, k), scales(-(-n // 128), k // 128)), integers(m, k), (integers(n, k), scales(n))
    torch_int8 = {"cuBLASLt int8": lambda: torch._int_mm(i, w[0].T)} if m > TINY_TOKENS else {}
    return torch_int8 | {
        "fp8 x fp8": lambda: deep_gemm.fp8_gemm_nt((a, by_group), b, d),
        "int8 x int8": lambda: deep_gemm.int8_gemm_nt((i, by_token), w, d),
        "int8 x int4": lambda: deep_gemm.int8_int4_gemm_nt((i, by_token), weights["int8 x int4"], d),
        "fp8 x int4": lambda: deep_gemm.fp8_int4_gemm_nt((a, by_token), weights["fp8 x int4"], d),
        "fp8 x int4, tokens' scales per 128": lambda: deep_gemm.fp8_int4_gemm_nt(
            (a, by_group), weights["fp8 x int4"], d
        ),
        "fp8 x int4, groups of 32": lambda: deep_gemm.fp8_int4_gemm_nt(
            (a, by_token), weights["fp8 x int4, groups of 32"], d
        ),
        "fp8 x mxfp4": lambda: deep_gemm.fp8_fp4_gemm_nt((a, by_token), weights["fp8 x mxfp4"], d),
        "fp8 x int4, zero points": lambda: deep_gemm.fp8_int4_gemm_nt(
            (a, by_token), weights["fp8 x int4, zero points"], d
        ),
        "int8 x int4, two levels": lambda: deep_gemm.int8_int4_gemm_nt(
            (i, by_token), weights["int8 x int4, two levels"], d
        ),
    }


def masked_calls(e: int, m: int, rows: int, n: int, k: int, weights: dict[str, deep_gemm.PackedWeights]) -> Calls:
    d = torch.empty((e, rows, n), device=DEVICE, dtype=torch.bfloat16)
    counts = torch.full((e,), m, dtype=torch.int32, device=DEVICE)
    a, by_group, by_token = fp8(e, rows, k), mn_major(e, rows, k // 128), scales(e, rows)
    b, i = (fp8(e, n, k), scales(e, -(-n // 128), k // 128)), integers(e, rows, k)
    names = {
        name: ((i if name.startswith("int8") else a, by_token), "int8_int4" if name.startswith("int8") else "fp8_int4")
        for name in ("int8 x int4", "fp8 x int4", "fp8 x int4, zero points", "int8 x int4, two levels")
    }
    calls: Calls = {"fp8 x fp8": lambda: deep_gemm.m_grouped_fp8_gemm_nt_masked((a, by_group), b, d, counts, m)}
    for name, (tokens, function) in names.items():
        call = getattr(deep_gemm, f"m_grouped_{function}_gemm_nt_masked")
        calls[name] = lambda call=call, tokens=tokens, w=weights[name]: call(tokens, w, d, counts, m)
    w = weights["fp8 x mxfp4"]
    calls["fp8 x mxfp4"] = lambda: deep_gemm.m_grouped_fp8_fp4_gemm_nt_masked((a, by_token), w, d, counts, m)
    return calls


def packed_for_bf16(n: int, k: int, experts: tuple[int, ...] = ()) -> dict[str, deep_gemm.PackedWeights]:
    """By the names of functions, and of what there is two of."""
    codes = torch.randint(0, 16, (*experts, n, k), dtype=torch.uint8, device=DEVICE)
    keys = {"element": "e2m1", "activations": "bf16"}
    powers = torch.exp2(torch.randint(-12, -3, (*experts, n, k // 32), device=DEVICE).float())
    values = (codes ^ 8).view(torch.int8) - 8
    found = {
        "bf16 x int4": deep_gemm.pack_weights(
            values, scales(*experts, n, k // 128), element="int4", activations="bf16", group_size=128
        ),
        "bf16 x mxfp4": deep_gemm.pack_weights(codes, powers, group_size=32, **keys),
    }
    if not experts:
        e4m3 = scales(n, k // 16).to(torch.float8_e4m3fn)
        found["bf16 x nvfp4"] = deep_gemm.pack_weights(codes, e4m3, group_size=16, second_scales=0.5, **keys)
        found["bf16 x fp8"] = deep_gemm.pack_weights(
            fp8(n, k), scales(n, k // 128), element="e4m3", activations="bf16", group_size=128
        )
    return found


BF16_FUNCTIONS = {"bf16 x int4": "int4", "bf16 x mxfp4": "fp4", "bf16 x nvfp4": "fp4", "bf16 x fp8": "fp8"}


def dense_bf16_calls(m: int, n: int, k: int, weights: dict[str, deep_gemm.PackedWeights]) -> Calls:
    a, d = torch.randn((m, k), device=DEVICE, dtype=torch.bfloat16), torch.empty((m, n), device=DEVICE).bfloat16()
    b = torch.randn((n, k), device=DEVICE, dtype=torch.bfloat16)
    calls: Calls = {"bf16 x bf16": lambda: deep_gemm.bf16_gemm_nt(a, b, d)}
    for name, w in weights.items():
        call = getattr(deep_gemm, f"bf16_{BF16_FUNCTIONS[name]}_gemm_nt")
        calls[name] = lambda call=call, w=w: call(a, w, d)
    if m <= TINY_TOKENS:
        pairs = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device=DEVICE)
        tiny = torch.ops.aten._convert_weight_to_int4pack(pairs, 8)
        both = torch.rand((k // 128, n, 2), device=DEVICE).bfloat16()
        calls["tinygemm bf16 x int4"] = lambda: torch.ops.aten._weight_int4pack_mm(a, tiny, 128, both)
    return calls


def masked_bf16_calls(e: int, m: int, rows: int, k: int, weights: dict[str, deep_gemm.PackedWeights]) -> Calls:
    a = torch.randn((e, rows, k), device=DEVICE, dtype=torch.bfloat16)
    counts = torch.full((e,), m, dtype=torch.int32, device=DEVICE)
    calls: Calls = {}
    for name, w in weights.items():
        call = getattr(deep_gemm, f"m_grouped_bf16_{BF16_FUNCTIONS[name]}_gemm_nt_masked")
        d = torch.empty((e, rows, w.shape[-2]), device=DEVICE, dtype=torch.bfloat16)
        calls[name] = lambda call=call, w=w, d=d: call(a, w, d, counts, m)
    return calls


def rest_calls(m: int, n: int, k: int) -> Calls:
    """Products that are not in the other tables, beside those that each is a form of."""
    d = torch.empty((m, n), device=DEVICE, dtype=torch.bfloat16)
    groups = (n, k // 128)
    values = torch.randint(-8, 8, (n, k), dtype=torch.int8, device=DEVICE)
    zeros = torch.randint(0, 16, groups, dtype=torch.int32, device=DEVICE)
    i, by_token, points = integers(m, k), scales(m), torch.randint(-128, 128, (m,), dtype=torch.int32, device=DEVICE)
    pairs, x = integers(m, k // 2), torch.randn((m, k), device=DEVICE, dtype=torch.bfloat16)
    w = (integers(n, k), scales(n))
    sums = deep_gemm.int8_row_sums(w[0])
    blocks = (w[0], scales(-(-n // 128), k // 128))
    pack = functools.partial(deep_gemm.pack_weights, element="int4")
    for_int8, for_int4 = (pack(values, scales(n), activations=tokens, group_size=None) for tokens in ("int8", "int4"))
    for_bf16 = pack(values, scales(*groups), activations="bf16", group_size=128)
    with_zeros = deep_gemm.pack_weights(
        values + 8, scales(*groups), zeros, element="uint4", activations="bf16", group_size=128
    )
    by_group = mn_major(m, k // 128)
    return {
        "int8 x int8": lambda: deep_gemm.int8_gemm_nt((i, by_token), w, d),
        "int8 with zero points x int8": lambda: deep_gemm.int8_gemm_nt((i, by_token, points), w, d, b_sums=sums),
        "the same without sums of rows": lambda: deep_gemm.int8_gemm_nt((i, by_token, points), w, d),
        "sums of rows": lambda: deep_gemm.int8_row_sums(w[0]),
        "int8 x int8, scales per 128": lambda: deep_gemm.int8_gemm_nt((i, by_group), blocks, d, recipe=(1, 128, 128)),
        "int8 x int4": lambda: deep_gemm.int8_int4_gemm_nt((i, by_token), for_int8, d),
        "int8 with zero points x int4": lambda: deep_gemm.int8_int4_gemm_nt((i, by_token, points), for_int8, d),
        "int4 x int4": lambda: deep_gemm.int4_gemm_nt((pairs, by_token), for_int4, d),
        "bf16 x int4": lambda: deep_gemm.bf16_int4_gemm_nt(x, for_bf16, d),
        "bf16 x int4, zero points": lambda: deep_gemm.bf16_int4_gemm_nt(x, with_zeros, d),
    }


def rest_experts_calls(e: int, m: int, rows: int, n: int, k: int) -> Calls:
    d = torch.empty((e, rows, n), device=DEVICE, dtype=torch.bfloat16)
    counts = torch.full((e,), m, dtype=torch.int32, device=DEVICE)
    i, by_token, by_group = integers(e, rows, k), scales(e, rows), mn_major(e, rows, k // 128)
    w, of_rows, of_blocks = integers(e, n, k), scales(e, n), scales(e, -(-n // 128), k // 128)
    call, keys = deep_gemm.m_grouped_int8_gemm_nt_masked, {"recipe": (1, 128, 128)}
    return {
        "int8 x int8": lambda: call((i, by_token), (w, of_rows), d, counts, m),
        "int8 x int8, scales per 128": lambda: call((i, by_group), (w, of_blocks), d, counts, m, **keys),
    }


def measure(kinds: Sequence[str]) -> Iterator[dict]:
    from timing import Timer

    timer = Timer(torch.device(DEVICE), 256 << 20, 15)

    def times(calls: Calls) -> dict[str, float]:
        for call in calls.values():
            call()
        return {name: round(t.median * 1e6, 2) for name, t in zip(calls, timer.time(*calls.values()), strict=True)}

    for n, k in WEIGHTS if "dense" in kinds else []:
        weights, for_bf16 = packed(n, k), packed_for_bf16(n, k)
        for m in TOKENS:
            calls = dense_calls(m, n, k, weights) | dense_bf16_calls(m, n, k, for_bf16)
            calls |= {"read 4 bits": reader(n * k // 2), "read 8 bits": reader(n * k)}
            yield {"case": ["dense", m, n, k], "us": times(calls)}
    for n, k in EXPERT_WEIGHTS if "masked" in kinds else []:
        for e, m, rows in EXPERTS:
            weights = packed(n, k, (e,))
            calls = masked_calls(e, m, rows, n, k, weights)
            calls |= masked_bf16_calls(e, m, rows, k, packed_for_bf16(n, k, (e,)))
            calls |= {"read 4 bits": reader(e * n * k // 2)}
            yield {"case": ["masked", e, m, n, k], "us": times(calls)}
            torch.cuda.empty_cache()
    if "rest" in kinds:
        for (n, k), m in product(WEIGHTS, TOKENS):
            calls = rest_calls(m, n, k) | {"read 4 bits": reader(n * k // 2), "read 8 bits": reader(n * k)}
            yield {"case": ["rest", m, n, k], "us": times(calls)}
        for (n, k), (e, m, rows) in product(EXPERT_WEIGHTS, EXPERTS):
            calls = rest_experts_calls(e, m, rows, n, k) | {"read 8 bits": reader(e * n * k)}
            yield {"case": ["rest of experts", e, m, n, k], "us": times(calls)}
            torch.cuda.empty_cache()


def cell(us: float | None) -> str:
    return "-" if us is None else f"{us:.1f}"


def tables(document: dict) -> str:
    """One for each kind of case, and for activations of 8 and of 16 bits."""
    text = ""
    for kind, wide in product(("dense", "masked", "rest", "rest of experts"), (False, True)):
        rows = [row for row in document["results"] if row["case"][0] == kind]
        names = list(dict.fromkeys(name for row in rows for name in row["us"]))
        read = "read 8 bits" if kind == "rest of experts" else "read 4 bits"
        names = [name for name in names if ("bf16" in name) == wide and "read" not in name]
        if not names:
            continue
        names.append(read)
        header = ["M, N, K" if len(rows[0]["case"]) == 4 else "experts, tokens, N, K", *names]
        lines = [[", ".join(map(str, row["case"][1:])), *(cell(row["us"].get(name)) for name in names)] for row in rows]
        text += table(header, lines) + "\n"
    machine = document["machine"]
    return text + f"{machine['gpu']}, driver {machine['driver']}, {machine['compiler']}, commit {machine['commit']}.\n"


def beside_bf16(document: dict) -> str:
    """Of one run BF16 x BF16 and the picks of two commits: what the later one gains, and BF16's time over its."""
    names = list(dict.fromkeys(name for row in document["results"] for name in row["us"]))
    lines = []
    for row in document["results"]:
        cells = [row["us"].get(name) for name in names]
        shown = [
            "-" if us is None else f"{us[1]:.1f} to {us[2]:.1f} ({us[2] / us[1]:.2f}), {us[0] / us[2]:.2f}"
            for us in cells
        ]
        bf16 = sorted(us[0] for us in row["us"].values())
        lines.append([", ".join(map(str, row["case"])), f"{bf16[len(bf16) // 2]:.1f}", *shown])
    of, (before, after) = document["machine"], document["commits"]
    return (
        table(["M, N, K", "bf16 x bf16", *names], lines)
        + f"\n{of['gpu']}, driver {of['driver']}, {of['compiler']}, compiled for {document['target']}, "
        f"commits {before} and {after}, in microseconds.\n"
    )


def of_counts(document: dict) -> str:
    """What picks take of the fastest tile's time where experts have equal numbers of tokens, and drawn ones."""
    names = list(dict.fromkeys((row["case"][0], row["case"][1]) for row in document["results"]))
    lines = []
    for name in names:
        cells = []
        for counts in ("drawn", "equal"):
            rows = [r["us"] for r in document["results"] if (*r["case"][:2], r["case"][-1]) == (*name, counts)]
            shares = [us["pick"] / min(us.values()) for us in rows]
            cells.append(f"{sum(shares) / len(shares):.3f} ({max(shares):.2f})")
        lines.append([", ".join(name), *cells])
    of = document["machine"]
    return (
        table(["", "counts drawn, mean (worst)", "all equal, mean (worst)"], lines)
        + f"\n{of['gpu']}, driver {of['driver']}, {of['compiler']}, commit {of['commit']}.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="the folder of h100_packed.json (by the card's name)")
    parser.add_argument("--commit", help="of the package, where it is no clone")
    parser.add_argument("--kind", choices=KINDS, help="of cases; dense and masked ones of a file stay as it has them")
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    from machine import describe, read_result, write_result

    if options.table:
        print(tables(read_result(options.table)))
        return
    machine, kinds = describe(options.commit), [options.kind] if options.kind else ["dense", "masked"]
    part = "_rest" if options.kind == "rest" else ""
    file = options.out / f"{machine['gpu'].split()[1].lower()}_packed{part}.json"
    earlier = read_result(file) if options.kind and file.exists() else {"machine": machine, "results": []}
    assert earlier["machine"] == machine, "what stays was measured on the same machine"
    results = [row for row in earlier["results"] if row["case"][0] not in kinds]
    for row in measure(kinds):
        print(row, flush=True)
        results.append(row)  # written each time: a session may end
        write_result(file, {"machine": machine, "results": results})


if __name__ == "__main__":
    main()
