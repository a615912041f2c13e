"""Products with packed weights that have zero points: from checkpoints, written, captured, at any number of rows."""

from __future__ import annotations

import checkpoints
import pytest
import torch
from devices import TAKE_PACKED
from guarded_products import guarded_product
from inputs import GuardedOutput
from packed_products import KINDS, Kind, Tokens, check, weights

import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C


def random_integers(shape: tuple[int, ...], low: int, high: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(low, high + 1, shape, generator=generator, dtype=torch.int32)


def checkpoint(form: str, generator: torch.Generator, n: int = 96, k: int = 256):
    """A checkpoint's tensors; and what they stand for, in the order of K that they were quantised in."""
    group = k if form == "compressed-tensors" else 64
    codes, zeros = (random_integers(shape, 0, 15, generator) for shape in ((n, k), (n, k // group)))
    scales = ((torch.rand((n, k // group), generator=generator) + 0.5) / 16).half()
    groups = torch.arange(k) // group
    if form == "gptq, out of order":
        groups = groups[torch.randperm(k, generator=generator)]
        tensors = checkpoints.gptq(codes, scales, zeros, "v2", groups)
    elif form == "gptq":
        zeros.clamp_(min=1)
        tensors = checkpoints.gptq(codes, scales, zeros)
    elif form == "awq":
        tensors = checkpoints.awq(codes, scales, zeros)
    elif form == "compressed-tensors":
        tensors = checkpoints.pack_quantized(codes - 8, scales, zeros - 8)
    else:
        factors = random_integers(scales.shape, 1, 8, generator).to(torch.int8)
        tensors = checkpoints.qoq(codes, factors, zeros * factors, scales[:, 0])
        scales = scales[:, :1].double() * factors
    return tensors, (codes - zeros[:, groups]).double() * scales.double()[:, groups]


CHECKPOINTS = [
    ("gptq", "fp8"),
    ("gptq, out of order", "fp8"),
    ("awq", "fp8"),
    ("compressed-tensors", "fp8"),
    ("compressed-tensors", "int8"),
    ("qoq", "int8"),
]


@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize(("form", "activations"), CHECKPOINTS)
def test_checkpoints_with_zero_points_are_multiplied_as_they_were_meant(device, form, activations) -> None:
    generator = torch.Generator().manual_seed(6)
    tensors, exact = checkpoint(form, generator)
    config = {"checkpoint_format": "gptq_v2"} if form == "gptq, out of order" else {}
    w = deep_gemm.weights_from_checkpoint(form.partition(",")[0], tensors, activations=activations, config=config)
    assert w.needs_zeros
    kind = Kind(activations, "rows")
    a = Tokens(kind, (20, 256), generator)
    order = w.input_permutation
    if order is not None:
        exact, a.exact = exact[:, order], a.exact[:, order]
        a.data, w = w.permute_inputs(a.data), w.for_permuted_inputs()
    d = guarded_product(kind, a, w, device)
    check(d, a.exact, exact, activations)


WITH_ZEROS = ["fp8-zeros", "fp8-zeros-groups-of-32", "int8-zeros", "int8-two-levels"]


@pytest.mark.parametrize("name", WITH_ZEROS)
def test_zero_points_that_are_written_are_those_of_the_next_call(name) -> None:
    """The same tensors, so the call is a remembered one."""
    generator = torch.Generator().manual_seed(7)
    kind = KINDS[name]
    a = Tokens(kind, (5, 256), generator)
    w, _ = weights(kind, (1, 128, 256), generator)
    one, exact = weights(kind, (128, 256), generator)
    mine = w[0]
    d = GuardedOutput((5, 128), torch.float32, "cpu")
    for _ in range(3):
        kind.function("{}_gemm_nt")(a.to("cpu"), mine, d.tensor)
    w[0] = one
    kind.function("{}_gemm_nt")(a.to("cpu"), mine, d.tensor)
    check(d.tensor, a.exact, exact, kind.activations)


@pytest.mark.parametrize("name", WITH_ZEROS)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
def test_bits_of_rows_do_not_depend_on_how_many_there_are(name, device, batch_invariant) -> None:
    generator = torch.Generator().manual_seed(8)
    kind = KINDS[name]
    data, scales = Tokens(kind, (130, 640), generator).to(device)
    w = weights(kind, (136, 640), generator)[0].to(device)
    d = torch.zeros(130, 136, device=device)
    with simulator.options(num_sms=8):
        for rows in (130, 7, 1):
            part = torch.zeros(rows, 136, device=device)
            kind.function("{}_gemm_nt")((data[:rows], scales[:rows]), w, part)
            d = part if rows == 130 else d
            assert torch.equal(part, d[:rows])


@pytest.mark.gpu
@pytest.mark.parametrize("name", WITH_ZEROS)
def test_captured_calls_find_what_is_written_later(name, cuda) -> None:
    generator = torch.Generator().manual_seed(10)
    kind = KINDS[name]
    a = Tokens(kind, (5, 256), generator)
    w, _ = weights(kind, (1, 128, 256), generator)
    one, exact = weights(kind, (128, 256), generator)
    w, moved = w.to(cuda), a.to(cuda)
    d = torch.zeros(5, 128, device=cuda)
    kind.function("{}_gemm_nt")(moved, w[0], d)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        kind.function("{}_gemm_nt")(moved, w[0], d)
        after = torch.cuda.memory_stats()["allocation.all.allocated"]
    if kind.scales != "k_groups":  # which are brought into their order first, in memory of torch's
        assert after == before
    w[0] = one
    graph.replay()
    check(d, a.exact, exact, kind.activations)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"zeros_k": 256}, "w has a zero point for each 256 of K, which no kernel subtracts"),
        ({"zeros": None}, "w's zeros must be there where its codes are u4"),
        ({"zeros": torch.zeros((1, 2, 127), dtype=torch.int32)}, r"w's zeros must be contiguous \[1, 2, 128\]"),
        ({"zeros": torch.zeros((1, 2, 128))}, "w's zeros must be int32, got float32"),
    ],
)
def test_zeros_that_do_not_fit_the_codes_are_refused(changed, message) -> None:
    """PackedWeights never have such; who calls the runtime past them learns of it."""
    w, _ = weights(KINDS["fp8-zeros"], (72, 256), torch.Generator())
    zeros = changed.get("zeros", w.zeros)
    numbers = w.record_numbers | {"b_zeros_k": changed.get("zeros_k", 128)}
    a, d = torch.zeros((5, 256)).to(torch.float8_e4m3fn), torch.zeros(5, 72)
    operands = {"a": a, "a_scales": torch.ones(5), "b": w.codes, "b_scales": w.scales, "b_zeros": zeros}
    with pytest.raises((ValueError, TypeError), match=message):
        C.product(**operands | numbers, d=d, layout=6)
