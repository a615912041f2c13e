"""`StoredWeights`: weights that stay as they are, packed or in FP8 blocks, as buffers of a module."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .. import quantize
from .._gemm import Masked, takes_epilogue
from .._targets import BLACKWELL_TARGETS
from ..weights import PackedWeights
from .numbers import Grouping, Scaled, fp8_rows, in_halves, target_of

_BLOCKS = {"form": "fp8 blocks", "tensors": ["data", "block_scales"]}
_METADATA = "metadata"


class StoredWeights(torch.nn.Module):
    """PackedWeights, or E4M3 `[.., N, K]` with FP32 scales of 128 x 128 blocks: buffers that no `.to(dtype)` casts.

    A state dict has their tensors and, as uint8, what they say: safetensors and `torch.load(weights_only=True)` take
    it. Loading one replaces the weights, whatever they were; where they have equal forms, in the same memory.
    """

    def __init__(self, weights: PackedWeights | Scaled) -> None:
        super().__init__()
        self._metadata: dict[str, Any] = {}
        self._packed: PackedWeights | None = None
        self._set(weights)

    @property
    def weights(self) -> PackedWeights | Scaled:
        """As products take them. (With `input_permutation`, if they have one.)"""
        if self._packed is not None:
            return self._packed
        data, scales = self._tensors()
        return data.view(torch.float8_e4m3fn), scales

    @property
    def shape(self) -> tuple[int, ...]:
        return self._packed.shape if self._packed is not None else tuple(self._tensors()[0].shape)

    @property
    def activations(self) -> str:
        return "fp8" if self._packed is None else self._packed.activations

    def operand(self) -> PackedWeights | Scaled:
        """What products multiply, of tokens as `tokens` makes them."""
        packed = self._packed
        if packed is None or packed.input_permutation is None:
            return self.weights
        return packed.for_permuted_inputs()

    def tokens(self, x: torch.Tensor, grouping: Grouping = None) -> Any:
        """x as these weights want it: permuted, quantised."""
        packed = self._packed
        x = x.contiguous()
        if packed is not None and packed.input_permutation is not None:
            indices = getattr(grouping, "layout", None) if packed.is_stack else None
            x = packed.permute_inputs(x, indices)
        if self.activations == "bf16":
            return in_halves(x)
        if self.activations == "int8":
            return quantize.int8(x, grouping=grouping)
        if self.activations == "int4":
            return _int4_rows(x)
        if packed is None:
            return fp8_rows(x, grouping)
        return quantize.fp8(
            x, scales="ue8m0" if target_of(x.device) in BLACKWELL_TARGETS else "fp32", grouping=grouping
        )

    def _tensors(self) -> list[torch.Tensor]:
        """Of the weights, in the order of their metadata."""
        buffers: dict[str, Any] = dict(self._buffers)
        return [buffers[name] for name in self._metadata["tensors"]]

    def _set(self, weights: PackedWeights | Scaled) -> None:
        before = self._metadata.get("tensors", ())
        if isinstance(weights, PackedWeights):
            tensors, self._metadata = weights.tensors()
            self._packed = weights
        else:
            data, scales = _checked_blocks(*weights)
            # As bytes: pickle takes no 8-bit floating types.
            tensors, self._metadata, self._packed = (data.view(torch.uint8), scales), _BLOCKS, None
        for name in before:
            del self._buffers[name]
        for name, tensor in zip(self._metadata["tensors"], tensors, strict=True):
            self.register_buffer(name, tensor)
        self.takes_row_scale = self._takes_row_scale()

    def _takes_row_scale(self) -> bool:
        """Whether products of experts can multiply each row of their results."""
        data = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}.get(self.activations, torch.int8)
        token = torch.empty((0, 0), dtype=data)
        given = self._packed if self._packed is not None else (token, token)
        return len(self.shape) == 3 and takes_epilogue(token, given, Masked(token, 1))

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> StoredWeights:
        """Moves, and never casts: scales of another dtype would be those of no kernel."""
        super()._apply(_only_moves(fn), recurse)  # type: ignore[no-untyped-call]
        if self._packed is not None:
            self._packed = PackedWeights.from_tensors(self._tensors(), self._metadata)
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        text = json.dumps(self._metadata).encode()
        destination[f"{prefix}{_METADATA}"] = torch.tensor([*text], dtype=torch.uint8)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        known = f"{prefix}{_METADATA}"
        if known not in state_dict:
            missing_keys.append(known)
            return
        metadata = json.loads(bytes(state_dict[known].tolist()))
        names = metadata["tensors"]
        if lacking := [f"{prefix}{name}" for name in names if f"{prefix}{name}" not in state_dict]:
            missing_keys.extend(lacking)
            return
        given = [state_dict[f"{prefix}{name}"] for name in names]
        if metadata != _BLOCKS:
            PackedWeights.from_state_dict(state_dict, prefix)  # raises where tensors and metadata contradict
        own = self._tensors()
        if metadata == self._metadata and _forms(own) == _forms(given):
            for mine, tensor in zip(own, given, strict=True):
                mine.copy_(tensor)
        else:
            device = own[0].device
            tensors = [tensor.to(device) for tensor in given]
            blocks = metadata == _BLOCKS
            self._set(
                (tensors[0].view(torch.float8_e4m3fn), tensors[1])
                if blocks
                else PackedWeights.from_tensors(tensors, metadata)
            )
        # What remains beside the weights: a bias.
        rest = {
            key: value
            for key, value in state_dict.items()
            if not (key.startswith(prefix) and key[len(prefix) :] in (*names, _METADATA))
        }
        self._load_rest(rest, prefix, missing_keys, unexpected_keys, error_msgs, strict)

    def _load_rest(
        self,
        state: Mapping[str, Any],
        prefix: str,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
        strict: bool,
    ) -> None:
        for name, tensor in self._buffers.items():
            if name not in self._metadata["tensors"] and tensor is not None:
                if f"{prefix}{name}" not in state:
                    missing_keys.append(f"{prefix}{name}")
                elif state[f"{prefix}{name}"].shape != tensor.shape:
                    error_msgs.append(f"{prefix}{name} must be {[*tensor.shape]}, got {[*state[prefix + name].shape]}")
                else:
                    tensor.copy_(state[f"{prefix}{name}"])
        if strict:
            own = {f"{prefix}{name}" for name in self._buffers}
            unexpected_keys.extend(
                key for key in state if key.startswith(prefix) and "." not in key[len(prefix) :] and key not in own
            )


def _forms(tensors: list[torch.Tensor]) -> list[tuple[torch.Size, torch.dtype]]:
    return [(tensor.shape, tensor.dtype) for tensor in tensors]


def _int4_rows(x: torch.Tensor) -> Scaled:
    """Two a byte, with a scale for each row. No host read: rows that do not exist may hold anything."""
    scales = x.float().abs().amax(-1).clamp(min=1e-4) / 7
    values = (x.float() / scales.unsqueeze(-1)).round().clamp(-7, 7).to(torch.int8)
    return (values[..., 0::2] & 15) | (values[..., 1::2] << 4), scales


def _only_moves(fn: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def move(tensor: torch.Tensor) -> torch.Tensor:
        moved = fn(tensor)
        return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

    return move


def _checked_blocks(data: torch.Tensor, scales: torch.Tensor) -> Scaled:
    wanted = (*data.shape[:-2], -(-data.shape[-2] // 128), -(-data.shape[-1] // 128))
    if data.dtype != torch.float8_e4m3fn or scales.dtype != torch.float32 or tuple(scales.shape) != wanted:
        raise ValueError(
            f"weights must be PackedWeights, or float8_e4m3fn with float32 scales {[*wanted]} of 128 x 128 blocks, got "
            f"{data.dtype} {[*data.shape]} and {scales.dtype} {[*scales.shape]}"
        )
    return data, scales
