"""The forms that checkpoints have: how each lays out the codes, scales and zero points of a matrix.

A reader takes the tensors of one matrix and says how to read its codes, some rows at a time, so that nothing lies
unpacked as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..utils.math import _unpack_codes, ceil_div
from ..utils.quantize import unpack_int4
from .matrix import Matrix

_CODES_PER_WORD = 8  # of 4 bits in an int32
_MXFP4_GROUP, _NVFP4_GROUP = 32, 16
_AWQ_NIBBLES = (0, 4, 1, 5, 2, 6, 3, 7)  # the nibble of a word that holds each of its eight columns
_FP8_BLOCK = (128, 128)
_QOQ_ROWS, _QOQ_K = 32, 32  # of a block
_PAIRS = (torch.int8, torch.uint8)


@dataclass(frozen=True)
class Read:
    """A matrix of a checkpoint."""

    matrix: Matrix
    element: str
    group_size: int | None


@dataclass(frozen=True)
class Named:
    """The tensors of one matrix."""

    format: str
    prefix: str
    tensors: Mapping[str, torch.Tensor]

    def get(
        self, *names: str, dtypes: tuple[torch.dtype, ...] | None = None, dimensions: int | None = None
    ) -> torch.Tensor:
        """The first of `names` that is there; there must be one."""
        tensor = self.optional(*names, dtypes=dtypes, dimensions=dimensions)
        if tensor is None:
            wanted = " or ".join(f"{self.prefix}{name}" for name in names)
            raise ValueError(f"a {self.format!r} checkpoint has {wanted}, but no tensor has that name")
        return tensor

    def optional(
        self, *names: str, dtypes: tuple[torch.dtype, ...] | None = None, dimensions: int | None = None
    ) -> torch.Tensor | None:
        name = next((name for name in names if name in self.tensors), None)
        if name is None:
            return None
        tensor = self.tensors[name]
        if dtypes is not None and tensor.dtype not in dtypes:
            wanted = " or ".join(map(str, dtypes))
            raise TypeError(f"{self.prefix}{name} must be {wanted}, got {tensor.dtype}")
        if dimensions is not None and tensor.dim() != dimensions:
            raise ValueError(
                f"{self.prefix}{name} must have {dimensions} dimensions of a matrix, got {[*tensor.shape]}"
            )
        return tensor


@dataclass(frozen=True)
class Form:
    """One format."""

    read: Callable[[Named, Mapping[str, Any]], Read]
    weights: Mapping[str, int]  # names of the tensor of codes, and the dimensions that it has of one matrix
    others: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.weights, *self.others)


def _compressed_tensors(tensors: Named, config: Mapping[str, Any]) -> Read:
    arguments = _weight_arguments(config)
    packed = tensors.optional("weight_packed", dtypes=(torch.int32,), dimensions=2)
    bits = arguments.get("num_bits", 8 if packed is None else 4)
    if bits not in (4, 8):
        raise NotImplementedError(f"weights of {bits} bits are not served yet")
    if packed is None:
        values = tensors.get("weight", dtypes=(torch.int8,), dimensions=2)
        n, k = values.shape
        read = _rows(values)
    else:
        shape = tensors.optional("weight_shape")
        n, k = (packed.shape[0], packed.shape[1] * 32 // bits) if shape is None else map(int, shape)
        read = _biased_rows(packed, k, bits)
    scales = tensors.get("weight_scale")
    if scales.numel() == 1:
        scales = scales.reshape(1, 1).expand(n, 1)
    group_size = _group_size(k, scales.shape[-1] if scales.dim() == 2 else 1, arguments.get("group_size"))
    zeros = tensors.optional("weight_zero_point")
    if zeros is not None and zeros.dtype == torch.int32:
        zeros = _unpacked(zeros.T, bits).T[:n].to(torch.int32) - (1 << bits - 1)
    elif zeros is not None and zeros.numel() == 1:
        zeros = zeros.reshape(1, 1).expand(n, 1)
    read, permutation = _in_order_of_groups(read, tensors.optional("weight_g_idx", dimensions=1), k, group_size)
    return Read(Matrix(n, k, read, scales, zeros, permutation), f"int{bits}", group_size)


def _gptq(tensors: Named, config: Mapping[str, Any]) -> Read:
    _require_bits(config)
    words = tensors.get("qweight", dtypes=(torch.int32,), dimensions=2)
    stored_zeros = tensors.get("qzeros", dtypes=(torch.int32,), dimensions=2)
    scales = tensors.get("scales", dimensions=2)
    k, n = words.shape[0] * _CODES_PER_WORD, words.shape[1]
    version = config.get("checkpoint_format", "gptq")
    if version not in ("gptq", "gptq_v2"):
        raise ValueError(f"config's checkpoint_format must be 'gptq' or 'gptq_v2', got {version!r}")
    zeros = _unpack_codes(stored_zeros)
    if version == "gptq":
        zeros = (zeros + 1) & 15
    group_size = _group_size(k, scales.shape[0], config.get("group_size"))
    g_idx = tensors.optional("g_idx", dimensions=1)
    read, permutation = _in_order_of_groups(
        lambda first, last: _unpack_codes(words[:, first:last].T), g_idx, k, group_size
    )
    return Read(Matrix(n, k, read, scales.T, zeros.T, permutation), "uint4", group_size)


def _awq(tensors: Named, config: Mapping[str, Any]) -> Read:
    _require_bits(config)
    if config.get("version", "gemm").lower() != "gemm":
        raise NotImplementedError(f"'awq' checkpoints of version {config['version']!r} are not served, only 'gemm'")
    words = tensors.get("qweight", dtypes=(torch.int32,), dimensions=2)
    stored_zeros = tensors.get("qzeros", dtypes=(torch.int32,), dimensions=2)
    scales = tensors.get("scales", dimensions=2)
    k, n = words.shape[0], words.shape[1] * _CODES_PER_WORD

    def read(first: int, last: int) -> torch.Tensor:
        return _awq_columns(words[:, first // _CODES_PER_WORD : last // _CODES_PER_WORD]).T

    group_size = _group_size(k, scales.shape[0], config.get("group_size"))
    return Read(Matrix(n, k, read, scales.T, _awq_columns(stored_zeros).T), "uint4", group_size)


def _w4afp8(tensors: Named, config: Mapping[str, Any]) -> Read:
    pairs = tensors.get("weight", dtypes=_PAIRS, dimensions=2)
    scales = tensors.get("weight_scale_inv", "weight_scale", dimensions=2)
    n, k = pairs.shape[0], 2 * pairs.shape[1]
    group_size = _group_size(k, scales.shape[1], config.get("group_size"))
    matrix = Matrix(n, k, lambda first, last: unpack_int4(pairs[first:last]), scales, read_pairs=_rows(pairs))
    return Read(matrix, "int4", group_size)


def _mxfp4(tensors: Named, config: Mapping[str, Any]) -> Read:
    pairs = tensors.get("blocks", "weight_packed", "weight", dtypes=_PAIRS).flatten(1)
    scales = tensors.get("scales", "weight_scale", dimensions=2)
    return Read(_e2m1(pairs, scales), "e2m1", _group_size(2 * pairs.shape[1], scales.shape[1], _MXFP4_GROUP))


def _nvfp4(tensors: Named, config: Mapping[str, Any]) -> Read:
    pairs = tensors.get("weight_packed", "weight", dtypes=_PAIRS, dimensions=2)
    scales = tensors.get("weight_scale", dtypes=(torch.float8_e4m3fn,), dimensions=2)
    divisor = tensors.optional("weight_global_scale")  # of compressed-tensors; others have a factor
    second = tensors.get("weight_scale_2").float() if divisor is None else divisor.float().reciprocal()
    group_size = _group_size(2 * pairs.shape[1], scales.shape[1], _NVFP4_GROUP)
    return Read(replace(_e2m1(pairs, scales), second_scales=second), "e2m1", group_size)


def _fp8_block(tensors: Named, config: Mapping[str, Any]) -> Read:
    values = tensors.get("weight", dtypes=(torch.float8_e4m3fn,), dimensions=2)
    blocks = tensors.get("weight_scale_inv", "weight_scale", dimensions=2)
    rows, columns = config.get("weight_block_size", _FP8_BLOCK)
    n, k = values.shape
    if tuple(blocks.shape) != (ceil_div(n, rows), ceil_div(k, columns)):
        raise ValueError(
            f"scales of {[n, k]} in blocks of {[rows, columns]} must have the shape "
            f"{[ceil_div(n, rows), ceil_div(k, columns)]}, got {[*blocks.shape]}"
        )
    return Read(Matrix(n, k, _rows(values), blocks.repeat_interleave(rows, 0)[:n]), "e4m3", columns)


def _qoq(tensors: Named, config: Mapping[str, Any]) -> Read:
    pairs = tensors.get("qweight", dtypes=_PAIRS, dimensions=2)
    n, k = pairs.shape[0], 2 * pairs.shape[1]
    if n % _QOQ_ROWS != 0 or k % _QOQ_K != 0:
        raise ValueError(f"'qoq' weights lie in blocks of {_QOQ_ROWS} x {_QOQ_K}, got {[n, k]}")
    read = _qoq_rows(pairs)
    second = tensors.get("s1_scales", dimensions=1)
    factors = tensors.optional("s2_scales", dtypes=(torch.int8,), dimensions=2)
    if factors is None:
        zeros = _qoq_zeros(tensors.get("s1_szeros", dimensions=1), second)
        return Read(Matrix(n, k, read, second, zeros), "uint4", _group_size(k, 1, config.get("group_size")))
    negative = tensors.get("s2_zeros", dtypes=(torch.int8,), dimensions=2)
    group_size = _group_size(k, factors.shape[0], config.get("group_size"))
    matrix = Matrix(
        n,
        k,
        read,
        _qoq_groups(factors, n),
        second_scales=second,
        scaled_zeros=-_qoq_groups(negative, n).to(torch.int32),
    )
    return Read(matrix, "uint4", group_size)


FORMS = {
    "compressed-tensors": Form(
        _compressed_tensors,
        {"weight_packed": 2, "weight": 2},
        ("weight_scale", "weight_shape", "weight_zero_point", "weight_g_idx"),
    ),
    "gptq": Form(_gptq, {"qweight": 2}, ("qzeros", "scales", "g_idx")),
    "awq": Form(_awq, {"qweight": 2}, ("qzeros", "scales")),
    "w4afp8": Form(_w4afp8, {"weight": 2}, ("weight_scale_inv", "weight_scale")),
    "mxfp4": Form(_mxfp4, {"blocks": 3, "weight_packed": 2, "weight": 2}, ("scales", "weight_scale")),
    "nvfp4": Form(_nvfp4, {"weight_packed": 2, "weight": 2}, ("weight_scale", "weight_scale_2", "weight_global_scale")),
    "fp8-block": Form(_fp8_block, {"weight": 2}, ("weight_scale_inv", "weight_scale")),
    "qoq": Form(_qoq, {"qweight": 2}, ("s1_scales", "s1_szeros", "s2_scales", "s2_zeros")),
}


def _rows(values: torch.Tensor) -> Callable[[int, int], torch.Tensor]:
    return lambda first, last: values[first:last]


def _biased_rows(words: torch.Tensor, k: int, bits: int) -> Callable[[int, int], torch.Tensor]:
    """Signed codes of which words hold the sum with half their range, the lowest K in the low bits."""
    return lambda first, last: (_unpacked(words[first:last], bits)[:, :k] - (1 << bits - 1)).to(torch.int8)


def _unpacked(words: torch.Tensor, bits: int) -> torch.Tensor:
    """int32 `[..., words]` -> uint8 codes of 4 or 8 bits, those in the low bits first."""
    return _unpack_codes(words) if bits == 4 else words.contiguous().view(torch.uint8)


def _awq_columns(words: torch.Tensor) -> torch.Tensor:
    """int32 `[rows, N / 8]` -> uint8 `[rows, N]`."""
    nibbles = _unpack_codes(words).view(words.shape[0], -1, _CODES_PER_WORD)
    return nibbles[:, :, _AWQ_NIBBLES].flatten(1)


def _qoq_rows(pairs: torch.Tensor) -> Callable[[int, int], torch.Tensor]:
    """Of blocks of 32 rows by 32 of K, each of them 512 bytes in a row: a byte holds a code of a row in its low nibble,
    and of the row 16 further on in its high one."""

    def read(first: int, last: int) -> torch.Tensor:
        begin, end = first // _QOQ_ROWS, ceil_div(last, _QOQ_ROWS)
        # block, K block, row of 8, four quads of K, 16 of K, 8 rows, K of a quad
        blocks = pairs[begin * _QOQ_ROWS : end * _QOQ_ROWS].contiguous().view(torch.uint8)
        parts = blocks.view(end - begin, -1, 8, 4, 2, 2, 4)
        halves = torch.stack((parts & 15, parts >> 4))
        rows = halves.permute(1, 0, 6, 3, 2, 5, 4, 7).reshape((end - begin) * _QOQ_ROWS, -1)
        return rows[first - begin * _QOQ_ROWS : last - begin * _QOQ_ROWS]

    return read


def _qoq_groups(stored: torch.Tensor, n: int) -> torch.Tensor:
    """`[groups, N]`, of each 32 rows in the order 0 8 16 24 1 9 ... -> `[N, groups]`."""
    if stored.shape[1] != n:
        raise ValueError(f"scales and zeros of groups must be [groups, N={n}], got {[*stored.shape]}")
    return stored.reshape(stored.shape[0], -1, 8, 4).permute(1, 3, 2, 0).reshape(n, -1)


def _qoq_zeros(scaled: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Zero points of channels, which are stored times their scales."""
    zeros = torch.where(scales == 0, 0, scaled.float() / scales.float()).round()
    if not torch.equal((zeros * scales.float()).to(scaled.dtype), scaled):
        raise ValueError("s1_szeros must be integers times s1_scales, but are not: such weights have no zero points")
    return zeros.to(torch.int32)


def _e2m1(pairs: torch.Tensor, scales: torch.Tensor) -> Matrix:
    n, k = pairs.shape[0], 2 * pairs.shape[1]
    return Matrix(n, k, lambda first, last: _unpack_codes(pairs[first:last]), scales, read_pairs=_rows(pairs))


def _in_order_of_groups(
    read: Callable[[int, int], torch.Tensor], g_idx: torch.Tensor | None, k: int, group_size: int | None
) -> tuple[Callable[[int, int], torch.Tensor], torch.Tensor | None]:
    """A reader of K in the order of its groups, and the place of each K before that (None: it is the same)."""
    if g_idx is None or group_size is None:
        return read, None
    groups = torch.arange(k, device=g_idx.device) // group_size
    if g_idx.shape == groups.shape and torch.equal(g_idx, groups.to(g_idx.dtype)):
        return read, None
    permutation = torch.argsort(g_idx, stable=True)
    if g_idx.shape != groups.shape or not torch.equal(g_idx[permutation], groups.to(g_idx.dtype)):
        raise ValueError(f"g_idx must give each of {k // group_size} groups {group_size} of K={k}, but does not")
    return lambda first, last: read(first, last)[:, permutation], permutation


def _group_size(k: int, groups: int, wanted: Any) -> int | None:
    """The K of a group (None: all of it), which must be what the config says, if it does."""
    if groups == 0 or k % groups != 0:
        raise ValueError(f"K must be a multiple of the {groups} groups that have scales, got {k}")
    given = None if wanted in (None, -1) else int(wanted)
    if given is not None and given != k // groups:
        raise ValueError(f"scales are those of groups of {k // groups}, but the group size is said to be {given}")
    return None if groups == 1 and given is None else k // groups


def _require_bits(config: Mapping[str, Any]) -> None:
    bits = config.get("bits", 4)
    if bits != 4:
        raise NotImplementedError(f"weights of {bits} bits are not served yet")


def _weight_arguments(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a config says of weights: its only config group, or it is that already."""
    groups = config.get("config_groups")
    if groups is None:
        found: Mapping[str, Any] = config.get("weights", config)
        return found
    arguments: list[Mapping[str, Any]] = [group["weights"] for group in groups.values()]
    if any(other != arguments[0] for other in arguments):
        raise ValueError(
            f"config has {len(arguments)} config groups with different weights: pass the 'weights' of this layer's"
        )
    return arguments[0]
