"""What `convert` puts in a module's place: of its parameters, or of a checkpoint; whole, or this process's part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .._gates import Gated
from .checkpoint import Checkpoint
from .cuts import Cut, ExpertCut, TensorParallel, cut_layer
from .experts import GroupedExperts
from .fp8_linear import FP8Linear
from .gated_mlp import GatedMLP
from .gates import packed_for
from .quant_linear import QuantLinear, quantized_weights, stored_weights
from .recognise import BIASES, WEIGHTS, Mlp, stacks_of
from .reduced import ReducedLinear


@dataclass(frozen=True)
class Makers:
    options: Mapping[str, Any]
    source: Checkpoint | None
    parallel: TensorParallel | None

    @property
    def how(self) -> dict[str, Any]:
        """As `quantized_weights` takes it."""
        given = {key: self.options[key] for key in ("element", "activations", "group_size") if key in self.options}
        return {"element": "int4", "activations": "bf16", "group_size": 128, **given}

    @property
    def config(self) -> Mapping[str, Any]:
        """Of the checkpoint."""
        assert self.source is not None
        assert self.source.quantization is not None
        return self.source.quantization

    def linear(self, name: str, module: torch.nn.Linear) -> torch.nn.Module:
        if self.source is None and self.options.get("element") is None:
            return FP8Linear.from_linear(module)
        cut = self.cut_of(name)
        if self.source is None:
            weight, bias = self.own_part(name, module, cut)
            weights = quantized_weights(weight, **self.how)
        else:
            tensors, stored = self.tensors(name, module, cut), stored_name(name, self.options)
            bias = tensors.pop("bias", None)
            weights = stored_weights(tensors, self.config, self.options.get("activations"), stored)
        if cut is None or cut.along == "N":
            return QuantLinear(weights, bias)
        assert self.parallel is not None
        return ReducedLinear(weights, bias, cut.rank, self.parallel.group)

    def mlp(self, name: str, module: torch.nn.Module, mlp: Mlp, gate: Gated) -> GatedMLP:
        names = [f"{name}.{part}" for part in mlp.names]
        layers: list[Any] = [module.get_submodule(part) for part in mlp.names]
        cuts = [self.cut_of(part) for part in names]
        along = [None if cut is None else cut.along for cut in cuts]
        if along not in ([None] * 3, ["N", "N", "K"]):
            raise ValueError(f"{name} must be cut along N, N and K to be one layer, got {along}")
        group = None if self.parallel is None or cuts[2] is None else self.parallel.group
        has_bias = cuts[2] is None or cuts[2].rank == 0
        if self.source is not None:
            parts = [self.tensors(*each) for each in zip(names, layers, cuts, strict=True)]
            if not has_bias:
                parts[2].pop("bias", None)
            stored = stored_name(names[0], self.options), stored_name(names[2], self.options)
            return GatedMLP.from_layers(parts, stored, self.config, self.options.get("activations"), gate, group)
        (gates, gate_bias), (ups, up_bias), (down, down_bias) = (
            self.own_part(*each) for each in zip(names, layers, cuts, strict=True)
        )
        if (gate_bias is None) != (up_bias is None):
            raise ValueError(f"{name} must have biases of gates and ups or of neither to be one layer")
        both = None if gate_bias is None or up_bias is None else torch.cat([gate_bias, up_bias])
        rows = torch.cat([gates, ups])
        first = quantized_weights(rows, **self.how, gate_up=packed_for(gate, rows.shape[0]))
        second = quantized_weights(down, **self.how)
        bias = down_bias if has_bias else None
        return GatedMLP(first, second, gate=gate, gate_up_bias=both, down_bias=bias, group=group)

    def experts(self, name: str, module: Any, gate: Gated) -> GroupedExperts:
        group = self.options.get("group")
        cut = self._experts_cut(name, module)
        if self.source is not None:
            place = {"activations": self.options.get("activations"), "device": module.down_proj.device}
            return GroupedExperts.from_checkpoint(
                self.source, stored_name(name, self.options), gate=gate, group=group, cut=cut, **place
            )
        if self.options.get("element") is not None:
            return self._quantised_experts(name, module, gate, group, cut)
        experts, hidden, inner = module.down_proj.shape
        made = GroupedExperts(experts, hidden, inner, gate=gate, device="meta", dtype=module.down_proj.dtype)
        made.gate_up.weight, made.down.weight = module.gate_up_proj, module.down_proj
        return made

    def _experts_cut(self, name: str, module: Any) -> ExpertCut | None:
        if self.parallel is None:
            return None
        stacks: Any = stacks_of(module)
        _, hidden, inner = stacks.rows_first(module.down_proj).shape
        return self.parallel.experts_cut_of(name, hidden, inner)

    def _quantised_experts(
        self, name: str, module: Any, gate: Gated, group: Any, cut: ExpertCut | None
    ) -> GroupedExperts:
        """This process's share of a module's experts, or its part of each."""
        stacks: Any = stacks_of(module)
        experts = int(module.down_proj.shape[0])
        size, rank = (1, 0) if group is None else (group.size(), group.rank())
        if experts % size:
            raise ValueError(f"the model's experts must be a multiple of {size} processes, got {experts}")
        own = slice(rank * experts // size, (rank + 1) * experts // size)
        parts = [stacks.rows_first(getattr(module, name).detach()[own]).contiguous() for name in WEIGHTS]
        biases = [getattr(module, name).detach()[own].clone() if stacks.biases else None for name in BIASES]
        if cut is not None:
            parts, biases = self._cut_experts(name, cut, gate.layout, parts, biases)
        rows = packed_for(gate, parts[0].shape[1]), None
        packed = [quantized_weights(part, **self.how, gate_up=order) for part, order in zip(parts, rows, strict=True)]
        made = GroupedExperts.from_weights(*packed, gate=gate, group=group, gate_up_bias=biases[0], down_bias=biases[1])
        made.tensor_group = None if cut is None else cut.group
        return made

    def _cut_experts(
        self,
        name: str,
        cut: ExpertCut,
        layout: str,
        parts: list[torch.Tensor],
        biases: list[torch.Tensor | None],
    ) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
        """Of gate_up and down. Groups that share a scale are not cut: parts have the whole's scales."""
        (gate_up, down), (bias, down_bias) = parts, biases
        both = gate_up.shape[1]
        unit = self._shared("N", both)
        runs = cut.rows(f"{name}.gate_up_proj", layout, -(-both // unit))

        def rows_of(tensor: torch.Tensor) -> torch.Tensor:
            return torch.cat([tensor[:, begin * unit : end * unit] for begin, end in runs], 1)

        along_k = self._shared("K", cut.inner)
        begin, end = (each * along_k for each in cut.down.of(cut.inner, f"{name}.down_proj", along_k))
        own_biases = None if bias is None else rows_of(bias), down_bias if cut.rank == 0 else None
        return [rows_of(gate_up), down[:, :, begin:end].contiguous()], [*own_biases]

    def cut_of(self, name: str) -> Cut | None:
        return None if self.parallel is None else self.parallel.cut_of(name)

    def tensors(self, name: str, module: torch.nn.Linear, cut: Cut | None) -> dict[str, torch.Tensor]:
        """Of a layer of the checkpoint, on the module's device."""
        assert self.source is not None
        stored = stored_name(name, self.options)
        sizes = module.out_features, module.in_features
        found = self.source.layer(stored) if cut is None else cut_layer(self.source, stored, self.config, *sizes, cut)
        return {part: tensor.to(module.weight.device) for part, tensor in found.items()}

    def own_part(self, name: str, module: torch.nn.Linear, cut: Cut | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Of a weight, which is quantised by itself: groups that share a scale are not cut."""
        weight = _whole(module.weight.detach())
        bias = None if module.bias is None else _whole(module.bias.detach())
        if cut is None:
            return weight, bias
        unit = self._shared(cut.along, weight.shape[1])
        begin, end = (each * unit for each in cut.of(weight.shape[cut.along == "K"], f"{name}.weight", unit))
        if cut.along == "K":
            return weight[:, begin:end].contiguous(), bias
        return weight[begin:end].contiguous(), None if bias is None else bias[begin:end].clone()

    def _shared(self, along: str, k: int) -> int:
        """How much of N, or of K, has one scale where a weight is quantised by itself."""
        if along == "K":
            return int({"e2m1": 32, "e4m3": 128}.get(self.how["element"], self.how["group_size"] or k))
        return 128 if (self.how["element"], self.how["activations"]) == ("e4m3", "fp8") else 1


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Of a DTensor, gathered."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def stored_name(name: str, options: Mapping[str, Any]) -> str:
    """By which the checkpoint has a module's tensors."""
    for part, stored in options.get("rename", {}).items():
        name = name.replace(part, stored)
    return name
