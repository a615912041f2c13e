"""What all public products have in common around their own few lines.

A call that runs passes through `product` without being looked at. One that fails is looked at afterwards, so a right
call pays nothing: its arguments may be of the wrong kind, or be tensors that only an operator can serve.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

import torch
from torch.compiler import is_dynamo_compiling

from . import operators
from ._arguments import kinds_of, no_memory, tensors_of, wants_gradient, wrong_kind
from .epilogue import Epilogue, cast_of, cast_parts, store_count, without_cast, written_by
from .weights import PackedWeights

Parameters = ParamSpec("Parameters")

# With the function's own parameters: packing them into *args and **kwargs would cost a call 5 % of its time.
_TEMPLATE = """
def {name}{signature}:
    if is_dynamo_compiling():
        return trace({arguments})
    {cast}try:
        return function({arguments})
    except Exception as error:
        failure = error
    failure = settle(failure, {arguments})  # out of the handler, and the name freed: no chain and no cycle of errors
    if failure is not None:
        raise failure
"""


# Where there is one that writes more than d.
_CAST = """if epilogue is not None and has_cast(epilogue):
        return cast({arguments})
    """


def product(*other_names: str) -> Callable[[Callable[Parameters, None]], Callable[Parameters, None]]:
    """Decorate a function that writes `d`: an operator of torch under its name (and others), rejections in sentences.

    Where PackedWeights may come in the place of a pair, they have an operator of their own, `NAME_packed`.
    """

    def decorate(function: Callable[Parameters, None]) -> Callable[Parameters, None]:
        signature = inspect.signature(function)
        kinds = kinds_of(function)
        operator, *_ = [operators.define(name, function, kinds) for name in (function.__name__, *other_names)]
        packed_kinds = {name: kind.packed or kind for name, kind in kinds.items()}
        packed_operator = operator
        if packed_kinds != kinds:
            packed_operator = operators.define(f"{function.__name__}_packed", function, packed_kinds)

        def as_operator(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Callable[..., None], dict[str, Any]]:
            """The operator that a call wants, and its arguments."""
            if any(isinstance(value, PackedWeights) for value in (*args, *kwargs.values())):
                return packed_operator, operators.flat_arguments(packed_kinds, args, kwargs)
            return operator, operators.flat_arguments(kinds, args, kwargs)

        def trace(*args: Any, **kwargs: Any) -> None:
            named = dict(zip(kinds, args))  # noqa: B905  too many are refused elsewhere
            named.update(kwargs)
            epilogue = named.get("epilogue")
            step = cast_of(epilogue) if isinstance(epilogue, Epilogue) else None
            if step is None:
                called, flat = as_operator(args, kwargs)
                called(**flat)
                return
            assert isinstance(epilogue, Epilogue)
            d, scales, count = cast_parts(step, named["d"])
            named.update({"d": (d, scales), "epilogue": without_cast(epilogue, step)})
            called, flat = as_operator((), named)
            flat["d_count"] = count
            called(**flat)
            store_count(step, count)

        def cast(*args: Any, **kwargs: Any) -> None:
            """A call whose epilogue has the scales of D, and how often it bounds."""
            arguments = dict(signature.bind(*args, **kwargs).arguments)
            epilogue = arguments["epilogue"]
            step = cast_of(epilogue)
            assert step is not None
            d, scales, count = cast_parts(step, arguments["d"])
            written = written_by(d, scales, count)
            scope[function.__name__](**arguments | {"d": written, "epilogue": without_cast(epilogue, step)})
            store_count(step, count)

        def settle(error: Exception, *args: Any, **kwargs: Any) -> Exception | None:
            """None where the call was served after all."""
            arguments = dict(signature.bind(*args, **kwargs).arguments)
            tensors = list(tensors_of(arguments))
            rejection = wrong_kind(kinds, arguments)
            if rejection is not None:
                return rejection
            if operators.is_traced([tensor for _, tensor in tensors]):
                operators.serve_traced(*as_operator(args, kwargs))
            elif any(tensor.is_neg() for _, tensor in tensors):
                _run_resolved(function, arguments)
            elif torch.is_grad_enabled() and any(tensor.requires_grad for _, tensor in tensors):
                return wants_gradient(tensors, function.__name__)
            else:
                rejections = (no_memory(name, tensor, function.__name__) for name, tensor in tensors)
                # Frames of C++, which a caller cannot read, go with the traceback.
                return next(filter(None, rejections), error.with_traceback(None))
            return None

        parameters = [
            f"{name}={name}" if parameter.kind is parameter.KEYWORD_ONLY else name
            for name, parameter in signature.parameters.items()
        ]
        bare = signature.replace(
            parameters=[parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()],
            return_annotation=signature.empty,
        )
        text = _TEMPLATE.format(
            name=function.__name__,
            signature=bare,
            arguments=", ".join(parameters),
            cast=_CAST.format(arguments=", ".join(parameters)) if "epilogue" in signature.parameters else "",
        )
        scope: dict[str, Any] = {
            "is_dynamo_compiling": is_dynamo_compiling,
            "function": function,
            "trace": trace,
            "settle": settle,
            "has_cast": lambda epilogue: isinstance(epilogue, Epilogue) and cast_of(epilogue) is not None,
            "cast": cast,
        }
        exec(compile(text, f"<deep_gemm.{function.__name__}>", "exec"), scope)
        return functools.wraps(function)(scope[function.__name__])

    return decorate


def named(function: Callable[Parameters, None], name: str, doc: str) -> Callable[Parameters, None]:
    """As if it were written out in its module."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _run_resolved(function: Callable[..., None], arguments: dict[str, Any]) -> None:
    """A call with tensors that torch only says to be negated: with their values."""
    resolved: dict[int, torch.Tensor] = {}  # by identity, so that a c that is d stays so

    def resolve(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(map(resolve, value))
        if isinstance(value, torch.Tensor) and value.is_neg():
            return resolved.setdefault(id(value), value.resolve_neg())
        return value

    d = arguments["d"]
    function(**{name: resolve(value) for name, value in arguments.items()})
    for written in d if isinstance(d, (tuple, list)) else (d,):
        if written.is_neg():
            written.copy_(resolved[id(written)])


def layout(function: Callable[Parameters, torch.Tensor]) -> Callable[Parameters, torch.Tensor]:
    """Decorate a function that brings scales into a layout: an operator of torch, which serves where torch traces."""
    operator = operators.define_layout(function)
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> torch.Tensor:
        if is_dynamo_compiling():
            return operator(*args, **kwargs)
        arguments = dict(signature.bind(*args, **kwargs).arguments)
        tensors = list(tensors_of(arguments))
        if operators.is_traced([tensor for _, tensor in tensors]):
            return operator(*args, **kwargs)
        for name, tensor in tensors:
            rejection = no_memory(name, tensor, function.__name__) if _is_empty_handed(tensor) else None
            if rejection is not None:
                raise rejection
        return function(*args, **kwargs)

    return call


def _is_empty_handed(tensor: torch.Tensor) -> bool:
    return type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.data_ptr() == 0
