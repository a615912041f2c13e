"""`GroupedExperts`: a mixture-of-experts layer's experts, to train and to serve."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .. import routing
from .._compiled import alignment_now
from .._gates import ROWS, Gated
from .._gemm import gemm
from ..epilogue import RowScale, SwiGLU
from ..weights import PackedWeights
from .checkpoint import Checkpoint
from .cuts import ExpertCut
from .gated_product import SCALE_COLUMNS, gated_rows, operand_of
from .gates import gated_in_torch, packed_for
from .master import MasterWeights, to_local
from .numbers import Scaled, as_autocast_has_it, fp8_rows, in_halves
from .products import experts_product
from .quant_linear import quantized_weights, stored_weights
from .reduced import added_up
from .stored import StoredWeights

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Weights = PackedWeights | Scaled
_SCALE_ROWS = SCALE_COLUMNS  # of both operands, where tokens are K


class GroupedExperts(torch.nn.Module):
    """`y[t] = sum over slots of weights[t, slot] * down(gate(gate_up(x[t])))` by the experts `ids[t, slot]`.

    With master weights it trains, in FP8 (or BF16 by BF16 products): rows of experts follow each other, gradients of
    weights are products by groups of K. For inference it also takes weights that stay as they are (`from_weights`,
    `from_checkpoint`). No host read but where experts are spread over processes. Experts may have no token; ids that
    are no expert's are dropped.

    Args:
        num_experts, hidden, inner: weights are `gate_up.weight` `[num_experts, 2 * inner, hidden]` and `down.weight`
            `[num_experts, hidden, inner]`.
        gate: a gated activation of `epilogue`, as `SwiGLU()`; its layout says where gate_up's rows are.
        precision, dtype, device: as `FP8Linear`.
        group: a process group over which experts are spread: this process has its share, of which there are
            `num_experts` divided by its size, in the order of ranks. `ids` are of all experts.
        masked_up_to: without gradients, up to so many tokens experts have a matrix each, with counts (masked products,
            as decode steps want); with more, rows follow each other.

    `tensor_group` (an attribute, None): a process group whose processes each have a part of every expert's `inner`
    (`from_checkpoint`, `convert`): results are added up over it.

    `deep_ep` (an attribute, None): what brings rows to the processes of `group`. None: on a GPU and for BF16 tokens a
    buffer of DeepEP, made at the first call, where that is installed and knows so many processes; else collectives.
    False: these always. A `deep_ep.Buffer`: that one. Processes must not differ in it.

    `as_trained` (an attribute, False): without gradients, too, take the steps that training takes, with its bits: the
    gate in torch, the router's weights after the second product. Slower, since nothing is fused.
    """

    as_trained: bool = False
    tensor_group: ProcessGroup | None = None
    deep_ep: Any = None
    gate_up_bias: torch.Tensor | None
    down_bias: torch.Tensor | None

    def __init__(
        self,
        num_experts: int,
        hidden: int,
        inner: int,
        *,
        gate: Gated | None = None,
        precision: str = "fp8",
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        group: ProcessGroup | None = None,
        masked_up_to: int = 128,
    ) -> None:
        super().__init__()
        local = _share(num_experts, group)
        how: dict[str, Any] = {"precision": precision, "dtype": dtype, "device": device}
        gate_up = MasterWeights((local, 2 * inner, hidden), **how)
        self._set(gate_up, MasterWeights((local, hidden, inner), **how), gate, group, masked_up_to)

    def _set(
        self,
        gate_up: MasterWeights | StoredWeights,
        down: MasterWeights | StoredWeights,
        gate: Gated | None,
        group: ProcessGroup | None,
        masked_up_to: int,
        biases: tuple[torch.Tensor | None, torch.Tensor | None] = (None, None),
    ) -> None:
        self.gate_up, self.down = gate_up, down
        self.gate = SwiGLU() if gate is None else gate
        self.group, self.masked_up_to = group, masked_up_to
        experts, both, hidden = gate_up.shape
        if down.shape != (experts, hidden, both // 2):
            raise ValueError(
                f"down must be {[experts, hidden, both // 2]} beside {[*gate_up.shape]}, got {[*down.shape]}"
            )
        self.local_experts, self.hidden, self.inner = experts, hidden, both // 2
        for name, part, bias in zip(("gate_up", "down"), (gate_up, down), biases, strict=True):
            self.register_buffer(f"{name}_bias", None if bias is None else _checked_bias(f"{name}_bias", bias, part))

    @property
    def num_experts(self) -> int:
        """Of all processes."""
        return self.local_experts * _size(self.group)

    @classmethod
    def from_weights(
        cls,
        gate_up: Weights,
        down: Weights,
        *,
        gate: Gated | None = None,
        group: ProcessGroup | None = None,
        masked_up_to: int = 128,
        gate_up_bias: torch.Tensor | None = None,
        down_bias: torch.Tensor | None = None,
    ) -> GroupedExperts:
        """For inference: PackedWeights, or E4M3 with scales of 128 x 128 blocks, `[G, N, K]` (this process's share).

        Biases are `[G, N]`, BF16, FP16 or FP32, in the order of the weights' rows; beside PackedWeights only.
        """
        made = cls.__new__(cls)
        torch.nn.Module.__init__(made)
        stored = StoredWeights(gate_up), StoredWeights(down)
        if any(len(weights.shape) != 3 for weights in stored):
            raise ValueError(f"weights must be stacks [G, N, K], got {[*stored[0].shape]} and {[*stored[1].shape]}")
        if stored[0].activations != stored[1].activations:
            raise ValueError(
                f"weights must be for one kind of activations, got {[each.activations for each in stored]}"
            )
        made._set(*stored, gate, group, masked_up_to, (gate_up_bias, down_bias))
        return made

    def quantized(
        self, *, element: str = "int4", activations: str = "bf16", group_size: int | None = 128
    ) -> GroupedExperts:
        """For inference: master weights rounded to the nearest of so few bits, as `QuantLinear.from_linear` has it."""
        if not isinstance(self.gate_up, MasterWeights) or not isinstance(self.down, MasterWeights):
            raise TypeError("weights must be master weights to be rounded, got ones that are already")
        rows = packed_for(self.gate, 2 * self.inner), None
        packed = [
            quantized_weights(part.weight.detach(), element, activations, group_size, gate_up)
            for part, gate_up in zip((self.gate_up, self.down), rows, strict=True)
        ]
        return GroupedExperts.from_weights(*packed, gate=self.gate, group=self.group, masked_up_to=self.masked_up_to)

    @classmethod
    def from_checkpoint(
        cls,
        source: str | Path | Mapping[str, torch.Tensor] | Checkpoint,
        name: str,
        *,
        activations: str | None = None,
        config: Mapping[str, Any] | None = None,
        projections: tuple[str, str, str] | None = None,
        gate: Gated | None = None,
        device: torch.device | str = "cpu",
        group: ProcessGroup | None = None,
        masked_up_to: int = 128,
        cut: ExpertCut | None = None,
    ) -> GroupedExperts:
        """The experts `name` of a quantised checkpoint, as `QuantLinear.from_checkpoint`.

        Tensors are those of each expert, `name.0.gate_proj.weight`, or of all, `name.gate_up_proj...`, with biases or
        without. With a `group` only those of this process's experts are read. `projections` are the names of gate, up
        and down; None: gate_proj, up_proj, down_proj, or w1, w3, w2, as the checkpoint has them. `cut`, an
        `nn.ExpertCut(rank, size, hidden, inner, group)`: of each expert only the part of process `rank` of `size` is
        read, of gates and ups along N, of down along K. Results are added up over the cut's group; without one they
        stay parts of a sum. A part that would cut what shares a scale or a word is refused.
        """
        from .expert_tensors import read_experts

        checkpoint = source if isinstance(source, Checkpoint) else Checkpoint(source)
        keys = checkpoint.keys_of(name, config)
        layout = "halves" if gate is None else gate.layout
        where = device, _rank(group), _size(group), layout
        parts = read_experts(checkpoint, name, projections, *where, keys, cut)
        if cut is not None and cut.rank > 0:
            parts[1][1].pop("bias", None)  # which one process adds
        biases = dict(
            zip(("gate_up_bias", "down_bias"), (tensors.pop("bias", None) for _, tensors in parts), strict=True)
        )
        (first, both), (second, down) = parts
        packed = [
            stored_weights(both, keys, activations, first, layout if layout in ROWS else None),
            stored_weights(down, keys, activations, second),
        ]
        made = cls.from_weights(*packed, gate=gate, group=group, masked_up_to=masked_up_to, **biases)
        if cut is not None:
            if (made.hidden, made.inner) != (cut.hidden, cut.inner // cut.size):
                raise ValueError(
                    f"cut must have the checkpoint's hidden and inner, got {cut.hidden} and {cut.inner} beside parts "
                    f"of {made.hidden} and {made.inner}"
                )
            made.tensor_group = cut.group
        return made

    def forward(
        self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, *, masked: bool | None = None
    ) -> torch.Tensor:
        """x `[tokens, hidden]`, ids and weights (a router's) `[tokens, choices]` -> `[tokens, hidden]` in x's dtype.

        masked: whether experts have a matrix each, with a row for every token (so a token must not choose one twice);
            by default as `masked_up_to` says.
        """
        if x.dim() != 2 or x.shape[1] != self.hidden:
            raise ValueError(f"x must be [tokens, {self.hidden}], got {[*x.shape]}")
        x, weights = as_autocast_has_it(x), weights.float()
        trains = torch.is_grad_enabled() and (
            x.requires_grad or weights.requires_grad or any(p.requires_grad for p in self.parameters())
        )
        if trains and masked:
            raise ValueError("masked must be False with gradients: rows of experts follow each other then")
        if self.group is not None:
            from .deep_ep import buffer_of, forward_by_deep_ep
            from .expert_parallel import forward_in_group

            buffer = buffer_of(self, self.group, x)
            if buffer is None:
                result = forward_in_group(self, self.group, x, ids, weights, trains)
            else:
                result = forward_by_deep_ep(self, buffer, x, ids, weights, trains)
            return added_up(result, self.tensor_group)
        if trains:
            return self.trained(x, ids, weights)
        masked = x.shape[0] <= self.masked_up_to if masked is None else masked
        return added_up(self.served(self.tokens(x), x, ids, weights, masked), self.tensor_group)

    def trained(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Of this process's experts, with gradients."""
        gate_up, down = self.gate_up, self.down
        if not isinstance(gate_up, MasterWeights) or not isinstance(down, MasterWeights):
            raise RuntimeError("weights must be master weights to have gradients: use torch.no_grad() for inference")
        if (alignment := alignment_now()) % _SCALE_ROWS:
            raise ValueError(
                f"get_mk_alignment_for_contiguous_layout() must be a multiple of {_SCALE_ROWS} for training, since so "
                f"many rows share a scale, got {alignment}"
            )
        found = routing.route(ids, self.local_experts)
        rows = routing.gather(x, found, clear=True)
        both = experts_product(rows, to_local(gate_up.weight), *gate_up.operands(True), found.indices, found.ends)
        inner = gated_in_torch(both, self.gate)
        y = experts_product(inner, to_local(down.weight), *down.operands(True), found.indices, found.ends)
        return routing.combine(y, found, weights)

    def tokens(self, x: torch.Tensor) -> Any:
        """As rows of experts are copied of it: quantised, unless each expert would do it in another way."""
        gate_up = self.gate_up
        if isinstance(gate_up, MasterWeights):
            return fp8_rows(x.contiguous()) if gate_up.precision == "fp8" else in_halves(x)
        packed = gate_up.weights
        permuted = isinstance(packed, PackedWeights) and packed.input_permutation is not None
        if permuted or gate_up.activations in ("int8", "int4"):
            return x
        return gate_up.tokens(x)

    def served(
        self, tokens: Any, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor | None, masked: bool
    ) -> torch.Tensor:
        """Of this process's experts, without gradients; `tokens` are `self.tokens(x)`. x: its dtype is the result's."""
        if ids.shape[0] == 0:
            return x.new_empty((0, self.hidden))
        scales = isinstance(self.down, MasterWeights) or self.down.takes_row_scale
        scaled = weights is not None and scales and not self.as_trained
        found = routing.route(
            ids, self.local_experts, kind="masked" if masked else "indices", weights=weights if scaled else None
        )
        grouping = found.grouping()
        rows: Any = routing.gather(tokens, found)
        if isinstance(tokens, torch.Tensor) and isinstance(self.gate_up, StoredWeights):
            rows = self.gate_up.tokens(rows, grouping)
        expected = -(-ids.numel() // self.local_experts)
        parts = self.gate_up, self.down, self.gate, self.gate_up_bias
        inner = gated_rows(rows, *parts, grouping, found.source.shape, x.dtype, expected, self.as_trained)
        y = x.new_empty((*found.source.shape, self.hidden))
        epilogue = RowScale(found.row_weights) if found.row_weights is not None else None
        gemm(inner, operand_of(self.down), y, grouping=grouping, bias=self.down_bias, epilogue=epilogue)
        return routing.combine(y, found, None if scaled else weights)

    def extra_repr(self) -> str:
        return f"num_experts={self.num_experts}, hidden={self.hidden}, inner={self.inner}, gate={self.gate}"


def _checked_bias(name: str, bias: torch.Tensor, weights: MasterWeights | StoredWeights) -> torch.Tensor:
    experts, rows, _ = weights.shape
    if not isinstance(weights, StoredWeights) or not isinstance(weights.weights, PackedWeights):
        raise NotImplementedError(f"{name} must be None except beside PackedWeights, whose products add biases")
    if tuple(bias.shape) != (experts, rows):
        raise ValueError(f"{name} must be {[experts, rows]}, got {[*bias.shape]}")
    return bias.detach()


def _size(group: ProcessGroup | None) -> int:
    return 1 if group is None else group.size()


def _rank(group: ProcessGroup | None) -> int:
    return 0 if group is None else group.rank()


def _share(num_experts: int, group: ProcessGroup | None) -> int:
    size = _size(group)
    if num_experts % size:
        raise ValueError(f"num_experts must be a multiple of the {size} processes of the group, got {num_experts}")
    return num_experts // size
