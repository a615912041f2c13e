"""Speed of products of batches of matrices (`einsum`, `fp8_einsum`, D in heads), beside torch's in BF16.

python benchmarks/bench_batches.py --out results
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from machine import describe, write_result
from timing import Timer

import deep_gemm
from deep_gemm.utils import per_block_cast_to_fp8, per_channel_cast_to_fp8, per_token_cast_to_fp8

# Heads, latent and head dimension of DeepSeek's attention (MLA), and of few wide heads.
HEADS = [(128, 512, 128), (8, 4096, 1024)]
TOKENS = [1, 4, 16, 32, 64, 128, 512, 1024, 4096]
SUMS = [(tokens, *sizes) for tokens in (129, 4096) for sizes in ((128, 384, 128), (256, 256, 256), (384, 128, 384))]
MLA_SPLITS = (128, 64, 128)


@dataclass
class Case:
    what: str
    sizes: tuple[int, ...]
    ours: Callable[[], None]
    torchs: Callable[[], object]
    difference: Callable[[], float]  # of both results, after one call of each


def values(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def einsum_case(what: str, expr: str, sizes: tuple[int, ...], x: torch.Tensor, y: torch.Tensor) -> Case:
    wanted = torch.einsum(expr, x, y)
    d = torch.empty(wanted.shape, device="cuda", dtype=torch.bfloat16)
    # As torch.bmm wants its matrices, heads first, and into its place.
    left, right = x.transpose(0, 1), y.mT if expr == "bhr,hdr->bhd" else y
    out = torch.empty_like(d)
    return Case(
        what,
        sizes,
        lambda: deep_gemm.einsum(expr, x, y, d),
        lambda: torch.bmm(left, right, out=out.transpose(0, 1)),
        lambda: deep_gemm.testing.calc_diff(d, wanted),
    )


def einsum_cases() -> Iterator[Case]:
    for (h, r, d), b in ((heads, tokens) for heads in HEADS for tokens in TOKENS):
        weight = values(h, d, r)
        yield einsum_case("bhr,hdr->bhd", "bhr,hdr->bhd", (b, h, r, d), values(b, h, r), weight)
        yield einsum_case("bhd,hdr->bhr", "bhd,hdr->bhr", (b, h, r, d), values(b, h, d), weight)


def fp8_weight(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    heads = [per_block_cast_to_fp8(head, use_ue8m0=False) for head in weight]
    data, scales = (torch.stack([head[part] for head in heads]) for part in range(2))
    return data, scales


def fp8_tokens(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    data, scales = per_token_cast_to_fp8(x.reshape(-1, x.shape[-1]), use_ue8m0=False)
    return data.view(x.shape), scales.view(*x.shape[:2], -1)


def fp8_case(expr: str, sizes: tuple[int, ...], weight: torch.Tensor) -> Case:
    b, h, r, d = sizes
    tokens = values(b, h, r if expr == "bhr,hdr->bhd" else d)
    case = einsum_case(f"FP8 {expr}", expr, sizes, tokens, weight)
    wanted = torch.einsum(expr, tokens, weight)
    x, y, out = fp8_tokens(tokens), fp8_weight(weight), torch.empty_like(wanted)
    case.ours = lambda: deep_gemm.fp8_einsum(expr, x, y, out)
    case.difference = lambda: deep_gemm.testing.calc_diff(out, wanted)
    return case


def fp8_cases() -> Iterator[Case]:
    for (h, r, d), b in ((heads, tokens) for heads in HEADS for tokens in TOKENS):
        weight = values(h, d, r)
        for expr in ("bhr,hdr->bhd", "bhd,hdr->bhr"):
            yield fp8_case(expr, (b, h, r, d), weight)


def gradient_cases() -> Iterator[Case]:
    h, r, d = HEADS[1]
    for b in (1024, 4096):
        x, y = values(b, h, d), values(b, h, r)
        quantised = [per_channel_cast_to_fp8(t.view(b, -1), use_ue8m0=False) for t in (x, y)]
        a, w = ((data.view(t.shape), s.view(-1, *t.shape[1:])) for (data, s), t in zip(quantised, (x, y), strict=True))
        total = torch.zeros((h, d, r), device="cuda")

        def ours(a: tuple = a, w: tuple = w, total: torch.Tensor = total) -> None:
            deep_gemm.fp8_einsum("bhd,bhr->hdr", a, w, total, total, recipe=(1, 1, 128))

        def difference(a: tuple = a, w: tuple = w, x: torch.Tensor = x, y: torch.Tensor = y) -> float:
            once = torch.zeros((h, d, r), device="cuda")
            deep_gemm.fp8_einsum("bhd,bhr->hdr", a, w, once, once, recipe=(1, 1, 128))
            return deep_gemm.testing.calc_diff(once, torch.einsum("bhd,bhr->hdr", x, y))

        left, right = x.permute(1, 2, 0), y.transpose(0, 1)
        yield Case("FP8 bhd,bhr->hdr", (b, h, r, d), ours, lambda a=left, b=right: torch.bmm(a, b), difference)


def sum_case(sizes: tuple[int, ...], dtype: torch.dtype) -> Case:
    b, m, n, k = sizes
    x, y = values(b, m, k), values(b, n, k)
    wanted = sum(torch.bmm(i.float(), j.float().mT).sum(0) for i, j in zip(x.split(64), y.split(64), strict=True))
    d = torch.zeros((m, n), device="cuda", dtype=dtype)
    return Case(
        f"bmk,bnk->mn {str(dtype)[6:]}",
        sizes,
        lambda: deep_gemm.einsum("bmk,bnk->mn", x, y, d),
        lambda: torch.einsum("bmk,bnk->mn", x, y),
        lambda: deep_gemm.testing.calc_diff(d, wanted),
    )


def sum_cases() -> Iterator[Case]:
    for sizes in SUMS:
        for dtype in (torch.float32, torch.bfloat16):
            yield sum_case(sizes, dtype)


def head_cases() -> Iterator[Case]:
    """Beside torch: our own product without gaps."""
    left, mid, right = MLA_SPLITS
    for m, n in ((tokens, n) for tokens in (128, 4096) for n in (8192, 32768)):
        x, weight = values(m, 512), values(n, 512)
        a, b = per_token_cast_to_fp8(x, use_ue8m0=False), per_block_cast_to_fp8(weight, use_ue8m0=False)
        plain = torch.empty((m, n), device="cuda", dtype=torch.bfloat16)
        d = torch.zeros((m, n // (left + right), left + mid + right), device="cuda", dtype=torch.bfloat16)
        yield Case(
            "D in heads",
            (m, n, 512),
            lambda a=a, b=b, d=d: deep_gemm.fp8_gemm_nt_skip_head_mid(a, b, d.flatten(1), MLA_SPLITS),
            lambda a=a, b=b, plain=plain: deep_gemm.fp8_gemm_nt(a, b, plain),
            lambda d=d, plain=plain: deep_gemm.testing.calc_diff(
                torch.cat([d[..., :left], d[..., left + mid :]], dim=2).flatten(1), plain
            ),
        )


def cases() -> Iterator[Case]:
    for some in (einsum_cases, fp8_cases, gradient_cases, sum_cases, head_cases):
        yield from some()


def measure(timer: Timer) -> Iterator[dict]:
    for case in cases():
        case.ours(), case.torchs()
        ours, other = timer.time(case.ours, case.torchs)
        yield {
            "what": case.what,
            "sizes": case.sizes,
            "difference": case.difference(),
            "us": ours.median * 1e6,
            "other_us": other.median * 1e6,
            "speedup": other.median / ours.median,
            "kernels": ours.kernels,
            "other_kernels": other.kernels,
            "method": ours.method,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="directory for batches.json")
    parser.add_argument("--commit", help="commit to record, where there is no .git")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU: nothing was measured")
        return 1
    rows = []
    for row in measure(Timer(torch.device("cuda"), 1 << 30, calls=10)):
        rows.append(row)
        print(
            f"{row['what']:22s} {'x'.join(map(str, row['sizes'])):20s} {row['us']:8.1f} us  {row['speedup']:5.2f} x  "
            f"difference {row['difference']:.1e}",
            flush=True,
        )
    if arguments.out:
        document = {"what": "bench_batches", "machine": describe(arguments.commit), "rows": rows}
        write_result(arguments.out / "batches.json", document)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
