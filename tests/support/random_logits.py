"""Random legal calls of index logits, against FP64, element by element: also of what may not be written.

By the hundred, without pytest; each call that fails is a line that repeats it:

    PYTHONPATH=.:tests/support python tests/support/random_logits.py --first 0 --calls 300 [--device cuda]
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import Any
from unittest import mock

import torch
from logits_inputs import Dense, Paged, fp8_dense, fp8_paged, generator_of, logits_of

import deep_gemm
from deep_gemm import _logits, simulator

UNTOUCHED = -12345.0
TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a")
# Of the sum of all magnitudes: FP32 sums in any order; BF16 rounds once more; Hopper's tensor cores keep 13 bits.
SUM_ERROR, HOPPER_ERROR, BF16_ERROR = 2.0**-19, 2.0**-11, 2.0**-8


class Wrong(AssertionError):
    """A call that gave what it may not give."""


def options(r: random.Random, target: str | None = None) -> dict[str, Any]:
    """Of the simulator, for a call."""
    schedule = r.choice(simulator.SCHEDULES)
    return {
        "target": target or r.choice(TARGETS),
        "schedule": schedule,
        "seed": r.randrange(1 << 31),
        "hazards": "error",
        "num_sms": r.choice([1, 2, 4, 7]),
    }


def check_one(seed: int, device: torch.device | str = "cpu") -> str:
    """Draws a call, makes it, compares. Returns what it was."""
    r = random.Random(seed)
    return dense_call(r, seed, device) if r.random() < 0.5 else paged_call(r, seed, device)


def kinds(r: random.Random) -> dict[str, Any]:
    form = r.choice(["fp8", "fp8", "mxfp8", "mxfp4"])
    return {
        "heads": r.choice([4, 8, 12, 16, 20, 24, 32, 36, 48, 64, 68, 72, 96, 100, 128]),
        "d": r.choice([64, 128] if form == "mxfp4" else [32, 64, 128]),
        "form": form,
        "weights": r.choice([torch.float32, torch.bfloat16]),
    }


def parts(q: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    return q if isinstance(q, tuple) else (q, None)


def spread_queries(r: random.Random, q: Any) -> Any:
    """Heads or rows further apart, what lies between being NaN's bytes."""
    codes, scales = parts(q)
    if r.random() < 0.5:
        return q
    more_heads, more = r.choice([0, 1, 4]), r.choice([0, 16, 48])
    shape = (*codes.shape[:-2], codes.shape[-2] + more_heads, codes.shape[-1] + more)
    wide = torch.full(shape, 0x7F, dtype=torch.uint8, device=codes.device)
    view = wide[..., : codes.shape[-2], : codes.shape[-1]]
    view.copy_(codes.view(torch.uint8))
    view = view.view(codes.dtype)
    return view if scales is None else (view, scales)


def spread_weights(r: random.Random, weights: torch.Tensor) -> torch.Tensor:
    if r.random() < 0.5:
        return weights
    wide = torch.full((weights.shape[0], weights.shape[1] + r.choice([1, 4, 13])), torch.nan, dtype=weights.dtype)
    wide = wide.to(weights.device)
    wide[:, : weights.shape[1]] = weights
    return wide[:, : weights.shape[1]]


def ranges(r: random.Random, rows: int, keys: int) -> tuple[torch.Tensor, torch.Tensor]:
    """As prefill has them, or of any kind: empty, reversed, before the first key and behind the last."""
    kind = r.choice(["all", "causal", "any", "any", "empty"])
    if kind == "all":
        return torch.zeros(rows), torch.full((rows,), keys)
    if kind == "causal":
        begin = r.randrange(keys)
        return torch.full((rows,), begin), begin + 1 + torch.arange(rows)
    if kind == "empty":
        return torch.full((rows,), r.randrange(keys)), torch.zeros(rows)
    generator = generator_of(r.randrange(1 << 31))
    return (torch.randint(-50, keys + 70, (rows,), generator=generator) for _ in range(2))


def dense_call(r: random.Random, seed: int, device: torch.device | str) -> str:
    kind = kinds(r)
    rows, keys = r.choice([1, 2, 3, 4, 5, 7, 8, 13, 33, 70]), r.choice([1, 8, 63, 64, 65, 127, 130, 200, 333])
    first, end = ranges(r, rows, keys)
    x = fp8_dense(rows, keys, **kind, first=first, end=end, seed=seed, device=device)
    columns = r.choice([0, 0, 1, 40, 130, keys])
    cleaned = columns == 0 and r.random() < 0.6
    dtype = r.choice([torch.float32, torch.bfloat16])
    newer = columns > 0 and r.random() < 0.5
    if newer:
        dtype = kind["weights"]
    what = f"dense {kind} rows {rows} keys {keys} columns {columns} cleaned {cleaned} {dtype} newer {newer}"
    lo, hi = x.clamped()
    if columns:
        hi = torch.minimum(hi, lo + columns)
    values = x.all_logits()
    magnitudes = magnitudes_of(x.q_values, x.k_values, x.weights)
    hide_unseen_keys(x, lo, hi)
    q, weights, kv = spread_queries(r, x.q), spread_weights(r, x.weights), spread_keys(r, x.kv)
    form = (columns,) if newer else (cleaned, columns, dtype)
    with mock.patch.object(_logits, "_new_logits", untouched):
        logits = deep_gemm.fp8_fp4_mqa_logits(q, kv, weights, x.first, x.end, *form)
    for row, (begin, behind) in enumerate(zip(lo.tolist(), hi.tolist(), strict=True)):
        begin, behind = (begin, behind) if begin < behind else (0, 0)
        shift = begin if columns else 0
        compare(what, logits[row], slice(begin - shift, behind - shift), values[row, begin:behind],
                magnitudes[row, begin:behind], cleaned)  # fmt: skip
    return what


def magnitudes_of(q: torch.Tensor, k: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return logits_of(q.abs(), k.abs(), weights.abs())


def hide_unseen_keys(x: Dense, lo: torch.Tensor, hi: torch.Tensor) -> None:
    """Keys that no row sees become NaN."""
    keys = torch.arange(x.k_values.shape[0], device=lo.device)
    unseen = ~((keys >= lo[:, None]) & (keys < hi[:, None])).any(0)
    x.kv[0].view(torch.uint8)[unseen] = 0x7F
    x.kv[1][unseen] = torch.nan if x.kv[1].is_floating_point() else -1


def spread_keys(r: random.Random, kv: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    codes, scales = kv
    if r.random() < 0.3:
        wide = torch.full((codes.shape[0], codes.shape[1] + 16), 0x7F, dtype=torch.uint8, device=codes.device)
        wide[:, : codes.shape[1]] = codes.view(torch.uint8)
        codes = wide[:, : codes.shape[1]].view(codes.dtype)
    if r.random() < 0.3:
        scales = torch.cat([scales[:1], scales])[1:]
    return codes, scales


def paged_call(r: random.Random, seed: int, device: torch.device | str) -> str:
    kind = kinds(r)
    block, requests, next_n = r.choice([32, 64, 128]), r.choice([1, 2, 3, 5]), r.choice([1, 1, 2, 3, 4, 5, 8])
    longest = r.choice([1, 64, 100, 300])
    generator = generator_of(r.randrange(1 << 31))
    of_rows = r.random() < 0.6
    lengths = torch.randint(-3, longest + 1, (requests, next_n) if of_rows else (requests,), generator=generator)
    x = fp8_paged(lengths, next_n, **kind, block=block, pad_bytes=r.choice([0, 16, 64]), seed=seed, device=device)
    columns = r.choice([1, 64, longest, longest + 77])
    cleaned = r.random() < 0.5
    dtype, indices = r.choice([torch.float32, torch.bfloat16]), None
    values, magnitudes = x.reference(), paged_magnitudes(x)
    seen = x.row_lengths().clamp(min=0, max=columns).tolist()
    table, given_lengths, q = x.table, x.lengths, spread_queries(r, x.q)
    if of_rows and next_n > 1 and r.random() < 0.4:
        q, given_lengths, table, indices = one_by_one(x, next_n)
    if of_rows and r.random() < 0.3:  # the table may be as long as it must
        table = table[:, : max(1, -(-int(x.lengths.max()) // block))]
    what = (
        f"paged {kind} block {block} requests {requests} next_n {next_n} lengths {lengths.tolist()} columns {columns} "
        f"cleaned {cleaned} {dtype} indices {indices is not None}"
    )
    meta = deep_gemm.get_paged_mqa_logits_metadata(given_lengths, block, r.choice([1, 4]), indices)
    with mock.patch.object(_logits, "_new_logits", untouched):
        logits = deep_gemm.fp8_fp4_paged_mqa_logits(
            q, x.cache, spread_weights(r, x.weights), given_lengths, table, meta, columns, cleaned, dtype, indices
        )
    for row, count in enumerate(seen):
        compare(what, logits[row], slice(0, count), values[row, :count], magnitudes[row, :count], cleaned)
    return what


def paged_magnitudes(x: Paged) -> torch.Tensor:
    requests, next_n = x.q_values.shape[:2]
    weights = x.weights.view(requests, next_n, -1)
    return torch.cat([magnitudes_of(*of) for of in zip(x.q_values, x.k_values, weights, strict=True)])


def one_by_one(x: Paged, next_n: int) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows as requests of their own."""
    codes, scales = parts(x.q)
    codes = codes.flatten(0, 1).unsqueeze(1)
    q = codes if scales is None else (codes, scales.flatten(0, 1).unsqueeze(1))
    indices = torch.arange(x.lengths.shape[0], dtype=torch.int32, device=x.lengths.device).repeat_interleave(next_n)
    return q, x.lengths.reshape(-1, 1), x.table[indices.long()], indices


def untouched(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    stride = -(-columns // (1024 // dtype.itemsize)) * (1024 // dtype.itemsize)
    return torch.full((rows, stride), UNTOUCHED, dtype=dtype, device=device)[:, :columns]


def compare(
    what: str, row: torch.Tensor, seen: slice, wanted: torch.Tensor, magnitudes: torch.Tensor, cleaned: bool
) -> None:
    error = HOPPER_ERROR if row.is_cuda else SUM_ERROR
    bound = magnitudes * error + (wanted.abs() * BF16_ERROR if row.dtype == torch.bfloat16 else 0) + 1e-30
    far = (row[seen].double() - wanted).abs() > bound
    if row[seen].isnan().any() or far.any():
        raise Wrong(f"{what}: {int(far.sum())} of {far.numel()} logits are wrong, {row[seen][:4]}, {wanted[:4]}")
    rest = torch.cat([row[: seen.start], row[seen.stop :]])
    default = torch.tensor(-torch.inf if cleaned else UNTOUCHED, dtype=row.dtype, device=row.device)
    if not torch.equal(rest, default.expand_as(rest)):
        raise Wrong(f"{what}: columns that a row does not see were {'not cleaned' if cleaned else 'written'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--target", default=None, help="of the simulator; drawn for each call if it is left out")
    given = parser.parse_args()
    failures = 0
    for seed in range(given.first, given.first + given.calls):
        chosen = options(random.Random(~seed), given.target)
        try:
            with simulator.options(**chosen):
                check_one(seed, given.device)
        except (Wrong, RuntimeError, ValueError) as error:
            failures += 1
            print(f"--first {seed} --calls 1: {chosen}: {type(error).__name__}: {str(error)[:900]}", flush=True)
    print(f"{given.calls} calls, {failures} failures")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
