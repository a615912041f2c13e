"""`convert`: a model's linear layers and experts in the place of torch's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from .checkpoint import Checkpoint
from .experts import GroupedExperts
from .fp8_linear import FP8Linear
from .master import FEATURES_STEP
from .quant_linear import QuantLinear
from .recognise import gate_of, why_no_linear

_KEYS = {"linear", "experts", "element", "activations", "group_size", "skip"}
_UNSCALED = ("weight", "bias")


@dataclass
class Report:
    """What `convert` did, by the names of modules."""

    replaced: dict[str, str] = field(default_factory=dict)  # and by what
    left: dict[str, str] = field(default_factory=dict)  # and why

    def __str__(self) -> str:
        lines = [f"{name}: {what}" for name, what in self.replaced.items()]
        return "\n".join([*lines, *(f"{name}: left, {why}" for name, why in self.left.items())])


def convert(
    model: torch.nn.Module,
    checkpoint: str | Path | Mapping[str, torch.Tensor] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Report:
    """Replace `torch.nn.Linear` layers, and experts whose weights are stacks, in `model`, and say what was done.

    Experts are modules with parameters `gate_up_proj` `[G, 2 * inner, hidden]` and `down_proj` `[G, hidden, inner]`
    called with tokens, ids and weights, as those of transformers 5. What lies between their products (SwiGLU, GeGLU, a
    limit) is found by calling them with small tensors; those that compute something else are left, as are linear layers
    with hooks or a forward of their own.

    Args:
        model: changed in place.
        checkpoint: None: layers are made of the parameters that the model has. Or a directory of safetensors files (or
            a mapping): layers that it has quantised are read from it, one after the other, and no others are replaced.
            They are named as the model's modules.
        config: 'linear' and 'experts': whether these are replaced (True). Without a checkpoint 'element', 'activations'
            and 'group_size' as `QuantLinear.from_linear` has them; without 'element' layers are `FP8Linear` and train.
            With one, 'activations' (as `QuantLinear.from_checkpoint`). 'skip': patterns of names that are left.
    """
    options = dict(config or {})
    if unknown := sorted(set(options) - _KEYS):
        raise ValueError(f"config must have only {', '.join(sorted(_KEYS))}, got {', '.join(unknown)}")
    source = None if checkpoint is None else Checkpoint(checkpoint)
    if source is not None and source.quantization is None:
        raise ValueError("checkpoint must have a config.json with a quantization_config, got none")
    report = Report()
    for name, module in list(model.named_modules()):
        kind = "linear" if isinstance(module, torch.nn.Linear) else "experts" if _are_experts(module) else None
        if kind is None or isinstance(module, GroupedExperts):
            continue
        why = _why_left(name, module, kind, options, source)
        if why is not None or not name:
            report.left[name] = why or "it is the model itself"
            continue
        made = _made(name, module, kind, options, source)
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, made.train(module.training))
        report.replaced[name] = type(made).__name__
    return report


def _are_experts(module: torch.nn.Module) -> bool:
    parts = getattr(module, "gate_up_proj", None), getattr(module, "down_proj", None)
    return all(isinstance(part, torch.nn.Parameter) and part.dim() == 3 for part in parts)


def _why_left(
    name: str, module: torch.nn.Module, kind: str, options: Mapping[str, Any], source: Checkpoint | None
) -> str | None:
    if not options.get(kind, True):
        return f"config says {kind}=False"
    if any(fnmatchcase(name, pattern) for pattern in options.get("skip", ())):
        return "config's skip names it"
    if why := _why_experts_are_left(module) if kind == "experts" else why_no_linear(module):
        return why
    if source is not None:
        tensors = {key[len(name) + 1 :] for key in source.below(f"{name}.")}
        if not tensors or (kind == "linear" and tensors <= set(_UNSCALED)):
            return "the checkpoint has not quantised it" if tensors else "the checkpoint has no such layer"
        return None
    sizes = module.weight.shape if isinstance(module, torch.nn.Linear) else module.get_parameter("down_proj").shape[1:]
    if options.get("element") is None and any(size % FEATURES_STEP for size in sizes):
        return f"features must be multiples of {FEATURES_STEP}, got {[*sizes]}"
    return None


def _why_experts_are_left(module: torch.nn.Module) -> str | None:
    gate_up, down = module.get_parameter("gate_up_proj"), module.get_parameter("down_proj")
    experts, hidden, inner = down.shape
    if tuple(gate_up.shape) != (experts, 2 * inner, hidden):
        return f"gate_up_proj must be {[experts, 2 * inner, hidden]} beside down_proj, got {[*gate_up.shape]}"
    if any(name not in ("gate_up_proj", "down_proj") for name, _ in module.named_parameters()):
        return "it has other parameters, such as biases"
    return gate if isinstance(gate := gate_of(module), str) else None


def _made(name: str, module: Any, kind: str, options: Mapping[str, Any], source: Checkpoint | None) -> torch.nn.Module:
    how = {key: options[key] for key in ("element", "activations", "group_size") if key in options}
    if kind == "linear":
        if source is not None:
            device = module.weight.device
            return QuantLinear.from_checkpoint(source, name, activations=options.get("activations"), device=device)
        return QuantLinear.from_linear(module, **how) if "element" in how else FP8Linear.from_linear(module)
    gate: Any = gate_of(module)  # one, by _why_left
    if source is not None:
        place = {"activations": options.get("activations"), "device": module.down_proj.device}
        return GroupedExperts.from_checkpoint(source, name, gate=gate, **place)
    experts, hidden, inner = module.down_proj.shape
    made = GroupedExperts(experts, hidden, inner, gate=gate, device="meta", dtype=module.down_proj.dtype)
    made.gate_up.weight, made.down.weight = module.gate_up_proj, module.down_proj
    return made.quantized(**how) if "element" in how else made
