"""The public products as operators of torch: `torch.ops.deep_gemm.<name>`.

An operator takes what the function of its name takes, with each `(tensor, scales)` pair as two arguments (`a`,
`a_scales`), and writes `d`. The functions use them by themselves wherever torch records or transforms a program instead
of running it: `torch.compile`, `torch.export`, `make_fx`, FakeTensor, functional tensors, the meta device, `vmap`.
Sizes are checked when the program runs; an operator on fake or meta tensors checks nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ._arguments import OLDER_NAMES, kinds_of, scales_name

_NAMESPACE = "deep_gemm"
_WRITTEN = "d"
_library = torch.library.Library(_NAMESPACE, "FRAGMENT")


def schema_of(function: Callable[..., Any]) -> str:
    """The arguments of a product's operator in torch's schema language."""
    parts = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in OLDER_NAMES:
            continue
        kind = kinds_of(function)[name]
        default = parameter.default
        text = "" if default is parameter.empty else f"={default!r}".replace("(", "[").replace(")", "]")
        text = text.replace("'", '"')
        if kind.is_pair:
            parts += [f"Tensor {name}", f"Tensor {scales_name(name)}"]
        elif name == _WRITTEN:
            parts.append(f"Tensor(a!) {name}{text}")
        else:
            parts.append(f"{kind.schema} {name}{text}")
    return ", ".join(parts)


def flat_arguments(kinds: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """A call's arguments as its operator takes them. Dynamo traces this."""
    named = dict(zip(kinds, args))  # noqa: B905  too many arguments are refused elsewhere
    named.update(kwargs)
    flat = {}
    for name, value in named.items():
        if kinds[name].is_pair:
            flat[name], flat[scales_name(name)] = value
        elif name not in OLDER_NAMES:
            flat[name] = value
        elif value is not None:
            flat[OLDER_NAMES[name]] = value
    return flat


def define(name: str, function: Callable[..., None]) -> Callable[..., None]:
    """Make a product known to torch under a name. Returns the operator."""
    kinds = kinds_of(function)
    order = [parameter.split("=")[0].split()[-1] for parameter in schema_of(function).split(", ")]

    def run(*args: Any, **kwargs: Any) -> None:
        flat = {**dict(zip(order, args, strict=False)), **kwargs}
        for pair in (name for name, kind in kinds.items() if kind.is_pair):
            flat[pair] = flat[pair], flat.pop(scales_name(pair))
        function(**flat)

    def record(*_args: Any, **_kwargs: Any) -> None:
        pass  # nothing is returned, and what is written keeps its shape

    def run_each(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[None, None]:
        if in_dims[order.index(_WRITTEN)] is None:
            raise ValueError(f"vmap over {name}: {_WRITTEN} must have the mapped dimension, since each call writes it")
        for i in range(info.batch_size):
            operator(
                *(
                    value.select(dim, i) if isinstance(value, torch.Tensor) and dim is not None else value
                    for value, dim in zip(args, in_dims, strict=True)
                )
            )
        return None, None

    qualified = f"{_NAMESPACE}::{name}"
    _library.define(f"{name}({schema_of(function)}) -> ()", tags=(torch.Tag.pt2_compliant_tag,))
    for device in ("CPU", "CUDA"):
        _library.impl(name, run, device)
    torch.library.register_fake(qualified, record, lib=_library)
    torch.library.register_vmap(qualified, run_each, lib=_library)
    operator = getattr(getattr(torch.ops, _NAMESPACE), name).default
    return operator


def is_traced(tensors: list[torch.Tensor]) -> bool:
    """Whether torch is recording or transforming, or these tensors stand for others, so that an operator must serve."""
    from torch._subclasses.fake_tensor import FakeTensor

    if torch._C._len_torch_dispatch_stack() > 0 or (tensors and all(tensor.is_meta for tensor in tensors)):
        return True
    return any(
        isinstance(tensor, FakeTensor)
        or torch._is_functional_tensor(tensor)
        or torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        for tensor in tensors
    )


def serve_traced(operator: Callable[..., None], flat: dict[str, Any]) -> None:
    """Call an operator in the place of its function, whatever torch is doing."""
    written = flat[_WRITTEN]
    if not (isinstance(written, torch.Tensor) and torch._is_functional_tensor(written)):
        operator(**flat)
        return
    # torch.func.functionalize refuses custom operators that write: here as a new tensor that takes the place of d.
    from torch._subclasses import functional_tensor

    interpreter = torch._C._functorch.peek_interpreter_stack()
    if interpreter is None:
        level = functional_tensor.CppFunctionalizeAPI()
    else:
        from torch._functorch.pyfunctorch import coerce_cinterpreter

        level = functional_tensor.FunctorchFunctionalizeAPI(coerce_cinterpreter(interpreter))
    inner = {name: level.unwrap_tensors(value) for name, value in flat.items()}
    inner[_WRITTEN] = inner[_WRITTEN].clone()
    with level.redispatch_to_next():
        operator(**inner)
    level.replace(written, inner[_WRITTEN])
    level.commit_update(written)
    level.sync(written)
