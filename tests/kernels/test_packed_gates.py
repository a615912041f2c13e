"""Gated activations beside packed weights: `pack_weights(..., gate_up=...)`."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from call_checks import settings
from devices import TAKE_PACKED
from inputs import GuardedOutput, random_rows, random_values
from test_gates import LAYOUTS, assert_close, expected

import deep_gemm
from deep_gemm import PackedWeights, simulator
from deep_gemm.epilogue import Alpha, Chain, RowScale, SwiGLU
from deep_gemm.utils import per_token_cast_to_fp8

SwiGLU7 = lambda layout: SwiGLU(limit=7.0, layout=layout)  # noqa: E731
# Activations, element, the K that shares a scale, whether there are zero points; and the function.
WEIGHTS: dict[str, tuple[str, str, int | None, bool, str]] = {
    "bf16 by int4": ("bf16", "int4", 128, False, "bf16_int4_gemm_nt"),
    "bf16 by uint4": ("bf16", "uint4", 64, True, "bf16_int4_gemm_nt"),
    "bf16 by int4 of channels": ("bf16", "int4", None, False, "bf16_int4_gemm_nt"),
    "bf16 by mxfp4": ("bf16", "e2m1", 32, False, "bf16_fp4_gemm_nt"),
    "bf16 by int8": ("bf16", "int8", 128, False, "bf16_int8_gemm_nt"),
    "bf16 by uint8": ("bf16", "uint8", None, True, "bf16_int8_gemm_nt"),
    "bf16 by fp8": ("bf16", "e4m3", 128, False, "bf16_fp8_gemm_nt"),
    "fp8 by int4": ("fp8", "int4", 128, False, "fp8_int4_gemm_nt"),
    "int8 by int4": ("int8", "int4", None, False, "int8_int4_gemm_nt"),
    "int8 by uint4": ("int8", "uint4", 128, True, "int8_int4_gemm_nt"),
    "int4 by int4": ("int4", "int4", None, False, "int4_gemm_nt"),
    "fp8 by mxfp4": ("fp8", "e2m1", 32, False, "fp8_fp4_gemm_nt"),
}


def packed(stem: str, shape: tuple[int, ...], device: torch.device, gate_up: str | None) -> PackedWeights:
    activations, element, group, zero_points, _ = WEIGHTS[stem]
    generator = torch.Generator().manual_seed(3)
    *lead, k = shape
    groups = (*lead, 1 if group is None else -(-k // group))
    scales = 2.0 ** torch.randint(-6, -3, groups, generator=generator)
    zeros = torch.randint(0, 16, groups, generator=generator, dtype=torch.int32) if zero_points else None
    low, high = {"int4": (-8, 8), "int8": (-128, 128), "uint8": (0, 256)}.get(element, (0, 16))
    dtype = torch.uint8 if element == "uint8" else torch.int8
    values = torch.randint(low, high, shape, generator=generator, dtype=dtype)
    if element == "e4m3":
        values = torch.randn(shape, generator=generator).to(torch.float8_e4m3fn)
    if group is None:
        scales = scales.squeeze(-1)
    return deep_gemm.pack_weights(
        values.to(device),
        scales.to(device),
        None if zeros is None else zeros.to(device),
        element=element,
        activations=activations,
        group_size=group,
        gate_up=gate_up,
    )


def tokens(stem: str, shape: tuple[int, ...], device: torch.device) -> Any:
    if stem.startswith("fp8"):
        return tuple(random_rows(shape, device, 1))
    if stem.startswith("int"):
        generator = torch.Generator().manual_seed(1)
        low = -128 if stem.startswith("int8") else -8
        pairs = shape[-1] // (1 if low == -128 else 2)
        values = torch.randint(-128, 128, (*shape[:-1], pairs), generator=generator, dtype=torch.int8)
        return values.to(device), torch.full((*shape[:-1],), 0.5 / -low).to(device)
    return random_values(shape, device, 1).bfloat16()


@pytest.mark.sampled(20)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("stem", WEIGHTS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("with_c", [False, True])
@pytest.mark.parametrize("sizes", [(3, 8, 128), (33, 72, 208), (130, 136, 384), (600, 128, 256)])
def test_dense(device, stem, layout, with_c, sizes) -> None:
    """C and bias lie as the checkpoint's rows do."""
    m, columns, k = sizes
    a, function = tokens(stem, (m, k), device), getattr(deep_gemm, WEIGHTS[stem][-1])
    c = random_values((m, 2 * columns), device, 4) if with_c else None
    bias = random_values((2 * columns,), device, 5)
    product = torch.empty(m, 2 * columns, device=device)
    function(a, packed(stem, (2 * columns, k), device, None), product, c, bias=bias)
    d = GuardedOutput((m, columns), torch.float32, device)
    function(a, packed(stem, (2 * columns, k), device, layout), d.tensor, c, bias=bias, epilogue=SwiGLU7(layout))
    d.check()
    clamped = product.double()
    gates, ups = clamped.chunk(2, -1) if layout == "halves" else (clamped[..., ::2], clamped[..., 1::2])
    gates, ups = gates.clamp(max=7), ups.clamp(-7, 7)
    assert torch.allclose(d.tensor.double(), gates * torch.sigmoid(gates) * ups, rtol=1e-5, atol=1e-4)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("stem", ["bf16 by int4", "bf16 by mxfp4", "fp8 by mxfp4", "int8 by uint4"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("grouping", ["contiguous", "psum", "masked"])
def test_experts(device, stem, layout, grouping) -> None:
    n, k, counts = 144, 256, [5, 0, 130]
    function = "m_grouped_" + WEIGHTS[stem][-1] + ("_masked" if grouping == "masked" else "_contiguous")
    call: Callable[..., None] = getattr(deep_gemm, function)
    bias = random_values((len(counts), n), device, 5)
    if grouping == "masked":
        shape: tuple[int, ...] = (len(counts), 136, k)
        where: tuple[Any, ...] = (torch.tensor(counts, dtype=torch.int32, device=device), 40)
        more: dict[str, Any] = {}
    else:
        shape = (128 + 256, k)
        rows = torch.full((384,), -1, dtype=torch.int32, device=device)
        rows[:5], rows[128:258] = 0, 2
        ends = torch.tensor([5, 128, 258], dtype=torch.int32, device=device)
        where = (ends,) if grouping == "psum" else (rows,)
        more = {"use_psum_layout": grouping == "psum"}
    a = tokens(stem, shape, device)
    product = torch.full((*shape[:-1], n), float("nan"), device=device)
    call(a, packed(stem, (len(counts), n, k), device, None), product, *where, bias=bias, **more)
    d = GuardedOutput((*shape[:-1], n // 2), torch.bfloat16, device)
    w = packed(stem, (len(counts), n, k), device, layout)
    call(a, w, d.tensor, *where, bias=bias, epilogue=SwiGLU(layout=layout), **more)
    d.check(complete=False)
    known = ~(wanted := expected(product, layout)).isnan()
    assert known.any()
    assert_close(torch.where(known, d.tensor, 0), torch.where(known, wanted, 0))


@pytest.mark.sampled(8)
@pytest.mark.usefixtures("batch_invariant")  # sums in one order, whoever has them
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("stem", WEIGHTS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("group", "words"), [(128, False), (128, True), (32, True)])
@pytest.mark.parametrize(("m", "columns", "k"), [(3, 256, 128), (33, 232, 384), (130, 384, 256)])
def test_quantised_output(device, stem, layout, group, words, m, columns, k) -> None:
    w, a = packed(stem, (2 * columns, k), device, layout), tokens(stem, (m, k), device)
    product = getattr(deep_gemm, WEIGHTS[stem][-1])
    plain = torch.full((m, columns), torch.nan, device=device)
    product(a, w, plain, epilogue=SwiGLU(layout=layout))
    q, s = empty_pair(m, columns, group, words, device)
    product(a, w, (q, s), epilogue=SwiGLU(layout=layout))
    wanted, scales = per_token_cast_to_fp8(plain, use_ue8m0=words, gran_k=group)
    assert torch.equal(q.view(torch.uint8), wanted.view(torch.uint8))
    if words:
        bytes_of = s.clone(memory_format=torch.contiguous_format).view(torch.uint8).to(torch.int32)
        s = (bytes_of[:, : scales.shape[1]] << 23).view(torch.float32)
    assert torch.equal(s, scales)


def empty_pair(
    m: int, columns: int, group: int, words: bool, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    entries = -(-columns // (group * 4 if words else group))
    q = torch.full((m, columns), torch.nan, device=device).to(torch.float8_e4m3fn)
    s = torch.full((entries, -(-m // 4) * 4), -1, device=device, dtype=torch.int32 if words else torch.float32)
    return q, s[:, :m].T


def test_a_scale_of_128_columns_wants_an_even_number_of_blocks() -> None:
    cpu = torch.device("cpu")
    w, a = packed("bf16 by int4", (272, 128), cpu, "halves"), tokens("bf16 by int4", (3, 128), cpu)
    with pytest.raises(ValueError, match=r"w must have N of an even number of blocks of 128 rows .*got N=272"):
        deep_gemm.bf16_int4_gemm_nt(a, w, empty_pair(3, 136, 128, False, cpu), epilogue=SwiGLU())


@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
def test_alpha_and_row_weights(device) -> None:
    stem, layout = "bf16 by mxfp4", "interleaved"
    a, weights = tokens(stem, (20, 128), device), random_values((20,), device, 2)
    product, d = torch.empty(20, 64, device=device), torch.empty(20, 32, device=device)
    deep_gemm.bf16_fp4_gemm_nt(a, packed(stem, (64, 128), device, None), product)
    steps = Chain(Alpha(0.5), SwiGLU(layout=layout), RowScale(weights))
    deep_gemm.bf16_fp4_gemm_nt(a, packed(stem, (64, 128), device, layout), d, epilogue=steps)
    wanted = expected(0.5 * product, layout) * weights.double().unsqueeze(-1)
    assert torch.allclose(d.double(), wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("stem", WEIGHTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dequantize_gives_rows_as_they_were_given(stem, layout) -> None:
    for shape in ((80, 200), (2, 4112, 64)):
        w, plain = (packed(stem, shape, torch.device("cpu"), how) for how in (layout, None))
        assert torch.equal(w.dequantize(), plain.dequantize())
        assert not torch.equal(w.codes, plain.codes)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_is_kept(layout) -> None:
    w, plain = (packed("bf16 by uint4", (2, 80, 256), torch.device("cpu"), how) for how in (layout, None))
    others = pickle.loads(pickle.dumps(w)), copy.deepcopy(w), PackedWeights.from_state_dict(w.state_dict()), w[1:]
    for other in (*others, w[0], w.slice_k(128, 256), w.to("cpu")):
        assert other.gate_up == layout
    assert torch.equal(w.slice_k(128, 256).dequantize(), w.dequantize()[..., 128:])
    assert torch.equal(w[1].dequantize(), w.dequantize()[1])
    assert "gates and ups" in repr(w)
    assert "gates" not in repr(plain)
    assert "gate_up" not in plain.tensors()[1]
    with pytest.raises(ValueError, match="packed with gate_up cannot be cut along N"):
        w.slice_n(0, 64)
    with pytest.raises(ValueError, match="gate_up must be None, got"):
        plain.write(0, w[0])
    w.write(0, w[1])
    assert torch.equal(w[0].dequantize(), w[1].dequantize())


def test_what_does_not_fit_is_refused() -> None:
    cpu = torch.device("cpu")
    a, d = tokens("bf16 by int4", (4, 128), cpu), torch.full((4, 32), float("nan"))
    plain, halves = (packed("bf16 by int4", (64, 128), cpu, how) for how in (None, "halves"))
    call = deep_gemm.bf16_int4_gemm_nt
    with pytest.raises(ValueError, match=r"w must be packed with gate_up='halves' .* got gate_up=None"):
        call(a, plain, d, epilogue=SwiGLU())
    with pytest.raises(ValueError, match=r"w must be packed with gate_up='interleaved' .* got gate_up='halves'"):
        call(a, halves, d, epilogue=SwiGLU(layout="interleaved"))
    with pytest.raises(ValueError, match="w is packed with gate_up='halves': epilogue must have a gated activation"):
        call(a, halves, torch.empty(4, 64))
    with pytest.raises(ValueError, match="gate_up must be None, 'halves' or 'interleaved', got 'half'"):
        packed("bf16 by int4", (64, 128), cpu, "half")
    with pytest.raises(ValueError, match="N must be a multiple of 16 where gate_up is given, got 24"):
        packed("bf16 by int4", (24, 128), cpu, "halves")
    codes, scales = torch.zeros(64, 64, dtype=torch.int8), torch.ones(64, 4)
    pair = tokens("fp8 by mxfp4", (4, 128), cpu)
    with pytest.raises(ValueError, match="w must be packed weights for a gated activation"):
        deep_gemm.fp8_fp4_gemm_nt(pair, (codes, scales), d, epilogue=SwiGLU())
    assert d.isnan().all()
    sums, q = torch.zeros(4, 32, dtype=torch.int32), tokens("int8 by int4", (4, 128), cpu)[0]
    with pytest.raises(ValueError, match="d must not be int32 for a gated activation"):
        deep_gemm.int8_int4_gemm_nt(q, packed("int8 by int4", (64, 128), cpu, "halves"), sums, epilogue=SwiGLU())
    w = packed("int8 by int4", (32, 128), cpu, None)
    with pytest.raises(ValueError, match="no Alpha where d is int32"):
        deep_gemm.int8_int4_gemm_nt(q, w, sums, epilogue=Alpha(2.0))


def test_no_room_for_a_cluster_is_said() -> None:
    """On Hopper two CTAs have the weights of 128 columns that share a scale."""
    weights = packed("fp8 by int4", (512, 128), torch.device("cpu"), "halves")
    tokens = random_rows((16, 128), torch.device("cpu"), 0)
    d = torch.full((16, 256), 3.0).to(torch.float8_e4m3fn), torch.full((2, 16), torch.nan).T
    with (
        settings(torch.device("cpu"), num_sms=1),
        simulator.options(target="sm_90a"),
        pytest.raises(ValueError, match=r"1 of the SMs.* see set_num_sms"),
    ):
        deep_gemm.fp8_int4_gemm_nt(tokens, weights, d, epilogue=SwiGLU())
    assert d[0].float().eq(3).all()
    assert d[1].isnan().all()
