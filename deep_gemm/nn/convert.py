"""`convert`: a model's linear layers and experts in the place of torch's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from .._progress import progress as show_progress
from .checkpoint import Checkpoint
from .experts import GroupedExperts
from .fp8_linear import FP8Linear
from .master import FEATURES_STEP
from .quant_linear import QuantLinear, quantized_weights
from .recognise import BIASES, WEIGHTS, Stacks, gate_of, stacks_of, why_no_linear

_KEYS = {"linear", "experts", "element", "activations", "group_size", "skip", "rename", "group"}
_UNSCALED = {"weight", "bias", *WEIGHTS, *BIASES}  # the last parts of names of tensors that are not quantised


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
    *,
    progress: bool = True,
) -> Report:
    """Replace `torch.nn.Linear` layers, and experts whose weights are stacks, in `model`, and say what was done.

    Experts are modules with parameters `gate_up_proj` `[G, 2 * inner, hidden]` and `down_proj` `[G, hidden, inner]`, or
    both transposed, called with tokens, ids and weights, as those of transformers 5. With `gate_up_proj_bias` `[G, 2 *
    inner]` and `down_proj_bias` `[G, hidden]` they become ones with packed weights. What lies between their products
    (SwiGLU, GeGLU, a limit) is found by calling them with small tensors; those that compute something else are left, as
    are linear layers with hooks or a forward of their own.

    Args:
        model: changed in place.
        checkpoint: None: layers are made of the parameters that the model has. Or a directory of safetensors files (or
            a mapping): layers that it has quantised are read from it, one after the other, and no others are replaced.
            They are named as the model's modules, except for what 'rename' says.
        config: 'linear' and 'experts': whether these are replaced (True). Without a checkpoint 'element', 'activations'
            and 'group_size' as `QuantLinear.from_linear` has them; without 'element' layers are `FP8Linear` and train.
            With one, 'activations' (as `QuantLinear.from_checkpoint`), and 'rename': parts of modules' names, and what
            the checkpoint has in their place. 'skip': patterns of names that are left. 'group': a process group over
            which experts are spread, as `GroupedExperts` has it (not for ones that train).
        progress: show a bar, where stderr is a terminal.
    """
    options = dict(config or {})
    if unknown := sorted(set(options) - _KEYS):
        raise ValueError(f"config must have only {', '.join(sorted(_KEYS))}, got {', '.join(unknown)}")
    source = None if checkpoint is None else Checkpoint(checkpoint)
    if source is not None and source.quantization is None:
        raise ValueError("checkpoint must have a config.json with a quantization_config, got none")
    report = Report()
    modules = list(model.named_modules())
    for name, module in show_progress(modules, "converting", "modules", len(modules), progress):
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
    if why := _why_experts_are_left(module, options, source) if kind == "experts" else why_no_linear(module):
        return why
    if source is not None:
        stored = _stored_name(name, options)
        tensors = {key.rpartition(".")[2] for key in source.below(f"{stored}.")}
        if tensors <= _UNSCALED:
            return "the checkpoint has not quantised it" if tensors else "the checkpoint has no such layer"
        return None
    sizes = module.weight.shape if isinstance(module, torch.nn.Linear) else module.get_parameter("down_proj").shape[1:]
    if options.get("element") is None and any(size % FEATURES_STEP for size in sizes):
        return f"features must be multiples of {FEATURES_STEP}, got {[*sizes]}"
    return None


def _stored_name(name: str, options: Mapping[str, Any]) -> str:
    for part, stored in options.get("rename", {}).items():
        name = name.replace(part, stored)
    return name


def _why_experts_are_left(module: torch.nn.Module, options: Mapping[str, Any], source: Checkpoint | None) -> str | None:
    stacks = stacks_of(module)
    if isinstance(stacks, str):
        return stacks
    if source is None and options.get("element") is None:
        if stacks.biases or stacks.transposed:
            what = "biases" if stacks.biases else "K before N"
            return f"experts that train have no {what}: config's 'element' makes ones for inference"
        if options.get("group") is not None:
            return "config's 'group' spreads experts for inference only: give 'element' or a checkpoint"
    gate = gate_of(module)
    return gate if isinstance(gate, str) else None


def _made(name: str, module: Any, kind: str, options: Mapping[str, Any], source: Checkpoint | None) -> torch.nn.Module:
    how = {key: options[key] for key in ("element", "activations", "group_size") if key in options}
    stored = _stored_name(name, options)
    if kind == "linear":
        if source is not None:
            device = module.weight.device
            return QuantLinear.from_checkpoint(source, stored, activations=options.get("activations"), device=device)
        return QuantLinear.from_linear(module, **how) if "element" in how else FP8Linear.from_linear(module)
    stacks: Any = stacks_of(module)
    gate: Any = gate_of(module)  # one, by _why_left
    if source is not None:
        place = {"activations": options.get("activations"), "device": module.down_proj.device}
        return GroupedExperts.from_checkpoint(source, stored, gate=gate, group=options.get("group"), **place)
    if "element" in how:
        return _quantised_experts(module, stacks, gate, options.get("group"), how)
    experts, hidden, inner = module.down_proj.shape
    made = GroupedExperts(experts, hidden, inner, gate=gate, device="meta", dtype=module.down_proj.dtype)
    made.gate_up.weight, made.down.weight = module.gate_up_proj, module.down_proj
    return made


def _quantised_experts(module: Any, stacks: Stacks, gate: Any, group: Any, how: Mapping[str, Any]) -> GroupedExperts:
    """This process's share of a module's experts."""
    experts = int(module.down_proj.shape[0])
    size, rank = (1, 0) if group is None else (group.size(), group.rank())
    if experts % size:
        raise ValueError(f"the model's experts must be a multiple of {size} processes, got {experts}")
    own = slice(rank * experts // size, (rank + 1) * experts // size)
    options = {"element": "int4", "activations": "bf16", "group_size": 128, **how}
    parts = [stacks.rows_first(getattr(module, name).detach()[own]).contiguous() for name in WEIGHTS]
    packed = [quantized_weights(part, **options) for part in parts]
    biases = [getattr(module, name).detach()[own].clone() if stacks.biases else None for name in BIASES]
    return GroupedExperts.from_weights(*packed, gate=gate, group=group, gate_up_bias=biases[0], down_bias=biases[1])
