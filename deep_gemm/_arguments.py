"""What each argument of a public call may be, read off the call's own signature.

One table serves two readers: rejections, which say in a sentence what was wanted and what came, and torch's operators,
which want a schema.
"""

from __future__ import annotations

import functools
import inspect
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from ._output import Counted
from .epilogue import Epilogue, epilogue_of, steps_of
from .weights import PackedWeights

# Keyword-only names that callers of earlier releases use, and what they are called now.
OLDER_NAMES = {"m_indices": "grouped_layout", "ks": "ks_cpu", "ks_tensor": "grouped_layout"}


@dataclass(frozen=True)
class Kind:
    """Of an argument, by its annotation."""

    schema: str  # its type in torch's schemas
    wanted: str  # for rejections
    accepts: Callable[[Any], bool]
    # Of an argument that operators take in parts: what follows its name in theirs, and their types; the parts of a
    # value, and back.
    parts: tuple[tuple[str, str], ...] = ()
    split: Callable[[Any], tuple[Any, ...]] = tuple
    join: Callable[..., Any] = lambda data, scales: data if scales is None else (data, scales)
    packed: Kind | None = None  # that of PackedWeights, which may come instead

    def part_names(self, name: str) -> list[str]:
        return [name + suffix for suffix, _ in self.parts]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or hasattr(value, "__dlpack__")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_pair(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(map(_is_tensor, value))


def _is_quantised(value: Any) -> bool:
    """With scales, or a number for them, and perhaps zero points; or without."""
    if isinstance(value, (tuple, list)) and len(value) in (2, 3) and _is_tensor(value[0]):
        return all(_is_tensor(x) or _is_number(x) for x in value[1:])
    return _is_tensor(value)


def _is_symmetric(value: Any) -> bool:
    return _is_quantised(value) and (_is_tensor(value) or len(value) == 2)


def _quantised_halves(value: Any) -> tuple[Any, Any]:
    if isinstance(value, torch.Tensor):
        return value, None
    data, scales = value
    return data, scales if isinstance(scales, torch.Tensor) else torch.tensor(scales, dtype=torch.float32)


def _asymmetric_parts(value: Any) -> tuple[Any, Any, Any]:
    if isinstance(value, torch.Tensor) or len(value) == 2:
        return *_quantised_halves(value), None
    zeros = value[2]
    return *_quantised_halves(value[:2]), zeros if isinstance(zeros, torch.Tensor) else torch.tensor(zeros).int()


def _asymmetric(data: Any, scales: Any, zeros: Any) -> Any:
    return data if scales is None else (data, scales) if zeros is None else (data, scales, zeros)


def _packed_parts(weights: PackedWeights) -> tuple[Any, ...]:
    """All but an order of inputs, which products refuse; and the rest as JSON."""
    weights.require_inputs_in_order()
    return weights.codes, weights.scales, weights.zeros, weights.sums, weights.second_scales, weights._form


def _packed_weights(*parts: Any) -> PackedWeights:
    *tensors, form = parts
    return PackedWeights.from_tensors([tensor for tensor in tensors if tensor is not None], json.loads(form))


def _no_epilogue_by_place(value: Any) -> tuple[bool]:
    if isinstance(value, Epilogue):
        raise TypeError(f"epilogue must be given by its name where torch traces the call, got {value!r} by place")
    return (bool(value),)


def _is_integer(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return isinstance(value, torch.SymInt)
    return not isinstance(value, bool)


def _are_integers(count: int | None = None) -> Callable[[Any], bool]:
    def accepts(value: Any) -> bool:
        if isinstance(value, (str, bytes, torch.Tensor)) or not hasattr(value, "__iter__"):
            return False
        numbers = list(value)
        return (count is None or len(numbers) == count) and all(map(_is_integer, numbers))

    return accepts


def _or_none(kind: Kind) -> Kind:
    return Kind(f"{kind.schema}?", f"{kind.wanted} or None", lambda value: value is None or kind.accepts(value))


def _or_packed(kind: Kind, packed: Kind) -> Kind:
    return replace(
        kind,
        wanted=f"{kind.wanted} or PackedWeights",
        accepts=lambda value: kind.accepts(value) or packed.accepts(value),
        packed=packed,
    )


_TENSOR = Kind("Tensor", "a tensor", _is_tensor)
_INTEGER = Kind("SymInt", "an integer", _is_integer)
_INTEGERS = Kind("SymInt[]", "a sequence of integers", _are_integers())
_BOOLEAN = Kind("bool", "True or False", lambda value: isinstance(value, (bool, int)))
_TRIPLE = Kind("int[]", "three integers (rows of a, rows of b, K)", _are_integers(3))
_OPERAND_RECIPE = Kind("int[]", "two integers (rows, K)", _are_integers(2))
_SCALED = Kind("Tensor", "a pair (tensor, scales)", _is_pair, (("", "Tensor"), ("_scales", "Tensor")))
_PACKED = Kind(
    "Tensor",
    "PackedWeights, as deep_gemm.pack_weights makes them",
    lambda value: isinstance(value, PackedWeights),
    (
        ("", "Tensor"),
        ("_scales", "Tensor"),
        ("_zeros", "Tensor?"),
        ("_sums", "Tensor?"),
        ("_second_scales", "Tensor?"),
        ("_form", "str"),
    ),
    _packed_parts,
    _packed_weights,
)


# Operators know it by what its steps take.
_EPILOGUE = Kind(
    "float?",
    "an Epilogue of deep_gemm.epilogue or None",
    lambda value: value is None or isinstance(value, Epilogue),
    (("_alpha", "float?"), ("_row_scale", "Tensor?"), ("_gate", "int[]?"), ("_rounding", "int?")),
    lambda value: steps_of(None, value),
    epilogue_of,
)
KINDS = {
    "torch.Tensor": _TENSOR,
    "Output": Kind(
        "Tensor",
        "a tensor, or a pair (tensor, scales)",
        lambda value: _is_tensor(value) or _is_pair(value) or isinstance(value, Counted),
        (("", "Tensor"), ("_scales", "Tensor?"), ("_count", "Tensor?")),
        lambda value: (value, None, None) if isinstance(value, torch.Tensor) else (*value, None)[:3],
        lambda data, scales, count: (
            data if scales is None else (data, scales) if count is None else Counted((data, scales, count))
        ),
    ),
    "torch.Tensor | None": _or_none(_TENSOR),
    "Scaled": _SCALED,
    "Scaled | PackedWeights": _or_packed(_SCALED, _PACKED),
    "Quantised": Kind(
        "Tensor",
        "a pair (tensor, scales) or a tensor",
        _is_symmetric,
        (("", "Tensor"), ("_scales", "Tensor?")),
        _quantised_halves,
    ),
    "Tokens": Kind(
        "Tensor",
        "a pair (tensor, scales), with zeros as a third entry, or a tensor",
        _is_quantised,
        (("", "Tensor"), ("_scales", "Tensor?"), ("_zeros", "Tensor?")),
        _asymmetric_parts,
        _asymmetric,
    ),
    "ScaledTokens": Kind(
        "Tensor",
        "a pair (tensor, scales)",
        lambda value: _is_symmetric(value) and not _is_tensor(value),
        (("", "Tensor"), ("_scales", "Tensor")),
        _quantised_halves,
    ),
    "Activations": Kind(
        "Tensor",
        "a pair (tensor, scales), or with zeros as a third entry",
        lambda value: _is_quantised(value) and not _is_tensor(value),
        (("", "Tensor"), ("_scales", "Tensor"), ("_zeros", "Tensor?")),
        _asymmetric_parts,
        _asymmetric,
    ),
    "PackedWeights": _PACKED,
    "Alpha": Kind(
        "Tensor?",
        "a number, a tensor of numbers or None",
        lambda value: value is None or _is_tensor(value) or _is_number(value),
        (("", "Tensor?"),),
        lambda value: (torch.tensor(value, dtype=torch.float32) if _is_number(value) else value,),
        lambda value: value,
    ),
    "float | None": _or_none(Kind("float", "a number", _is_number)),
    "Epilogue | None": _EPILOGUE,
    "bool | Epilogue | None": Kind(
        "bool",
        "True or False, or an Epilogue",
        lambda value: value is None or isinstance(value, (bool, int, Epilogue)),
        (("", "bool"),),
        _no_epilogue_by_place,
        bool,
    ),
    "Recipe": _or_none(_TRIPLE),
    "OperandRecipe": _or_none(_OPERAND_RECIPE),
    "tuple[int, int, int]": _TRIPLE,
    "HeadSplits": Kind("int[]", "three integers (left, mid, right)", _are_integers(3)),
    "Sequence[int]": _INTEGERS,
    "int": _INTEGER,
    "int | None": _or_none(_INTEGER),
    "Sequence[int] | None": _or_none(_INTEGERS),
    "str": Kind("str", "a str such as 'nk'", lambda value: isinstance(value, str)),
    "bool": _BOOLEAN,
    "bool | None": _or_none(_BOOLEAN),
}


@functools.cache
def kinds_of(function: Callable[..., Any]) -> dict[str, Kind]:
    """The kind of each parameter, in order."""
    return {
        name: KINDS[parameter.annotation]  # an annotation that the table lacks is our mistake: a KeyError at import
        for name, parameter in inspect.signature(function).parameters.items()
    }


def describe(value: Any, inside: bool = False) -> str:
    """A value that came, for a rejection: one short line, whatever it is."""
    if isinstance(value, torch.Tensor):
        return "tensor" if inside else f"a {value.dtype} tensor of shape {[*value.shape]}"
    if isinstance(value, (tuple, list)):
        items = ", ".join(describe(item, inside=True) for item in value[:8]) + (", ..." if len(value) > 8 else "")
        return f"({items})" if isinstance(value, tuple) else f"[{items}]"
    text = repr(value).splitlines()[0] if repr(value) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."


def wrong_kind(kinds: Mapping[str, Kind], arguments: Mapping[str, Any]) -> TypeError | None:
    """The rejection of the first argument that is not of its parameter's kind."""
    for name, value in arguments.items():
        kind = kinds[name]
        if kind.accepts(value) or (value is None and name in OLDER_NAMES):
            continue
        takes_scales = kind.wanted.startswith("a pair")
        if takes_scales and isinstance(value, torch.Tensor):
            hint = ": its scales are missing"
        elif takes_scales and isinstance(value, (tuple, list)) and len(value) == 2 and value[1] is None:
            hint = ": the scales must be a tensor"
        else:
            hint = ""
        return TypeError(f"{name} must be {kind.wanted}, got {describe(value)}{hint}")
    return None


def tensors_of(arguments: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Torch's tensors among the arguments, with the name that a rejection gives them."""
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, (tuple, list)):
            for item, part in zip(value, ("", "'s scales", "'s zeros"), strict=False):
                if isinstance(item, torch.Tensor):
                    yield name + part, item
        elif isinstance(value, Epilogue):
            weights = steps_of(None, value).weights
            if weights is not None:
                yield "the epilogue's row weights", weights
        elif isinstance(value, PackedWeights):
            yield f"{name}'s codes", value.codes
            yield f"{name}'s scales", value.scales
            if value.zeros is not None:
                yield f"{name}'s zeros", value.zeros
            if value.second_scales is not None:
                yield f"{name}'s second scales", value.second_scales


def wants_gradient(tensors: Iterable[tuple[str, torch.Tensor]], function: str) -> RuntimeError:
    """The rejection of tensors that ask for a gradient."""
    names = " and ".join(name for name, tensor in tensors if tensor.requires_grad)
    return RuntimeError(
        f"{function} writes d, so autograd cannot differentiate it, but {names} must have a gradient: call it under "
        "torch.no_grad(), pass detach()ed tensors, or call it inside a torch.autograd.Function that says what its "
        "backward is"
    )


def no_memory(name: str, tensor: torch.Tensor, function: str) -> Exception | None:
    """The rejection of a tensor that no kernel can read."""
    if tensor.is_meta:
        return ValueError(f"{name} is on the meta device, but not all tensors of the call are")
    if tensor.layout is not torch.strided:
        return TypeError(f"{name} must be a dense tensor, got layout {tensor.layout}")
    try:
        has_memory = tensor.numel() == 0 or tensor.data_ptr() != 0
    except RuntimeError:
        has_memory = False
    if not has_memory:
        return TypeError(f"{name} has the shape {[*tensor.shape]} but no memory: {_way_out(name, tensor, function)}")
    try:
        tensor.detach().__dlpack__()
    except (RuntimeError, BufferError, TypeError) as error:
        return TypeError(f"{name} ({tensor.dtype}) cannot be read by a kernel: {str(error).splitlines()[0]}")
    return None


def _way_out(name: str, tensor: torch.Tensor, function: str) -> str:
    kind: Any = type(tensor)
    plain: Any = torch.Tensor
    if hasattr(tensor, "to_local"):
        return f"it is a {kind.__name__}: pass the part that lies on this device, {name}.to_local()"
    if kind.__torch_dispatch__ is not plain.__torch_dispatch__:
        return (
            f"it is a {kind.__name__}, which stands for other tensors: pass those, or call "
            f"torch.ops.deep_gemm_jit.{function}, which its __torch_dispatch__ sees"
        )
    return "its storage was released (resized to 0)"
