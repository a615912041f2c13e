"""Products with packed weights of four bits, against FP64 products of what they stand for."""

from __future__ import annotations

import pytest
import torch
from devices import TAKE_PACKED
from grouped_inputs import alignment_of
from guarded_products import guarded_product
from inputs import GuardedOutput, ceil_div
from kind_marks import EVERY_KIND
from packed_products import (
    COUNTS,
    HEIGHT,
    HUGE,
    KINDS,
    ROUNDING,
    SIZES,
    Tokens,
    check,
    expert_bias,
    on,
    weights,
)
from torch.fx.experimental.proxy_tensor import make_fx

import deep_gemm
from deep_gemm.utils import pack_int4


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("dtype", [*ROUNDING], ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("added", ["nothing", "c", "d"])
@EVERY_KIND
def test_dense(device, kind, added, size, dtype) -> None:
    m, n, k = size
    generator = torch.Generator().manual_seed(m)
    a = Tokens(kind, (m, k), generator)
    w, exact = weights(kind, (n, k), generator)
    assert w.folds_exponents == (kind.powers > 0)
    assert w.holds_minus_eight == (kind.activations == "fp8" and kind.smallest == -8 and kind.zeros is None)
    d = GuardedOutput((m, n), dtype, device)
    c = None if added == "nothing" else torch.randn((m, n), generator=generator).to(dtype).to(device)
    if added == "d":
        d.tensor.copy_(c)
    kind.function("{}_gemm_nt")(a.to(device), w.to(device), d.tensor, d.tensor if added == "d" else c)
    d.check()
    check(d.tensor, a.exact, exact, kind.activations, 0 if c is None else c.double().cpu())


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("dtype", [*ROUNDING], ids=str)
@EVERY_KIND
def test_bias(device, kind, dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    a = Tokens(kind, (20, 256), generator)
    w, exact = weights(kind, (72, 256), generator)
    bias = torch.randn(72, generator=generator).to(dtype)
    d = guarded_product(kind, a, w, device, dtype, bias=bias.to(device))
    check(d, a.exact, exact, kind.activations, bias.double())


@pytest.mark.sampled(5)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("dtype", [*ROUNDING], ids=str)
@pytest.mark.parametrize(("n", "k"), [(136, 272), (24, 640)])
@pytest.mark.parametrize("biased", [False, True])
@EVERY_KIND
def test_masked(device, kind, biased, n, k, dtype) -> None:
    """Counts above the hint, an expert without rows, rows behind counts that are not finite or huge."""
    generator = torch.Generator().manual_seed(2)
    a = Tokens(kind, (len(COUNTS), HEIGHT, k), generator)
    for group, count in enumerate(COUNTS):
        a.data[group, count:] = HUGE[kind.activations]
    w, exact = weights(kind, (len(COUNTS), n, k), generator)
    d = GuardedOutput((len(COUNTS), HEIGHT, n), dtype, device)
    counts = torch.tensor(COUNTS, dtype=torch.int32, device=device)
    bias = expert_bias(kind, biased, n, generator)
    call = kind.function("m_grouped_{}_gemm_nt_masked")
    call(a.to(device), w.to(device), d.tensor, counts, 40, **on(device, bias))
    d.check(complete=False)
    for group, count in enumerate(COUNTS):
        if count:
            added = bias["bias"][group].double() if bias else 0
            check(d.tensor[group, :count], a.exact[group, :count], exact[group], kind.activations, added)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("dtype", [*ROUNDING], ids=str)
@pytest.mark.parametrize(("n", "k"), [(136, 272), (24, 640)])
@pytest.mark.parametrize("psum", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@EVERY_KIND
def test_contiguous(device, kind, biased, psum, n, k, dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    heights = [ceil_div(count, 128) * 128 for count in COUNTS]
    starts = [sum(heights[:group]) for group in range(len(COUNTS))]
    a = Tokens(kind, (sum(heights), k), generator)
    layout = torch.full((sum(heights),), -1, dtype=torch.int32)
    for expert, (start, count) in enumerate(zip(starts, COUNTS, strict=True)):
        layout[start : start + count] = expert
        a.data[start + count : start + heights[expert]] = HUGE[kind.activations]
    if psum:
        layout = torch.tensor([start + count for start, count in zip(starts, COUNTS, strict=True)], dtype=torch.int32)
    w, exact = weights(kind, (len(COUNTS), n, k), generator)
    d = GuardedOutput((sum(heights), n), dtype, device)
    call = kind.function("m_grouped_{}_gemm_nt_contiguous")
    bias = expert_bias(kind, biased, n, generator)
    with alignment_of(128):
        call(a.to(device), w.to(device), d.tensor, layout.to(device), use_psum_layout=psum, **on(device, bias))
    d.check()
    for expert, (start, count) in enumerate(zip(starts, COUNTS, strict=True)):
        rows = slice(start, start + count)
        if count:
            added = bias["bias"][expert].double() if bias else 0
            check(d.tensor[rows], a.exact[rows], exact[expert], kind.activations, added)
        assert not d.tensor[start + count : start + heights[expert]].any(), "padding becomes zero"


@pytest.mark.parametrize("name", ["fp8", "int8", "int4"])
def test_weights_for_other_activations_are_refused(name) -> None:
    generator = torch.Generator().manual_seed(4)
    kind, other = KINDS[name], KINDS["int8" if name != "int8" else "fp8"]
    a = Tokens(kind, (8, 128), generator)
    w, _ = weights(other, (16, 128), generator)
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    with pytest.raises(ValueError, match=f"w is packed for '{other.activations}' activations"):
        kind.function("{}_gemm_nt")(a.to("cpu"), w, d.tensor)
    d.assert_untouched()


@pytest.mark.parametrize("name", ["fp8", "int8-groups-of-128"])
def test_activations_of_other_dtypes_are_refused(name) -> None:
    """Also of those that other functions multiply by such weights."""
    generator = torch.Generator().manual_seed(4)
    kind, other = KINDS[name], KINDS["int8" if name == "fp8" else "fp8-token-scales"]
    a = Tokens(other, (8, 128), generator)
    w, _ = weights(kind, (16, 128), generator)
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    with pytest.raises(TypeError, match="a must be .*, got " + str(a.data.dtype).removeprefix("torch.")):
        kind.function("{}_gemm_nt")(a.to("cpu"), w, d.tensor)
    d.assert_untouched()


def test_int4_of_another_k_is_refused() -> None:
    """Data of a byte for each value, say."""
    generator = torch.Generator().manual_seed(4)
    kind = KINDS["int4"]
    w, _ = weights(kind, (16, 128), generator)
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    a = torch.zeros((8, 128), dtype=torch.int8)
    with pytest.raises(ValueError, match="w has K=128 but a has K=256"):
        deep_gemm.int4_gemm_nt((a, 1.0), w, d.tensor)
    with pytest.raises(ValueError, match="a must have K contiguous, two integers a byte"):
        deep_gemm.int4_gemm_nt((a[:, ::2], 1.0), w, d.tensor)
    d.assert_untouched()


def test_every_pair_of_int4_values() -> None:
    """Each nibble of activations, in either half of a byte, by each code of weights."""
    every = torch.arange(-8, 8, dtype=torch.int8)
    a = torch.zeros((32, 64), dtype=torch.int8)
    a[:16, 0], a[16:, 1] = every, every
    codes = torch.zeros((32, 64), dtype=torch.int8)
    codes[:16, 0], codes[16:, 1] = every, every
    w = deep_gemm.pack_weights(codes, torch.ones(32), element="int4", activations="int4")
    d = torch.zeros(32, 32)
    deep_gemm.int4_gemm_nt((pack_int4(a), 1.0), w, d)
    assert torch.equal(d, a.float() @ codes.float().T)


def test_zero_points_of_int4() -> None:
    generator = torch.Generator().manual_seed(4)
    a = Tokens(KINDS["int4"], (5, 128), generator)
    w, exact = weights(KINDS["int4"], (16, 128), generator)
    zeros = torch.randint(-8, 8, (5,), generator=generator, dtype=torch.int32)
    d = torch.zeros(5, 16)
    deep_gemm.int4_gemm_nt((*a.to(torch.device("cpu")), zeros), w, d)
    shifted = a.exact - zeros.double()[:, None] * a.scales.double()[:, None]
    check(d, shifted, exact, "int4")


def test_k_too_long_for_exact_sums_is_refused() -> None:
    """With groups of K it is multiplied."""
    k = 131200
    a = torch.full((1, k), -128, dtype=torch.int8)
    values = torch.full((8, k), -8, dtype=torch.int8)
    d = GuardedOutput((1, 8), torch.float32, "cpu")
    w = deep_gemm.pack_weights(values, torch.ones(8), element="int4", activations="int8")
    with pytest.raises(ValueError, match="K must be at most 131071 where all of it shares its scales, got 131200"):
        deep_gemm.int8_int4_gemm_nt((a, 1.0), w, d.tensor)
    d.assert_untouched()
    w = deep_gemm.pack_weights(values, torch.ones(8, k // 128), element="int4", activations="int8", group_size=128)
    deep_gemm.int8_int4_gemm_nt((a, 1.0), w, d.tensor)
    d.check()
    assert (d.tensor == 1024 * k).all()


@pytest.mark.parametrize("name", ["fp8-token-scales", "int8"])
def test_masked_rows_as_many_as_groups_of_k(name) -> None:
    """Scales [experts, rows] are of rows, though there are as many as groups of 128 of K."""
    generator = torch.Generator().manual_seed(5)
    kind = KINDS[name]
    a = Tokens(kind, (2, 5, 640), generator)
    w, exact = weights(kind, (2, 24, 640), generator)
    d = GuardedOutput((2, 5, 24), torch.bfloat16, "cpu")
    counts = torch.tensor([5, 3], dtype=torch.int32)
    kind.function("m_grouped_{}_gemm_nt_masked")(a.to("cpu"), w, d.tensor, counts, 5)
    d.check(complete=False)
    for group, count in enumerate((5, 3)):
        check(d.tensor[group, :count], a.exact[group, :count], exact[group], kind.activations)


@pytest.mark.parametrize("name", ["fp8-token-scales", "int8-two-levels"])
def test_packed_products_are_operators_that_are_compiled_and_recorded(name) -> None:
    generator = torch.Generator().manual_seed(9)
    kind = KINDS[name]
    a = Tokens(kind, (5, 256), generator).to("cpu")
    w, _ = weights(kind, (72, 256), generator)
    call = kind.function("{}_gemm_nt")

    def step(data, scales):
        d = torch.zeros(5, 72)
        call((data, scales), w, d)
        return d * 2

    no_zeros = () if kind.activations == "fp8" else (None,)
    tensors = w.codes, w.scales, w.zeros, w.sums, w.second_scales
    want, flat = step(*a), (*a, *no_zeros, *tensors, w._form, torch.zeros(5, 72))
    operator = getattr(torch.ops.deep_gemm, call.__name__).default
    operator(*flat)
    assert torch.equal(flat[-1] * 2, want)
    checks = ["test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    assert set(torch.library.opcheck(operator, flat, test_utils=checks).values()) == {"SUCCESS"}
    torch._dynamo.reset()
    assert torch.equal(torch.compile(step, fullgraph=True, backend="aot_eager")(*a), want)
    recorded = make_fx(step)(*a)
    assert call.__name__ in recorded.code
    assert torch.equal(recorded(*a), want)
