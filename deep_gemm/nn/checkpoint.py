"""Tensors of a checkpoint by their names: a directory of safetensors files, one such file, or a mapping."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

_INDEX = "model.safetensors.index.json"
# What a config calls a way of quantising, and the format of `weights_from_checkpoint` that reads it.
_FORMATS = {
    "gptq": "gptq",
    "awq": "awq",
    "compressed-tensors": "compressed-tensors",
    "mxfp4": "mxfp4",
    "fp8": "fp8-block",
    "deepseek_fp8": "fp8-block",
    "w4afp8": "w4afp8",
    "qoq": "qoq",
    "nvfp4": "nvfp4",
    "modelopt": "nvfp4",
    "modelopt_fp4": "nvfp4",
}


class Checkpoint:
    """Reads a tensor when it is asked for, and no other."""

    def __init__(self, source: str | Path | Mapping[str, torch.Tensor]) -> None:
        self.files: dict[str, Path] = {}
        self.tensors: Mapping[str, torch.Tensor] = {}
        self.config: dict[str, Any] = {}
        if isinstance(source, Mapping):
            self.tensors = source
            return
        path = Path(source)
        if not path.exists():
            raise FileNotFoundError(f"checkpoint must be a directory or a safetensors file, got {path}")
        if path.is_dir():
            self.config = _config_of(path)
        self.files = _files_of(path)

    @property
    def names(self) -> Iterable[str]:
        return self.files or self.tensors

    def __contains__(self, name: str) -> bool:
        return name in self.files or name in self.tensors

    def read(self, names: Iterable[str]) -> dict[str, torch.Tensor]:
        """Tensors, shard by shard."""
        wanted = list(names)
        if not self.files:
            return {name: self.tensors[name] for name in wanted}
        shards: dict[Path, list[str]] = {}
        for name in wanted:
            shards.setdefault(self.files[name], []).append(name)
        found = {}
        for file, of_file in shards.items():
            with _open(file) as shard:
                found.update({name: shard.get_tensor(name) for name in of_file})
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        """Without reading the tensor."""
        if not self.files:
            return tuple(self.tensors[name].shape)
        with _open(self.files[name]) as shard:
            return tuple(shard.get_slice(name).get_shape())

    def part(self, name: str, cuts: Mapping[int, tuple[int, int]]) -> torch.Tensor:
        """A part of a tensor, from and to (exclusive) by its dimensions: no more of its file is read."""
        if not self.files:
            tensor = self.tensors[name]
            return tensor[_index(tensor.dim(), cuts)].contiguous()
        with _open(self.files[name]) as shard:
            found = shard.get_slice(name)
            part: torch.Tensor = found[_index(len(found.get_shape()), cuts)] if cuts else shard.get_tensor(name)
            return part

    def below(self, prefix: str) -> list[str]:
        """Names that begin so."""
        return [name for name in self.names if name.startswith(prefix)]

    def parts_of(self, name: str) -> list[str]:
        """What names of a layer's tensors have behind the layer's."""
        prefix = f"{name}." if name else ""
        found = [part for full in self.below(prefix) if "." not in (part := full[len(prefix) :])]
        if not found:
            raise ValueError(f"checkpoint must have tensors of the layer {name!r}, got none")
        return found

    def layer(self, name: str) -> dict[str, torch.Tensor]:
        """The tensors of a layer, by what their names have behind the layer's."""
        prefix, parts = f"{name}." if name else "", self.parts_of(name)
        tensors = self.read(f"{prefix}{part}" for part in parts)
        return {part: tensors[f"{prefix}{part}"] for part in parts}

    @property
    def quantization(self) -> dict[str, Any] | None:
        """Its quantization_config."""
        found = self.config.get("quantization_config") or self.config.get("compression_config")
        return dict(found) if isinstance(found, Mapping) else None

    def keys_of(self, name: str, config: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """By which a layer is read: those that are given, or its own."""
        keys = self.quantization if config is None else config
        if keys is None:
            raise ValueError(f"config must be the checkpoint's quantization_config, which it lacks, to read {name!r}")
        return keys


def _index(dimensions: int, cuts: Mapping[int, tuple[int, int]]) -> tuple[slice, ...]:
    return tuple(slice(*cuts.get(dimension, (None, None))) for dimension in range(dimensions))


def format_of(config: Mapping[str, Any]) -> str:
    """The name by which `weights_from_checkpoint` knows what a quantization_config says."""
    method = str(config.get("quant_method") or config.get("quant_algo") or "").lower()
    if str(config.get("quant_algo", "")).lower() == "nvfp4" or config.get("format") == "nvfp4-pack-quantized":
        return "nvfp4"
    if method not in _FORMATS:
        raise NotImplementedError(f"quant_method must be one of {', '.join(_FORMATS)}, got {method!r}")
    return _FORMATS[method]


def _config_of(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    config = json.loads(file.read_text()) if file.exists() else {}
    if not isinstance(config, dict):
        raise ValueError(f"{file} must hold an object, got {type(config).__name__}")
    inner = config.get("text_config")
    return {**inner, **config} if isinstance(inner, dict) else config


def _files_of(path: Path) -> dict[str, Path]:
    if path.is_file():
        return _names_in(path)
    index = path / _INDEX
    if index.exists():
        return {name: path / file for name, file in json.loads(index.read_text())["weight_map"].items()}
    found: dict[str, Path] = {}
    for file in sorted(path.glob("*.safetensors")):
        found.update(_names_in(file))
    if not found:
        raise FileNotFoundError(f"checkpoint must have safetensors files, got none in {path}")
    return found


def _names_in(file: Path) -> dict[str, Path]:
    with _open(file) as shard:
        return dict.fromkeys(shard.keys(), file)


def _open(file: Path) -> Any:
    try:
        safetensors = import_module("safetensors")
    except ImportError as error:
        raise ImportError("checkpoints are read by the safetensors package: pip install safetensors") from error
    return safetensors.safe_open(file, framework="pt")
