"""Index logits: how well each key suits a query token, by which sparse attention picks the keys that it reads.

    logits[i, j] = sum over heads h of relu(q[i, h] . k[j]) * weights[i, h], times the key's scale

Heads are any multiple of 4 up to 128, D is 32, 64 or 128. Queries and keys are E4M3 with an FP32 scale for each key, or
E4M3 or E2M1 (two codes a byte) with an exponent for each 32 of D: int32 words of four UE8M0 exponents, for each head of
a query and for each key. Results are allocated here; each row starts at a multiple of 1024 bytes. Which keys a row sees
is read on the device: calls can be captured in CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import _logits, jit
from ._extension import C
from ._logits import Pair, Queries
from ._targets import GPUS, HOPPER_TARGET
from .settings import get_num_sms

__all__ = [
    "fp8_fp4_mqa_logits",
    "fp8_fp4_paged_mqa_logits",
    "fp8_mqa_logits",
    "fp8_paged_mqa_logits",
    "get_mqa_logits_metadata",
    "get_paged_mqa_logits_metadata",
    "logits_kernels",
    "precompile",
]

_ROWS_TIMES_HEADS = 128  # of an entry of the public metadata


def fp8_fp4_mqa_logits(
    q: Queries,
    kv: Pair,
    weights: torch.Tensor,
    cu_seq_len_k_start: torch.Tensor,
    cu_seq_len_k_end: torch.Tensor,
    *form: Any,
    **keywords: Any,
) -> torch.Tensor:
    """Logits of query rows, each of which sees a run of keys that lie one after the other.

    There are two forms, told apart by what comes sixth: a number is `max_seqlen_k` of the newer one, True or False is
    `clean_logits` of the older one. In both, keys are cut to those that exist, and a start at or behind its end is an
    empty row.

        (..., max_seqlen_k, schedule_meta=None)
        (..., clean_logits=True, max_seqlen_k=0, logits_dtype=torch.float32, schedule_meta=None)

    Args:
        q: `(e4m3 [rows, heads, D], None)`, or that tensor alone; or `(codes, words)` with exponents, `codes` E4M3 or
            int8 `[rows, heads, D / 2]`, `words` int32 `[rows, heads]`.
        kv: `(e4m3 [keys, D], FP32 [keys])`, or `(codes [keys, D or D / 2], int32 [keys])` beside such queries.
        weights: FP32 or BF16 `[rows, heads]`, heads contiguous.
        cu_seq_len_k_start, cu_seq_len_k_end: int32 `[rows]`, the first key that a row sees and the one behind its last.
        max_seqlen_k: how many keys a row sees at most. Column 0 is each row's first key then, and columns behind its
            last one are **uninitialised**. 0, of the older form: column j is key j.
        clean_logits: of the older form without `max_seqlen_k`: columns of keys that a row does not see become -inf.
            With False they are **uninitialised**.
        logits_dtype: FP32 or BF16. The newer form gives the dtype of `weights`.
        schedule_meta: accepted and not read: the kernel deals the work by itself.

    Returns:
        `[rows, max_seqlen_k]`, or `[rows, keys]`.

    Raises:
        TypeError, ValueError: an argument cannot be right.
    """
    columns, cleaned, dtype = _logits.dense_form(form, keywords, weights.dtype)
    return _logits.dense(q, kv, weights, cu_seq_len_k_start, cu_seq_len_k_end, columns, cleaned, dtype)


def fp8_mqa_logits(
    q: Queries,
    kv: Pair,
    weights: torch.Tensor,
    cu_seq_len_k_start: torch.Tensor,
    cu_seq_len_k_end: torch.Tensor,
    *form: Any,
    **keywords: Any,
) -> torch.Tensor:
    """`fp8_fp4_mqa_logits` under its older name, with its arguments: `q` is a tensor, and logits are FP32."""
    columns, cleaned, _ = _logits.dense_form(form, keywords, torch.float32)
    return _logits.dense(q, kv, weights, cu_seq_len_k_start, cu_seq_len_k_end, columns, cleaned, torch.float32)


def fp8_fp4_paged_mqa_logits(
    q: Queries,
    kv_cache: torch.Tensor,
    weights: torch.Tensor,
    context_lens: torch.Tensor,
    block_table: torch.Tensor,
    schedule_meta: torch.Tensor | None,
    max_context_len: int,
    *form: Any,
    **keywords: Any,
) -> torch.Tensor:
    """Logits of the query rows of requests, whose keys lie in blocks of a cache.

    There are two forms, told apart by what comes eighth: a tensor or None is `indices` of the newer one, True or False
    `clean_logits` of the older one.

        (..., max_context_len, indices=None)
        (..., max_context_len, clean_logits=False, logits_dtype=torch.float32, indices=None)

    Args:
        q: `[requests, next_n, heads, D]`, otherwise as in `fp8_fp4_mqa_logits`; any `next_n`.
        kv_cache: uint8 `[blocks, keys of a block, 1, D + 4]` (`D / 2 + 4` of FP4): of each block first the codes of all
            keys, then a scale or a word of exponents for each. Blocks have 32, 64 or 128 keys and start at multiples of
            16 bytes. What keys hold that no row sees, NaN included, changes nothing.
        weights: FP32 or BF16 `[requests * next_n, heads]`.
        context_lens: int32 `[requests, next_n]`, how many keys each row sees; or `[requests]`: the last row sees so
            many, each one before it one fewer. Cut to `max_context_len`.
        block_table: int32 `[requests, blocks]`. Behind the blocks in use it may hold anything.
        schedule_meta: what `get_paged_mqa_logits_metadata` gives, for as many SMs as there are or half of them. Not
            read: the kernel deals the work by itself, in pieces of 64 keys.
        max_context_len: columns of the result.
        indices: int32 `[requests]`, the request of each row where the rows of a request come one by one, its line of
            the block table repeated.
        clean_logits: columns behind a row's length become -inf. With False they are **uninitialised**.
        logits_dtype: as in `fp8_fp4_mqa_logits`.

    Returns:
        `[requests * next_n, max_context_len]`.

    Raises:
        TypeError, ValueError: an argument cannot be right.
    """
    cleaned, dtype, indices = _logits.paged_form(form, keywords, weights.dtype)
    return _logits.paged(
        q, kv_cache, weights, context_lens, block_table, schedule_meta, max_context_len, cleaned, dtype, indices
    )


def fp8_paged_mqa_logits(
    q: Queries,
    kv_cache: torch.Tensor,
    weights: torch.Tensor,
    context_lens: torch.Tensor,
    block_table: torch.Tensor,
    schedule_meta: torch.Tensor | None,
    max_context_len: int,
    clean_logits: bool = False,
    indices: torch.Tensor | None = None,
) -> torch.Tensor:
    """`fp8_fp4_paged_mqa_logits` under its older name, with its arguments: `q` is a tensor, and logits are FP32."""
    return _logits.paged(
        q,
        kv_cache,
        weights,
        context_lens,
        block_table,
        schedule_meta,
        max_context_len,
        clean_logits,
        torch.float32,
        indices,
    )


def get_mqa_logits_metadata(
    cu_seq_len_k_start: torch.Tensor, cu_seq_len_k_end: torch.Tensor, num_kv_tokens: int, num_heads: int
) -> torch.Tensor:
    """A `schedule_meta` for `fp8_fp4_mqa_logits`, for programs that pass one.

    Int32, of the size that the public function's has, and zero: the kernels here deal the work by themselves, and equal
    calls give equal bits with it and without.

    Args:
        cu_seq_len_k_start, cu_seq_len_k_end: int32 `[rows]`, as of `fp8_fp4_mqa_logits`.
        num_kv_tokens: how many keys there are.
        num_heads: of the queries.

    Raises:
        ValueError: the shapes differ, or a number cannot be right.
    """
    rows = cu_seq_len_k_start.shape[0]
    if cu_seq_len_k_end.shape != cu_seq_len_k_start.shape or num_heads <= 0 or num_kv_tokens < 0:
        raise ValueError(
            f"starts and ends must have one shape, and heads be positive, got {[*cu_seq_len_k_start.shape]}, "
            f"{[*cu_seq_len_k_end.shape]} and {num_heads}"
        )
    size = (3 * get_num_sms() + 1) // 2 * 2 + 2 * -(-rows // max(_ROWS_TIMES_HEADS // num_heads, 1))
    return torch.zeros(size, dtype=torch.int32, device=cu_seq_len_k_start.device)


def get_paged_mqa_logits_metadata(
    context_lens: torch.Tensor, block_kv: int, num_sms: int, indices: torch.Tensor | None = None
) -> torch.Tensor:
    """Where each of `num_sms` SMs would begin if splits of 256 keys were dealt out evenly: int32 `[num_sms + 1, 2]`.

    An entry is a request and a split of it; requests have as many keys as their last row sees. `context_lens` is int32
    `[requests, next_n]` or `[requests]`. `fp8_fp4_paged_mqa_logits` takes the result, for any `num_sms`, and does not
    need it. `block_kv` and `indices` change nothing. Raises ValueError or TypeError where an argument cannot be right.
    """
    return _logits.paged_metadata(context_lens, num_sms)


FORMS = {"fp8": {}, "mxfp8": {"exponents": 1}, "mxfp4": {"exponents": 1, "fp4": 1}}
DTYPES = ("fp32", "bf16")


def logits_kernels(
    heads: int,
    d: int,
    *,
    rows: Sequence[int],
    form: str = "fp8",
    block_kv: int = 0,
    weights: str = "fp32",
    logits: str = "fp32",
    target: str = HOPPER_TARGET,
) -> list[tuple[str, str]]:
    """Name and source of each kernel that calls of these kinds need. Needs no GPU.

    Args:
        heads, d: of queries and keys.
        rows: query rows of dense calls, or `next_n` of paged ones. Few kernels serve all: those of 1 to 4 rows, powers
            of two up to what a CTA has at once, and one for all numbers beyond.
        form: 'fp8', 'mxfp8' or 'mxfp4'.
        block_kv: keys of a block, 32, 64 or 128; 0 for dense calls.
        weights, logits: 'fp32' or 'bf16'.
        target: what to compile for.

    Raises:
        ValueError: no kernel is of these kinds; the message says which are.
    """
    for name, value, known in (
        ("form", form, tuple(FORMS)),
        ("weights", weights, DTYPES),
        ("logits", logits, DTYPES),
        ("target", target, tuple(GPUS)),
    ):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    fields = {"heads": heads, "d": d, "block_kv": block_kv, **FORMS[form]}
    fields |= {"bf16_weights": int(weights == "bf16"), "bf16_logits": int(logits == "bf16")}
    kernels = [C.logits_kernel({**fields, "rows": count}, target) for count in rows]
    return list(dict.fromkeys((str(kernel["name"]), str(kernel["text"])) for kernel in kernels))


def precompile(
    heads: int, d: int, *, rows: Sequence[int], newer_gpu: bool = False, **kinds: Any
) -> list[jit.CompileResult]:
    """Compile the kernels of `logits_kernels`, with its arguments, into the disk cache, with or without a GPU.

    `newer_gpu` as in `deep_gemm.precompile`. Returns a result for each kernel: see `jit.compile_many`.
    """
    target = kinds.get("target", HOPPER_TARGET)
    output = "driver_ptx" if newer_gpu else "cubin"
    return jit.compile_many(logits_kernels(heads, d, rows=rows, **kinds), target, output=output)
