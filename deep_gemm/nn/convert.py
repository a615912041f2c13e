"""`convert`: a model's linear layers, MLPs and experts in the place of torch's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from .._progress import progress as show_progress
from .checkpoint import Checkpoint
from .cuts import tensor_parallel_of
from .experts import GroupedExperts
from .makers import Makers, stored_name
from .master import FEATURES_STEP
from .recognise import BIASES, WEIGHTS, gate_of, mlp_of, stacks_of, why_no_linear

_KEYS = {"linear", "experts", "mlps", "element", "activations", "group_size", "skip", "rename", "group"}
_PARALLEL = {"tensor_parallel", "plan"}
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
    """Replace `torch.nn.Linear` layers, MLPs, and experts whose weights are stacks, in `model`, and say what was done.

    Experts are modules with parameters `gate_up_proj` `[G, 2 * inner, hidden]` and `down_proj` `[G, hidden, inner]`, or
    both transposed, called with tokens, ids and weights, as those of transformers 5. With `gate_up_proj_bias` `[G, 2 *
    inner]` and `down_proj_bias` `[G, hidden]` they become ones with packed weights. What lies between their products
    (a gated activation, its limit) is found by calling them with small tensors; those that compute something else are
    left, as are linear layers with hooks or a forward of their own. Modules of three linear layers that are found to
    compute `down(gate(gates(x)) * ups(x))` become one `GatedMLP`, unless they are to train.

    Args:
        model: changed in place.
        checkpoint: None: layers are made of the parameters that the model has. Or a directory of safetensors files (or
            a mapping): layers that it has quantised are read from it, one after the other, and no others are replaced.
            They are named as the model's modules, except for what 'rename' says.
        config: 'linear', 'mlps' and 'experts': whether these are replaced (True). Without a checkpoint 'element',
            'activations' and 'group_size' as `QuantLinear.from_linear` has them; without 'element' layers are
            `FP8Linear` and train. With one, 'activations' (as `QuantLinear.from_checkpoint`), and 'rename': parts of
            modules' names, and what the checkpoint has in their place. 'skip': patterns of names that are left.
            'group': a process group over which experts are spread, as `GroupedExperts` has it (not for ones that
            train). 'tensor_parallel', a process group or (rank, size), with 'plan', from patterns of linear layers'
            names to 'columns' or 'rows' (also 'colwise', 'rowwise'), and of experts' to 'experts' (of each expert gates
            and ups along N, and down along K): each process has its part of N or of K, read by slices. Layers cut along
            K, and experts, add up their results over the group; with (rank, size) they stay parts of a sum.
        progress: show a bar, where stderr is a terminal.
    """
    options = dict(config or {})
    if unknown := sorted(set(options) - _KEYS - _PARALLEL):
        raise ValueError(f"config must have only {', '.join(sorted(_KEYS | _PARALLEL))}, got {', '.join(unknown)}")
    source = None if checkpoint is None else Checkpoint(checkpoint)
    if source is not None and source.quantization is None:
        raise ValueError("checkpoint must have a config.json with a quantization_config, got none")
    parallel = tensor_parallel_of(options.get("tensor_parallel"), options.get("plan"))
    if parallel is not None and source is None and options.get("element") is None:
        raise ValueError("config's tensor_parallel is for inference only: give 'element' or a checkpoint")
    makers = Makers(options, source, parallel)
    report, done = Report(), set[str]()
    modules = list(model.named_modules())
    for name, module in show_progress(modules, "converting", "modules", len(modules), progress):
        if name.rpartition(".")[0] in done:  # a linear layer of an MLP that is one layer now
            continue
        make: Make | str | None = _mlp(name, module, options, source, makers)
        if make is None:
            kind = "linear" if isinstance(module, torch.nn.Linear) else "experts" if _are_experts(module) else None
            if kind is None or isinstance(module, GroupedExperts):
                continue
            make = _why_left(name, module, kind, options, source) or _layer(name, module, kind, makers)
        else:
            done.add(name)
        if isinstance(make, str) or not name:
            report.left[name] = make if isinstance(make, str) else "it is the model itself"
            continue
        made = make()
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, made.train(module.training))
        report.replaced[name] = type(made).__name__
    return report


Make = Callable[[], torch.nn.Module]


def _are_experts(module: torch.nn.Module) -> bool:
    parts = getattr(module, "gate_up_proj", None), getattr(module, "down_proj", None)
    return all(isinstance(part, torch.nn.Parameter) and part.dim() == 3 for part in parts)


def _mlp(
    name: str, module: torch.nn.Module, options: Mapping[str, Any], source: Checkpoint | None, makers: Makers
) -> Make | None:
    """None where it is no MLP, or its layers are replaced one by one."""
    if not name or not options.get("mlps", True) or (source is None and options.get("element") is None):
        return None
    if (found := mlp_of(module)) is None:
        return None
    mlp, gate = found
    for part in mlp.names:
        if _why_left(f"{name}.{part}", module.get_submodule(part), "linear", options, source) is not None:
            return None
    try:
        made = makers.mlp(name, module, mlp, gate)
    except (ValueError, NotImplementedError):  # cannot be joined, or is wrong, which its layers say one by one
        return None
    return lambda: made


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
        stored = stored_name(name, options)
        tensors = {key.rpartition(".")[2] for key in source.below(f"{stored}.")}
        if tensors <= _UNSCALED:
            return "the checkpoint has not quantised it" if tensors else "the checkpoint has no such layer"
        return None
    sizes = module.weight.shape if isinstance(module, torch.nn.Linear) else module.get_parameter("down_proj").shape[1:]
    if options.get("element") is None and any(size % FEATURES_STEP for size in sizes):
        return f"features must be multiples of {FEATURES_STEP}, got {[*sizes]}"
    return None


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
    return None


def _layer(name: str, module: Any, kind: str, makers: Makers) -> Make | str:
    if kind == "linear":
        return lambda: makers.linear(name, module)
    gate = gate_of(module)
    return gate if isinstance(gate, str) else lambda: makers.experts(name, module, gate)
