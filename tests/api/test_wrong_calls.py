"""Whatever a caller hands over: no crash, no half-written D, and a message that names the argument."""

from __future__ import annotations

import inspect
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from products import OTHER_NAMES, PRODUCTS, make

import deep_gemm

CALLS = 150


def test_random_wrong_calls_are_refused_in_sentences() -> None:
    seed = random.randrange(1 << 30)  # another one each time; what fails is printed with it
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    program = Path(__file__).resolve().parents[1] / "support" / "wrong_calls.py"
    done = subprocess.run(
        [sys.executable, program, str(CALLS), str(seed)], capture_output=True, text=True, env=environment, check=False
    )
    last = done.stderr.strip().splitlines()[-1:]
    assert done.returncode == 0, f"seed {seed}: ended with {done.returncode} at {last}"
    faults = [json.loads(line) for line in done.stdout.splitlines()]
    assert not faults, "\n".join(map(str, faults))
    assert last[0].startswith(f"{CALLS - 1} "), "not all calls were made"


# What is given in an argument's place, and what the rejection says of it.
WRONG_KINDS = [
    (
        "a",
        None,
        r"a must be a (pair \(tensor, scales\)(, with zeros as a third entry,)?|tensor)( or a tensor)?, got None",
    ),
    ("b", 7, r"b must be a (pair \(tensor, scales\)|tensor)( or a tensor)?, got 7"),
    ("d", None, r"d must be a tensor(, or a pair \(tensor, scales\))?, got None"),
    ("d", "d", r"d must be a tensor(, or a pair \(tensor, scales\))?, got 'd'"),
    ("c", 1.0, r"c must be a tensor or None, got 1.0"),
    ("bias", 1, r"bias must be a tensor or None, got 1"),
    ("compiled_dims", ["n"], r"compiled_dims must be a str such as 'nk', got \['n'\]"),
    ("compiled_dims", "xy", r"compiled_dims must name some of 'm', 'n', 'k', each once, got 'xy'"),
    ("recipe", 128, r"recipe must be three integers .*, got 128"),
    ("recipe", (1, None, 128), r"recipe must be three integers .*, got \(1, None, 128\)"),
    ("recipe_a", (1, 128, 128), r"recipe_a must be two integers .*, got \(1, 128, 128\)"),
    ("grouped_layout", [0, 1], r"grouped_layout must be a tensor( or None)?, got \[0, 1\]"),
    ("masked_m", None, r"masked_m must be a tensor, got None"),
    ("expected_m", None, r"expected_m must be an integer, got None"),
    ("expected_m", True, r"expected_m must be an integer, got True"),
    ("expected_m", float("nan"), r"expected_m must be an integer, got nan"),
    ("expected_m_for_psum_layout", "9", r"expected_m_for_psum_layout must be an integer or None, got '9'"),
    ("ks_cpu", 128, r"ks_cpu must be a sequence of integers or None, got 128"),
    ("ks_cpu", [128, 2.5], r"ks_cpu must be (a sequence of integers or None|an integer), got"),
    ("use_psum_layout", "yes", r"use_psum_layout must be True or False, got 'yes'"),
]


@pytest.mark.parametrize("name", PRODUCTS)
def test_an_argument_of_the_wrong_kind(name) -> None:
    call = make(name)
    accepted = inspect.signature(call.function).parameters
    for argument, value, message in WRONG_KINDS:
        if argument in accepted:
            with pytest.raises((TypeError, ValueError), match=message):
                call(**{argument: value})
    assert call.d.isnan().all()


@pytest.mark.parametrize("name", [name for name in PRODUCTS if "fp8" in name])
def test_operands_without_scales(name) -> None:
    call = make(name)
    data, scales = call.arguments["a"]
    for wrong, message in (
        (data, r"a must be a pair \(tensor, scales\), got a torch.float8_e4m3fn tensor .*: its scales are missing"),
        ((data, None), r"a must be a pair \(tensor, scales\), got \(tensor, None\): the scales must be a tensor"),
        ((data,), r"a must be a pair \(tensor, scales\), got \(tensor\)"),
        ((data, scales, scales), r"a must be a pair \(tensor, scales\), got \(tensor, tensor, tensor\)"),
    ):
        with pytest.raises(TypeError, match=message):
            call(a=wrong)
    assert call.d.isnan().all()


class Wrapper(torch.Tensor):
    """A tensor that stands for another, as DTensor does: a shape, and no memory of its own."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> torch.Tensor:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, strides=inner.stride())

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError(function)


class Sharded(Wrapper):
    def to_local(self) -> torch.Tensor:
        return self.inner


def released(tensor: torch.Tensor) -> torch.Tensor:
    copy = tensor.clone()
    copy.untyped_storage().resize_(0)
    return copy


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize(
    ("without_memory", "way_out"),
    [
        (Wrapper, "it is a Wrapper, which stands for other tensors: .*torch.ops.deep_gemm_jit"),
        (Sharded, r"it is a Sharded: pass the part that lies on this device, d.to_local\(\)"),
        (released, r"its storage was released \(resized to 0\)"),
        (lambda tensor: tensor.to("meta"), "d is on the meta device, but not all tensors of the call are"),
        (lambda tensor: torch.zeros(tensor.shape).to_sparse(), "d must be a dense tensor, got layout"),
    ],
    ids=["wrapper", "sharded", "released", "meta", "sparse"],
)
def test_tensors_without_memory(name, without_memory, way_out) -> None:
    call = make(name)
    with pytest.raises((TypeError, ValueError), match=way_out):
        call(d=without_memory(call.d))
    if "sparse" not in way_out and "dense" not in way_out:
        side = "w" if "w" in call.arguments else "b"
        operand = call.arguments[side]
        spoiled = without_memory(operand[0] if isinstance(operand, tuple) else operand)
        with pytest.raises((TypeError, ValueError), match=rf"^{side} "):
            call(**{side: (spoiled, operand[1]) if isinstance(operand, tuple) else spoiled})
    assert call.d.isnan().all()


@pytest.mark.parametrize("name", [*PRODUCTS, *OTHER_NAMES])
def test_each_docstring_says_what_is_taken_and_what_is_raised(name) -> None:
    function = getattr(deep_gemm, name)
    text = inspect.getdoc(function)
    assert "Raises:" in text
    assert "Args:" in text
    parameters = inspect.signature(function).parameters
    weights = "w" if "w" in parameters else "b"
    assert [parameter for parameter in parameters if parameter in ("a", "b", "w", "d")] == ["a", weights, "d"]


def test_errors_come_from_the_public_function() -> None:
    call = make("fp8_gemm_nt")
    with pytest.raises(ValueError) as caught:
        call(d=call.d[:, :3])
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    frames = [frame.name for frame in caught.traceback]
    assert frames[-1] == "fp8_gemm_nt"
