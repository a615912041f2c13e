"""What the public functions of index logits share: their call forms, results, and operators of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from . import operators
from ._arguments import describe, no_memory
from ._extension import C

Pair = tuple[Tensor, Tensor]
Queries = Tensor | tuple[Tensor, Tensor | None]

# Arguments of an operator, in its order: q and its scales; keys and theirs, or blocks of a cache; weights; each row's
# first key and end, or lengths and the table of blocks; columns (0: one for each key), whether others are cleaned, the
# dtype of logits. Plain tuples, since naming their elements costs 0.3 us a call.
DenseCall = tuple[Tensor, Tensor | None, Tensor, Tensor, Tensor, Tensor, Tensor, int, bool, torch.dtype]
PagedCall = tuple[Tensor, Tensor | None, Tensor, Tensor, Tensor, Tensor, int, bool, torch.dtype]
MetadataCall = tuple[Tensor, int]
Call = TypeVar("Call", bound=tuple[Any, ...])

_ROW_BYTES = 1024
_OLDER_DENSE = ("clean_logits", "max_seqlen_k", "logits_dtype", "schedule_meta")
_OLDER_PAGED = ("clean_logits", "logits_dtype", "indices")


def dense_form(form: tuple[Any, ...], keywords: dict[str, Any], dtype: torch.dtype) -> tuple[int, bool, torch.dtype]:
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


def paged_form(
    form: tuple[Any, ...], keywords: dict[str, Any], dtype: torch.dtype
) -> tuple[bool, torch.dtype, Tensor | None]:
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


def dense(
    q: Queries,
    kv: Pair,
    weights: Tensor,
    first_keys: Tensor,
    end_keys: Tensor,
    columns: int,
    cleaned: bool,
    dtype: torch.dtype,
) -> Tensor:
    """Of the two public dense functions, when their form is known."""
    data, scales = _parts("q", q)
    keys, key_scales = _parts("kv", kv)
    if key_scales is None:
        raise TypeError("kv must be a pair (keys, scales): the scales are missing")
    call = (data, scales, keys, key_scales, weights, first_keys, end_keys, columns, cleaned, dtype)
    return _serve(_dense_operator, _run_dense, call)


def paged(
    q: Queries,
    cache: Tensor,
    weights: Tensor,
    lengths: Tensor,
    block_table: Tensor,
    schedule_meta: Tensor | None,
    columns: int,
    cleaned: bool,
    dtype: torch.dtype,
    indices: Tensor | None,
) -> Tensor:
    """Of the two public paged functions, when their form is known."""
    data, scales = _parts("q", q)
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
    call = (data, scales, cache, weights, lengths, block_table, columns, cleaned, dtype)
    return _serve(_paged_operator, _run_paged, call)


def paged_metadata(lengths: Tensor, num_sms: int) -> Tensor:
    """Int32 `[num_sms + 1, 2]`."""
    return _serve(_metadata_operator, _run_metadata, (lengths, _positive("num_sms", num_sms)))


def _parts(name: str, given: Any) -> tuple[Tensor, Tensor | None]:
    if isinstance(given, Tensor):
        return given, None
    if isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[0], Tensor):
        return given[0], given[1]
    raise TypeError(f"{name} must be a tensor or a pair (tensor, scales), got {describe(given)}")


def _serve(operator: Callable[..., Tensor], run: Callable[[Call], Tensor], call: Call) -> Tensor:
    """By the operator where torch records a program instead of running it."""
    if is_dynamo_compiling():
        return operator(*call)
    try:
        return run(call)
    except Exception as error:
        failure = error
    tensors = [argument for argument in call if isinstance(argument, Tensor)]
    if operators.is_traced(tensors):
        return operator(*call)
    rejections = (no_memory("an argument", tensor, run.__name__) for tensor in tensors)
    raise next(filter(None, rejections), failure.with_traceback(None))


def _new_logits(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """`[rows, columns]`, uninitialised, rows at multiples of 1024 bytes."""
    step = _ROW_BYTES // dtype.itemsize
    stride = (columns + step - 1) // step * step
    return torch.empty((rows, stride), dtype=dtype, device=device)[:, :columns]


def _new_dense(call: DenseCall) -> Tensor:
    q, _, keys, *_, columns, _, dtype = call
    return _new_logits(q.shape[0], columns or keys.shape[0], dtype, q.device)


def _run_dense(call: DenseCall) -> Tensor:
    q, q_scales, keys, key_scales, weights, first_keys, end_keys, columns, cleaned, dtype = call
    logits = _new_logits(q.shape[0], columns or keys.shape[0], dtype, q.device)
    C.mqa_logits(
        q=q,
        q_scales=q_scales,
        weights=weights,
        logits=logits,
        cleaned=cleaned,
        keys=keys,
        scales=key_scales,
        first_keys=first_keys,
        end_keys=end_keys,
        compressed=columns > 0,
    )
    return logits


def _new_paged(call: PagedCall) -> Tensor:
    q, *_, columns, _, dtype = call
    return _new_logits(q.shape[0] * q.shape[1], columns, dtype, q.device)


def _run_paged(call: PagedCall) -> Tensor:
    q, q_scales, cache, weights, lengths, block_table, columns, cleaned, dtype = call
    logits = _new_logits(q.shape[0] * q.shape[1], columns, dtype, q.device)
    if cleaned and (cache.shape[0] == 0 or block_table.shape[-1] == 0):
        return logits.fill_(-torch.inf)
    C.paged_mqa_logits(
        q=q,
        q_scales=q_scales,
        weights=weights,
        logits=logits,
        cleaned=cleaned,
        cache=cache,
        lengths=lengths,
        block_table=block_table,
    )
    return logits


def _new_metadata(call: MetadataCall) -> Tensor:
    lengths, num_sms = call
    return torch.empty((num_sms + 1, 2), dtype=torch.int32, device=lengths.device)


def _run_metadata(call: MetadataCall) -> Tensor:
    starts = _new_metadata(call)
    C.paged_mqa_logits_metadata(call[0], starts)
    return starts


def _operator(schema: str, run: Callable[[Any], Tensor], new: Callable[[Any], Tensor]) -> Callable[..., Tensor]:
    return operators.define_result(schema, lambda *given: run(given), lambda *given: new(given))


_dense_operator = _operator(
    "mqa_logits(Tensor q, Tensor? q_scales, Tensor kv, Tensor kv_scales, Tensor weights, Tensor cu_seq_len_k_start, "
    "Tensor cu_seq_len_k_end, SymInt max_seqlen_k, bool clean_logits, ScalarType logits_dtype) -> Tensor",
    _run_dense,
    _new_dense,
)
_paged_operator = _operator(
    "paged_mqa_logits(Tensor q, Tensor? q_scales, Tensor kv_cache, Tensor weights, Tensor context_lens, "
    "Tensor block_table, SymInt max_context_len, bool clean_logits, ScalarType logits_dtype) -> Tensor",
    _run_paged,
    _new_paged,
)
_metadata_operator = _operator(
    "paged_mqa_logits_metadata(Tensor context_lens, SymInt num_sms) -> Tensor",
    _run_metadata,
    _new_metadata,
)
