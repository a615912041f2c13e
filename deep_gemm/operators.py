"""The public products and scale layouts as operators of torch: `torch.ops.deep_gemm_jit.<name>`.

The namespace is one that no other library registers. `torch.ops.deep_gemm`, the name that they had before and that
other copies of DeepGEMM register for themselves, has them too, behind whatever others register there.

An operator takes what the function of its name takes, with each `(tensor, scales)` pair as two arguments (`a`,
`a_scales`), and writes `d`; that of a scale layout always returns a new tensor. The functions use them by themselves
wherever torch records or transforms a program instead of running it: `torch.compile`, `torch.export`, `make_fx`,
FakeTensor, functional tensors, the meta device, `vmap`. Products are checked when the program runs: an operator on fake
or meta tensors checks nothing.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._C._functorch import is_functorch_wrapped_tensor, peek_interpreter_stack
from torch._subclasses.fake_tensor import FakeTensor

from ._arguments import OLDER_NAMES, Kind, kinds_of, wants_gradient

_NAMESPACE = "deep_gemm_jit"
_SHARED_NAMESPACE = "deep_gemm"
_WRITTEN = "d"
_WRITTEN_PARTS = ("d_scales", "d_count")


class _SharedNamespace(torch._ops._OpNamespace):
    """`torch.ops.deep_gemm`: what others register there comes first, at any time; only then our operators."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):
                raise
            return getattr(getattr(torch.ops, _NAMESPACE), name)


setattr(torch.ops, _SHARED_NAMESPACE, _SharedNamespace(_SHARED_NAMESPACE))
_library = torch.library.Library(_NAMESPACE, "FRAGMENT")


def schema_of(function: Callable[..., Any], kinds: Mapping[str, Kind]) -> str:
    """The arguments of a function's operator in torch's schema language."""
    parts, last = [], []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in OLDER_NAMES:
            continue
        kind = kinds[name]
        default = parameter.default
        text = "" if default is parameter.empty else f"={default!r}".replace("(", "[").replace(")", "]")
        text = text.replace("'", '"')
        if name == _WRITTEN:
            parts.append(f"Tensor(a!) {name}{text}")
            if kind.parts:
                last += [f"Tensor({'bc'[i]}!)? {part}=None" for i, part in enumerate(_WRITTEN_PARTS)]
        elif kind.parts:
            parts += [f"{schema} {name}{suffix}{text}" for suffix, schema in kind.parts]
        else:
            parts.append(f"{kind.schema} {name}{text}")
    return ", ".join(parts + last)


def flat_arguments(kinds: Mapping[str, Kind], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """A call's arguments as its operator takes them. Dynamo traces this."""
    named = dict(zip(kinds, args))  # noqa: B905  too many arguments are refused elsewhere
    named.update(kwargs)
    flat: dict[str, Any] = {}
    for name, value in named.items():
        if kinds[name].parts:
            flat.update(zip(kinds[name].part_names(name), kinds[name].split(value), strict=True))
        elif name not in OLDER_NAMES:
            flat[name] = value
    for older, newer in OLDER_NAMES.items():
        if named.get(older) is None:
            continue
        if flat.get(newer) is not None:
            raise TypeError(f"{older} is the older name of {newer}: give one of them, not both")
        flat[newer] = named[older]
    return flat


def define(name: str, function: Callable[..., None], kinds: Mapping[str, Kind]) -> Callable[..., None]:
    """Make a product known to torch under a name. Returns the operator."""
    schema = schema_of(function, kinds)
    order = _names_in(schema)

    def run(*args: Any, **kwargs: Any) -> None:
        flat = {**dict(zip(order, args, strict=False)), **kwargs}
        for name, kind in kinds.items():
            if kind.parts:
                flat[name] = kind.join(*[flat.pop(part, None) for part in kind.part_names(name)])
        function(**flat)

    def record(*_args: Any, **_kwargs: Any) -> None:
        pass  # nothing is returned, and what is written keeps its shape

    def run_each(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[None, None]:
        for written in _written_of(dict(zip(order, args, strict=False))):
            if in_dims[order.index(written)] is None:
                raise ValueError(
                    f"vmap over {name}: {written} must have the mapped dimension, since each call writes it"
                )
        for i in range(info.batch_size):
            operator(*_selected(i, in_dims, args))
        return None, None

    def refuse_gradients(*args: Any, **kwargs: Any) -> None:
        flat = {**dict(zip(order, args, strict=False)), **kwargs}
        tensors = [(name, value) for name, value in flat.items() if isinstance(value, torch.Tensor)]
        if torch.is_grad_enabled() and any(tensor.requires_grad for _, tensor in tensors):
            raise wants_gradient(tensors, name)
        with torch._C._AutoDispatchBelowAutograd():
            operator(*args, **kwargs)

    operator: Callable[..., None] = _register(f"{name}({schema}) -> ()", run, record, run_each)
    _library.impl(name, refuse_gradients, "Autograd")
    return operator


def define_layout(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Make a scale layout known to torch. `function` must take tensors that stand for others too: see `stands_in`."""
    name = function.__name__
    kinds = kinds_of(function)
    names, schema = [*kinds], schema_of(function, kinds)
    order = _names_in(schema)

    def run(*args: Any, **kwargs: Any) -> torch.Tensor:
        arguments = {**dict(zip(order, args, strict=False)), **kwargs}
        result = function(**arguments)
        # An operator may not return its argument.
        return result.clone() if any(result is value for value in arguments.values()) else result

    def run_each(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[torch.Tensor, int]:
        return torch.stack([operator(*_selected(i, in_dims, args)) for i in range(info.batch_size)]), 0

    operator = _register(f"{name}({schema}) -> Tensor", run, run, run_each)

    def call(*args: Any, **kwargs: Any) -> torch.Tensor:
        named = {**dict(zip(names, args, strict=False)), **kwargs}
        result: torch.Tensor = operator(
            **{OLDER_NAMES.get(key, key): value for key, value in named.items() if value is not None}
        )
        return result

    return call


def define_result(
    schema: str, run: Callable[..., torch.Tensor], empty: Callable[..., torch.Tensor]
) -> Callable[..., torch.Tensor]:
    """Make a function known to torch that returns a new tensor. `empty` makes one that looks the same."""
    order = _names_in(schema.partition("(")[2].rpartition(") ->")[0])

    def bound(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {**dict(zip(order, args, strict=False)), **kwargs}

    def run_named(*args: Any, **kwargs: Any) -> torch.Tensor:
        return run(*bound(args, kwargs).values())

    def record(*args: Any, **kwargs: Any) -> torch.Tensor:
        return empty(*bound(args, kwargs).values())

    def run_each(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[torch.Tensor, int]:
        return torch.stack([operator(*_selected(i, in_dims, args)) for i in range(info.batch_size)]), 0

    operator: Callable[..., torch.Tensor] = _register(schema, run_named, record, run_each)
    return operator


def define_writer(schema: str, run: Callable[..., None]) -> Callable[..., None]:
    """Make a function known to torch that writes arguments and returns nothing. All its tensors are mapped by vmap."""
    written = [i for i, name in enumerate(schema.split("(", 1)[1].split(", ")) if "!)" in name]

    def record(*_args: Any, **_kwargs: Any) -> None:
        pass

    def run_each(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[None, None]:
        if any(in_dims[i] is None and args[i] is not None for i in written):
            raise ValueError(f"vmap over {schema.partition('(')[0]}: what it writes must have the mapped dimension")
        for i in range(info.batch_size):
            operator(*_selected(i, in_dims, args))
        return None, None

    operator: Callable[..., None] = _register(schema, run, record, run_each)
    return operator


def _register(schema: str, run: Any, fake: Any, run_each: Any) -> Any:
    name = schema.partition("(")[0]
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    for device in ("CPU", "CUDA"):
        _library.impl(name, run, device)
    torch.library.register_fake(f"{_NAMESPACE}::{name}", fake, lib=_library)
    if hasattr(torch.library, "register_vmap"):  # torch 2.5
        torch.library.register_vmap(f"{_NAMESPACE}::{name}", run_each, lib=_library)
    return getattr(getattr(torch.ops, _NAMESPACE), name).default


def _names_in(schema: str) -> list[str]:
    without_lists = re.sub(r"=\[[^\]]*\]", "", schema)  # defaults, which have commas
    return [parameter.split("=")[0].split()[-1] for parameter in without_lists.split(", ")]


def _selected(index: int, in_dims: tuple[Any, ...], args: tuple[Any, ...]) -> list[Any]:
    """One call's arguments out of those that vmap maps."""
    return [
        value.select(dim, index) if isinstance(value, torch.Tensor) and dim is not None else value
        for value, dim in zip(args, in_dims, strict=True)
    ]


def stands_in(tensor: torch.Tensor) -> bool:
    """Whether a tensor has a shape and no memory because torch only computes shapes."""
    return tensor.is_meta or isinstance(tensor, FakeTensor)


def is_traced(tensors: list[torch.Tensor]) -> bool:
    """Whether torch is recording or transforming, or these tensors stand for others, so that an operator must serve."""
    if torch._C._len_torch_dispatch_stack() > 0 or (tensors and all(tensor.is_meta for tensor in tensors)):
        return True
    return any(
        isinstance(tensor, FakeTensor) or torch._is_functional_tensor(tensor) or is_functorch_wrapped_tensor(tensor)
        for tensor in tensors
    )


def serve_traced(operator: Callable[..., None], flat: dict[str, Any]) -> None:
    """Call an operator in the place of its function, whatever torch is doing."""
    written = _written_of(flat)
    if not any(torch._is_functional_tensor(tensor) for tensor in written.values()):
        operator(**flat)
        return
    # torch.func.functionalize refuses custom operators that write: here as a new tensor that takes the place of d.
    from torch._subclasses import functional_tensor

    interpreter = peek_interpreter_stack()
    level: Any = functional_tensor.CppFunctionalizeAPI()
    if interpreter is not None:
        from torch._functorch.pyfunctorch import coerce_cinterpreter

        inner_level: Any = coerce_cinterpreter(interpreter)
        level = functional_tensor.FunctorchFunctionalizeAPI(inner_level)
    inner = {name: level.unwrap_tensors(value) for name, value in flat.items()}
    inner |= {name: inner[name].clone() for name in written}
    with level.redispatch_to_next():
        operator(**inner)
    for name, outer in written.items():
        level.replace(outer, inner[name])
        level.commit_update(outer)
        level.sync(outer)


def _written_of(flat: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Of an operator's arguments."""
    given = {name: flat.get(name) for name in (_WRITTEN, *_WRITTEN_PARTS)}
    return {name: tensor for name, tensor in given.items() if isinstance(tensor, torch.Tensor)}
