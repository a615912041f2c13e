"""pack_weights by the kernel that packs on a GPU: the bits that torch makes, and the same rejections."""

from __future__ import annotations

import pytest
import torch
from packed_inputs import EVERY_ORDER, FORMATS, same, wanted, weights

from deep_gemm import pack_weights
from deep_gemm.utils import pack_int4
from deep_gemm.weights import codes as code
from deep_gemm.weights import write_codes


@pytest.fixture
def with_kernel(monkeypatch) -> None:
    """CPU tensors are packed as those of a GPU are, on the simulator."""
    monkeypatch.setattr(write_codes, "_write_with_torch", write_codes._write_with_kernel)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", EVERY_ORDER)
def test_the_kernel_packs_the_same_bits(name, packed, request) -> None:
    """Also where it finds a -8 and has to pack again, and in parts."""
    arguments = EVERY_ORDER[name]
    if packed and arguments["element"] == "e4m3":
        arguments = {**arguments, "values": arguments["values"].mT.contiguous().mT}
    elif packed:
        arguments = {**arguments, "values": pack_int4((arguments["values"].view(torch.int8) << 4) >> 4), "packed": True}
    by_torch = pack_weights(**arguments)
    assert by_torch.folds_exponents == (name == "e2m1-fp8-folded")
    request.getfixturevalue("with_kernel")
    request.getfixturevalue("monkeypatch").setattr(code, "_VALUES_AT_ONCE", 1)
    assert same(pack_weights(**arguments), by_torch)


@pytest.mark.parametrize(("element", "value"), [("int4", 8), ("int4", -9), ("uint4", -1), ("uint4", 16), ("e2m1", 99)])
def test_the_kernel_refuses_the_same_values(element, value, with_kernel) -> None:
    values = torch.zeros((40, 128), dtype=torch.int8)
    values[39, 127] = value
    zeros = torch.zeros((40, 1), dtype=torch.int32) if element == "uint4" else None
    with pytest.raises(ValueError, match=rf"values of '{element}' must lie within .*, but one is {value}"):
        pack_weights(values, torch.ones(40, 1), zeros, element=element, activations="fp8", group_size=128)


def test_the_kernel_refuses_nan(with_kernel) -> None:
    values = torch.zeros((40, 128)).to(torch.float8_e4m3fn)
    values[39, 127] = torch.nan
    with pytest.raises(ValueError, match="values of 'e4m3' must not be NaN"):
        pack_weights(values, torch.ones(40), element="e4m3", activations="bf16")


@pytest.mark.gpu
@pytest.mark.parametrize(("element", "activations"), FORMATS)
def test_packing_on_a_gpu_gives_the_same_bits(element, activations, cuda) -> None:
    arguments = weights(element, activations, (3, 130, 2880), 32)
    moved = {name: x.to(cuda) if isinstance(x, torch.Tensor) else x for name, x in arguments.items()}
    packed = pack_weights(**moved)
    assert packed.device == cuda
    assert same(packed.to("cpu"), pack_weights(**arguments))
    assert torch.equal(packed.dequantize().cpu(), wanted(arguments))
