"""Which modules compute what the layers of this package do: asked of the modules themselves, never of their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch.func import functional_call
from torch.nn.utils.parametrize import is_parametrized

from .._gates import GATES, ROWS, Gated, gated_product

WEIGHTS, BIASES = ("gate_up_proj", "down_proj"), ("gate_up_proj_bias", "down_proj_bias")
_HIDDEN, _INNER, _TOKENS, _CHOICES = 32, 16, 6, 2
_LARGEST = 1000.0  # about so far from 0 is what comes before the gate: past every limit that models have
_TOLERANCE = 2e-5  # of FP32; the two GELUs are 1e-4 apart


def why_no_linear(module: torch.nn.Module) -> str | None:
    """Why a `torch.nn.Linear`, or a class made of it, is more than its weight and bias."""
    if type(module).forward is not torch.nn.Linear.forward:
        return f"{type(module).__name__} has a forward of its own"
    if is_parametrized(module):
        return "its parameters are parametrised"
    return _why_hooked(module)


def _why_hooked(module: torch.nn.Module) -> str | None:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return "it has hooks, which its successor would not" if any(getattr(module, name) for name in hooks) else None


@dataclass(frozen=True)
class Stacks:
    """How a module keeps its experts' weights: `[G, 2 * inner, hidden]` and `[G, hidden, inner]`, or transposed."""

    transposed: bool
    biases: bool

    def rows_first(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.transpose(1, 2) if self.transposed else weight


def stacks_of(module: torch.nn.Module) -> Stacks | str:
    """Of a module with parameters `gate_up_proj` and `down_proj`; or why they are not what experts have."""
    gate_up, down = module.get_parameter("gate_up_proj"), module.get_parameter("down_proj")
    experts, hidden, inner = down.shape
    transposed = tuple(gate_up.shape) == (experts, inner, 2 * hidden)
    if not transposed and tuple(gate_up.shape) != (experts, 2 * inner, hidden):
        return f"gate_up_proj must be {[experts, 2 * inner, hidden]} beside down_proj, got {[*gate_up.shape]}"
    others = {name: parameter for name, parameter in module.named_parameters() if name not in WEIGHTS}
    if not others:
        return Stacks(transposed, False)
    rows = (gate_up, down) if not transposed else (gate_up.transpose(1, 2), down.transpose(1, 2))
    wanted = {name: tuple(part.shape[:2]) for name, part in zip(BIASES, rows, strict=True)}
    if {name: tuple(parameter.shape) for name, parameter in others.items()} != wanted:
        return f"it has other parameters than {', '.join(WEIGHTS + BIASES)}: {', '.join(others)}"
    return Stacks(transposed, True)


def gate_of(module: torch.nn.Module) -> Gated | str:
    """The gate between the products of experts that have `gate_up_proj` and `down_proj`.

    The module is called with small tensors in the place of its parameters. Or why it is none of these.
    """
    stacks = stacks_of(module)
    if isinstance(stacks, str):
        return stacks
    drawn = torch.Generator().manual_seed(0)
    experts = int(module.get_parameter("down_proj").shape[0])
    gate_up, down = _weights(drawn, experts)
    x, weights = _inputs(drawn), torch.randn(_TOKENS, _CHOICES, generator=drawn)
    ids = torch.stack([torch.randperm(experts, generator=drawn)[:_CHOICES] for _ in range(_TOKENS)])
    weights = weights[:, : ids.shape[1]].abs()
    parameters = {name: stacks.rows_first(part) for name, part in zip(WEIGHTS, (gate_up, down), strict=True)}
    biases = [torch.randn(*part.shape[:2], generator=drawn) * stacks.biases for part in (gate_up, down)]
    if stacks.biases:
        parameters |= dict(zip(BIASES, biases, strict=True))
    both = torch.einsum("th,tsnh->tsn", x, gate_up[ids]) + biases[0][ids]

    def result(gated: torch.Tensor) -> torch.Tensor:
        each = torch.einsum("tsi,tshi->tsh", gated, down[ids]) + biases[1][ids]
        return (each * weights.unsqueeze(-1)).sum(1)

    return _tried(module, parameters, (x, ids, weights), both, result)


@dataclass(frozen=True)
class Mlp:
    """The names of a module's linear layers, whose results are gated: `down(gate(gates(x), ups(x)))`."""

    gates: str
    ups: str
    down: str

    @property
    def names(self) -> tuple[str, str, str]:
        return self.gates, self.ups, self.down


def mlp_of(module: torch.nn.Module) -> tuple[Mlp, Gated] | None:
    """Of a module that has three plain linear layers and nothing else to learn, and computes a gated product."""
    layers = {name: child for name, child in module.named_children() if isinstance(child, torch.nn.Linear)}
    learnt = {name.rpartition(".")[0] for name, _ in [*module.named_parameters(), *module.named_buffers()]}
    if len(layers) != 3 or learnt != {*layers} or any(why_no_linear(layer) for layer in layers.values()):
        return None
    shapes = {name: tuple(layer.weight.shape) for name, layer in layers.items()}
    for name, (hidden, inner) in shapes.items():
        sides = [other for other in layers if other != name]
        if any(shapes[side] != (inner, hidden) for side in sides):
            continue
        for gates, ups in (sides, sides[::-1]):
            names = Mlp(gates, ups, name)
            gate = _gate_of_mlp(module, names, [layers[each].bias is not None for each in names.names])
            if gate is not None:
                return names, gate
    return None


def _gate_of_mlp(module: torch.nn.Module, names: Mlp, have_biases: list[bool]) -> Gated | None:
    drawn = torch.Generator().manual_seed(0)
    gate_up, down = (part[0] for part in _weights(drawn, 1))
    x, (gates, ups) = _inputs(drawn), gate_up.chunk(2)
    biases = [
        torch.randn(part.shape[0], generator=drawn) * has
        for part, has in zip((gates, ups, down), have_biases, strict=True)
    ]
    parameters = {f"{name}.weight": part for name, part in zip(names.names, (gates, ups, down), strict=True)}
    of_biases = zip(names.names, biases, have_biases, strict=True)
    parameters |= {f"{name}.bias": bias for name, bias, has in of_biases if has}
    both = x @ gate_up.T + torch.cat(biases[:2])
    found = _tried(module, parameters, (x,), both, lambda gated: gated @ down.T + biases[2])
    return None if isinstance(found, str) or found.layout != "halves" else found


def _weights(drawn: torch.Generator, experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Small ones of gate and up, and of down."""
    gate_up = torch.randn(experts, 2 * _INNER, _HIDDEN, generator=drawn) / _HIDDEN**0.5
    return gate_up, torch.randn(experts, _HIDDEN, _INNER, generator=drawn) / _INNER**0.5


def _inputs(drawn: torch.Generator) -> torch.Tensor:
    x = torch.randn(_TOKENS, _HIDDEN, generator=drawn)
    return x * (_LARGEST ** torch.linspace(0, 1, _TOKENS)).unsqueeze(1)


def _tried(
    module: torch.nn.Module,
    parameters: Mapping[str, torch.Tensor],
    inputs: tuple[torch.Tensor, ...],
    both: torch.Tensor,
    result: Callable[[torch.Tensor], torch.Tensor],
) -> Gated | str:
    """The gate with which `result` is what the module returns; or why there is none."""
    if why := _why_hooked(module):
        return why
    trains = module.training
    module.eval()
    try:
        with torch.no_grad():
            found = functional_call(module, dict(parameters), inputs)
    except Exception as error:  # of code that nobody here knows
        return f"it cannot be tried with small tensors: {type(error).__name__}: {error}"
    finally:
        module.train(trains)
    if not isinstance(found, torch.Tensor) or found.shape != inputs[0].shape:
        return "it must return a tensor of its input's shape"
    for gate in _gates(module):
        wanted = result(gated_product(both, gate.record))
        if bool(((found - wanted).norm(dim=1) <= _TOLERANCE * wanted.norm(dim=1)).all()):
            return gate
    return "tried with small tensors it is no gated activation between its products"


def _gates(module: torch.nn.Module) -> Iterator[Gated]:
    """What models have; numbers are those that the module keeps."""
    kept = [value for value in vars(module).values() if isinstance(value, (int, float)) and value > 0]
    limits = [None, *dict.fromkeys([7.0, 10.0, *(float(value) for value in kept)])]
    for layout in ROWS:
        for gate in GATES:
            yield from gate.of_models(layout, limits)
