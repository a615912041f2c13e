"""What a checkpoint's config says: keys that decide, each of them of a known kind and with a known value."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

ALL_OF_K = -1


class Config:
    """A checkpoint's `quantization_config`, or a part of it. A key that is None is a key that is not there."""

    def __init__(self, keys: Mapping[str, Any] | None) -> None:
        if keys is not None and not isinstance(keys, Mapping):
            raise TypeError(f"config must be a mapping or None, got {type(keys).__name__}")
        self.keys: Mapping[str, Any] = keys or {}

    def get(self, *names: str) -> Any:
        """The value of a key that has several names; where more than one is there, they must agree."""
        found = {name: self.keys[name] for name in names if self.keys.get(name) is not None}
        values = [*found.values()]
        if any(value != values[0] for value in values):
            raise ValueError(f"config's {' and '.join(found)} must agree, got {values}")
        return values[0] if values else None

    def integer(self, *names: str) -> int | None:
        value = self.get(*names)
        if value is None:
            return None
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if not is_integer and not (isinstance(value, str) and re.fullmatch(r"-?\d+", value)):
            raise ValueError(f"config's {names[0]} must be an integer, got {value!r}")
        return int(value)

    def flag(self, name: str) -> bool | None:
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise ValueError(f"config's {name} must be True or False, got {value!r}")
        return value

    def choice(self, name: str, choices: Collection[str]) -> str | None:
        """In lower case."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or value.lower() not in choices:
            raise ValueError(f"config's {name} must be {' or '.join(map(repr, choices))}, got {value!r}")
        return value.lower()

    def group_size(self, *names: str) -> int | None:
        """The K that shares a scale, `ALL_OF_K`, or None where the config does not say."""
        size = self.integer(*names)
        if size is not None and size != ALL_OF_K and size <= 0:
            raise ValueError(f"config's {names[0]} must be positive, or -1 for all of K, got {size}")
        return size

    def require_bits(self, *names: str, served: Collection[int] = (4,)) -> int | None:
        bits = self.integer(*names)
        if bits is not None and bits not in served:
            raise NotImplementedError(f"weights of {bits} bits (config's {names[0]}) are not served yet")
        return bits

    def of_layer(self, prefix: str) -> Config:
        """With what AutoRound's extra_config and GPTQModel's dynamic say of the layer of that name."""
        extra, dynamic = (self._layers(name) for name in ("extra_config", "dynamic"))
        if (extra or dynamic) and not prefix:
            key = "extra_config" if extra else "dynamic"
            raise ValueError(f"config's {key} says other things of some layers: pass the prefix that names this one")
        layer = prefix.rstrip(".")
        changed = dict(extra.get(layer) or {})
        for pattern, keys in dynamic.items():
            if re.match(pattern.removeprefix("+:").removeprefix("-:"), layer):
                if pattern.startswith("-:"):
                    raise ValueError(f"config's dynamic says that {layer} is not quantised ({pattern!r})")
                changed.update(keys or {})
                break
        return Config({**self.keys, **changed}) if changed else self

    def _layers(self, name: str) -> Mapping[str, Any]:
        layers = self.get(name) or {}
        if not isinstance(layers, Mapping) or not all(isinstance(x, Mapping) or not x for x in layers.values()):
            raise ValueError(f"config's {name} must be a mapping from layers to their keys, got {layers!r}")
        return layers

    def of_weights(self) -> Config:
        """What a config of compressed-tensors says of weights: its only config group, or it is that already."""
        groups = self.get("config_groups")
        if groups is None:
            return self if "weights" not in self.keys else Config(_weights("weights", self.keys))
        if not isinstance(groups, Mapping) or not all(isinstance(group, Mapping) for group in groups.values()):
            raise ValueError(f"config's config_groups must be a mapping of mappings, got {groups!r}")
        found = [group["weights"] for group in groups.values() if group.get("weights") is not None]
        if not found:
            raise ValueError("config's config_groups must have one whose weights are quantised, got none")
        if any(other != found[0] for other in found):
            raise ValueError(
                f"config has {len(found)} config groups with different weights: pass the 'weights' of this layer's"
            )
        return Config(_weights("config_groups' weights", {"weights": found[0]}))


def _weights(name: str, keys: Mapping[str, Any]) -> Mapping[str, Any]:
    weights = keys["weights"]
    if not isinstance(weights, Mapping):
        raise ValueError(f"config's {name} must be a mapping, got {weights!r}: these weights are not quantised")
    return weights
