"""Tensors of experts, as checkpoints name them: of each expert, or of all together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from .checkpoint import Checkpoint
from .cuts import Cut, ExpertCut, cut_layer, cut_stack, joined

Parts = list[tuple[str, dict[str, Any]]]
# Of a projection `gate_up_proj`: its tensors as `weights_from_checkpoint` calls them, and behind what they stand.
_OF_ALL = {"_blocks": "blocks", "_scales": "scales"}
_BIAS = "bias"
_PROJECTIONS = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))


def read_experts(
    checkpoint: Checkpoint,
    name: str,
    projections: tuple[str, str, str] | None,
    device: torch.device | str,
    rank: int,
    size: int,
    layout: str,
    config: Mapping[str, Any],
    cut: ExpertCut | None,
) -> Parts:
    """Of gate_up and of down: a name, and tensors of this process's experts: stacks, or lists of experts'.

    A bias is a stack, under "bias". layout: of gate_up's rows, where both are one tensor. config: the checkpoint's, by
    which parts are cut.
    """
    numbers = sorted(
        {int(part) for key in checkpoint.below(f"{name}.") if (part := key[len(name) + 1 :].split(".")[0]).isdigit()}
    )
    if not numbers:
        both_projections = ("gate_up_proj", layout), ("down_proj", "")
        return [_of_all(checkpoint, name, *each, device, rank, size, config, cut) for each in both_projections]
    if numbers != [*range(len(numbers))] or len(numbers) % size:
        raise ValueError(f"{name} must have experts 0 to a multiple of {size} processes, got {numbers}")
    share = len(numbers) // size
    own = numbers[rank * share : (rank + 1) * share]
    gate, up, down = projections or _projections_of(checkpoint, f"{name}.{own[0]}")
    if layout != "halves":
        raise ValueError(f"gate's layout must be 'halves' where gates and ups are apart in {name}, got {layout!r}")

    def read(projection: str, sizes: tuple[int, int], part: Cut | None) -> list[dict[str, torch.Tensor]]:
        names = [f"{name}.{number}.{projection}" for number in own]
        layers = [
            checkpoint.layer(each) if part is None else cut_layer(checkpoint, each, config, *sizes, part)
            for each in names
        ]
        return [{key: tensor.to(device) for key, tensor in layer.items()} for layer in layers]

    hidden, inner = (0, 0) if cut is None else (cut.hidden, cut.inner)
    of_gates, of_down = (None, None) if cut is None else (cut.gates, cut.down)
    gates, ups = (read(each, (inner, hidden), of_gates) for each in (gate, up))
    both = [joined_layers(f"{name}.{number}", *pair) for number, *pair in zip(own, gates, ups, strict=True)]
    downs = read(down, (hidden, inner), of_down)
    return [(f"{name}.gate_up_proj", _listed(both)), (f"{name}.{down}", _listed(downs))]


def _listed(layers: list[dict[str, torch.Tensor]]) -> dict[str, Any]:
    found: dict[str, Any] = {key: [layer[key] for layer in layers] for key in layers[0]}
    if _BIAS in found:
        found[_BIAS] = torch.stack(found[_BIAS])
    return found


def _projections_of(checkpoint: Checkpoint, expert: str) -> tuple[str, str, str]:
    """Of gate, up and down, as this checkpoint calls them."""
    for names in _PROJECTIONS:
        if all(checkpoint.below(f"{expert}.{name}.") for name in names):
            return names
    raise ValueError(f"{expert} must have {' or '.join(', '.join(names) for names in _PROJECTIONS)}, got others")


# Of tensors of which gates and ups are joined along N: which dimension that is. Others must be equal.
_ALONG_N: dict[str, Callable[[torch.Tensor], int | None]] = {
    "qweight": lambda _: 1,
    "qzeros": lambda _: 1,
    "scales": lambda _: 1,
    "g_idx": lambda _: None,
}
_OF_K = ("weight_g_idx",)


def joined_layers(name: str, gate: dict[str, torch.Tensor], up: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Gates before ups. Of GPTQ and AWQ N is the last dimension, of all others the first."""
    if gate.keys() != up.keys():
        raise ValueError(f"{name} must have the same tensors of gates and ups, got {sorted(gate)} and {sorted(up)}")
    last = "qweight" in gate and "s1_scales" not in gate  # QoQ names its codes so too
    blocks = "weight" in gate and gate["weight"].dtype == torch.float8_e4m3fn  # whose one scale may be of one block
    found = {}
    for key, tensor in gate.items():
        if last and key in _ALONG_N:
            along = _ALONG_N[key](tensor)
        else:
            shared = key in _OF_K or (tensor.numel() == 1 and not (blocks and tensor.dim() == 2))
            along = None if shared else 0
        if key == "weight_shape":
            found[key] = torch.stack([tensor[0] + up[key][0], tensor[1]])
        elif along is None:
            if not torch.equal(tensor, up[key]):
                raise ValueError(f"{name}'s {key} must be equal for gates and ups to be joined, got two")
            found[key] = tensor
        else:
            found[key] = joined([tensor, up[key]], along)
    return found


def _of_all(
    checkpoint: Checkpoint,
    name: str,
    projection: str,
    layout: str,
    device: torch.device | str,
    rank: int,
    size: int,
    config: Mapping[str, Any],
    cut: ExpertCut | None,
) -> tuple[str, dict[str, Any]]:
    """layout: of gate_up's rows; '' of down."""
    prefix = f"{name}.{projection}"
    found = {}
    for key in checkpoint.below(prefix):
        part = key[len(prefix) :]
        part = _OF_ALL.get(part, part.lstrip("._"))
        shape = checkpoint.shape(key)
        if not shape or shape[0] % size:
            raise ValueError(f"{key} must have a number of experts that {size} processes divide, got {[*shape]}")
        share = shape[0] // size
        own = rank * share, (rank + 1) * share
        if cut is None:
            found[part] = checkpoint.part(key, {0: own}).to(device)
        else:
            found[part] = cut_stack(checkpoint, key, part, config, own, layout, cut).to(device)
    if not found:
        raise ValueError(f"checkpoint must have experts {name}.0... or {prefix}..., got none")
    return prefix, found
