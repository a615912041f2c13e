"""Index logits: how well each key suits a query token, by which sparse attention picks the keys that it reads.

    logits[i, j] = sum over heads h of relu(q[i, h] . k[j]) * weights[i, h], times the key's scale

Heads are any multiple of 4 up to 128, D is 32, 64 or 128. Queries and keys are E4M3 with an FP32 scale for each key, or
E4M3 or E2M1 (two codes a byte) with an exponent for each 32 of D: int32 words of four UE8M0 exponents, for each head of
a query and for each key. Results are allocated here; each row starts at a multiple of 1024 bytes. Which keys a row sees
is read on the device: calls can be captured in CUDA graphs.
"""

from __future__ import annotations

from typing import Any

import torch

from ._extension import C
from .settings import get_num_sms

__all__ = [
    "fp8_fp4_mqa_logits",
    "fp8_fp4_paged_mqa_logits",
    "fp8_mqa_logits",
    "fp8_paged_mqa_logits",
    "get_mqa_logits_metadata",
    "get_paged_mqa_logits_metadata",
]

_ROW_BYTES = 1024
_ROWS_TIMES_HEADS = 128  # of an entry of the public metadata

Pair = tuple[torch.Tensor, torch.Tensor]
Queries = torch.Tensor | tuple[torch.Tensor, torch.Tensor | None]


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
    columns, cleaned, dtype = _dense_form(form, keywords, weights.dtype)
    return _dense_logits(q, kv, weights, cu_seq_len_k_start, cu_seq_len_k_end, columns, cleaned, dtype)


def fp8_mqa_logits(
    q: Queries,
    kv: Pair,
    weights: torch.Tensor,
    cu_seq_len_k_start: torch.Tensor,
    cu_seq_len_k_end: torch.Tensor,
    *form: Any,
    **keywords: Any,
) -> torch.Tensor:
    """`fp8_fp4_mqa_logits` under its older name: `q` is a tensor, and logits are FP32."""
    columns, cleaned, _ = _dense_form(form, keywords, torch.float32)
    return _dense_logits(q, kv, weights, cu_seq_len_k_start, cu_seq_len_k_end, columns, cleaned, torch.float32)


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
    cleaned, dtype, indices = _paged_form(form, keywords, weights.dtype)
    return _paged_logits(
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
    """`fp8_fp4_paged_mqa_logits` under its older name: `q` is a tensor, and logits are FP32."""
    return _paged_logits(
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
    need it. `block_kv` and `indices` change nothing.
    """
    if num_sms <= 0:
        raise ValueError(f"num_sms must be positive, got {num_sms}")
    starts = torch.empty((num_sms + 1, 2), dtype=torch.int32, device=context_lens.device)
    C.paged_mqa_logits_metadata(context_lens, starts)
    return starts


def _dense_form(form: tuple[Any, ...], keywords: dict[str, Any], dtype: torch.dtype) -> tuple[int, bool, torch.dtype]:
    """Columns (0: one for each key), whether others are cleaned, and the dtype of logits, of either form."""
    named = dict(keywords)
    newer = len(form) > 0 and not isinstance(form[0], bool)
    if not form:
        newer = "max_seqlen_k" in named and "clean_logits" not in named and "logits_dtype" not in named
    names = ("max_seqlen_k", "schedule_meta") if newer else _OLDER_DENSE
    _bind(named, names, form)
    if newer:
        columns = _positive("max_seqlen_k", named["max_seqlen_k"])
        return columns, False, dtype
    columns, cleaned = named.get("max_seqlen_k", 0), named.get("clean_logits", True)
    if columns and cleaned and "clean_logits" in named:
        raise ValueError("clean_logits must be False where max_seqlen_k is given: columns behind a row's last key stay")
    return columns, bool(cleaned and not columns), named.get("logits_dtype", torch.float32)


_OLDER_DENSE = ("clean_logits", "max_seqlen_k", "logits_dtype", "schedule_meta")
_OLDER_PAGED = ("clean_logits", "logits_dtype", "indices")


def _paged_form(
    form: tuple[Any, ...], keywords: dict[str, Any], dtype: torch.dtype
) -> tuple[bool, torch.dtype, torch.Tensor | None]:
    """Whether columns behind a length are cleaned, the dtype of logits, and indices, of either form."""
    named = dict(keywords)
    newer = not isinstance(form[0], bool) if form else not ("clean_logits" in named or "logits_dtype" in named)
    _bind(named, ("indices",) if newer else _OLDER_PAGED, form)
    if newer:
        return False, dtype, named.get("indices")
    return bool(named.get("clean_logits", False)), named.get("logits_dtype", torch.float32), named.get("indices")


def _bind(named: dict[str, Any], names: tuple[str, ...], form: tuple[Any, ...]) -> None:
    """Positional arguments of a form among its named ones."""
    if len(form) > len(names):
        raise TypeError(f"this form takes {', '.join(names)} at the end, but {len(form)} arguments came")
    for name, value in zip(names, form, strict=False):
        if name in named:
            raise TypeError(f"{name} came twice")
        named[name] = value
    for name in named:
        if name not in names:
            raise TypeError(f"{name} is no argument of this form, which takes {', '.join(names)}")


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value <= 0:
        raise ValueError(f"{name} must be positive, got {value}")
    return value


def _parts(q: Queries) -> tuple[torch.Tensor, torch.Tensor | None]:
    return (q, None) if isinstance(q, torch.Tensor) else (q[0], q[1])


def _new_logits(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """`[rows, columns]`, uninitialised, rows at multiples of 1024 bytes."""
    step = _ROW_BYTES // dtype.itemsize
    stride = -(-max(columns, 1) // step) * step
    return torch.empty((rows, stride), dtype=dtype, device=device)[:, :columns]


def _dense_logits(
    q: Queries,
    kv: Pair,
    weights: torch.Tensor,
    first_keys: torch.Tensor,
    end_keys: torch.Tensor,
    columns: int,
    cleaned: bool,
    dtype: torch.dtype,
) -> torch.Tensor:
    data, scales = _parts(q)
    keys, key_scales = kv
    logits = _new_logits(data.shape[0], columns or keys.shape[0], dtype, data.device)
    C.mqa_logits(data, scales, keys, key_scales, weights, first_keys, end_keys, logits, columns > 0, cleaned)
    return logits


def _paged_logits(
    q: Queries,
    cache: torch.Tensor,
    weights: torch.Tensor,
    lengths: torch.Tensor,
    block_table: torch.Tensor,
    schedule_meta: torch.Tensor | None,
    columns: int,
    cleaned: bool,
    dtype: torch.dtype,
    indices: torch.Tensor | None,
) -> torch.Tensor:
    data, scales = _parts(q)
    columns = _positive("max_context_len", columns)
    if schedule_meta is not None and (schedule_meta.dtype != torch.int32 or schedule_meta.shape[1:] != (2,)):
        raise ValueError(
            f"schedule_meta must be int32 [SMs + 1, 2], got {schedule_meta.dtype} {[*schedule_meta.shape]}"
        )
    if indices is not None and (data.shape[1] != 1 or indices.shape != data.shape[:1]):
        raise ValueError(
            f"indices must be [{data.shape[0]}] beside a q [{data.shape[0]}, 1, heads, D], got {[*indices.shape]} "
            f"beside {[*data.shape]}"
        )
    logits = _new_logits(data.shape[0] * data.shape[1], columns, dtype, data.device)
    if cleaned and (cache.shape[0] == 0 or block_table.shape[-1] == 0):
        return logits.fill_(-torch.inf)
    C.paged_mqa_logits(data, scales, cache, weights, lengths, block_table, logits, cleaned)
    return logits
