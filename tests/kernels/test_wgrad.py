"""Gradients of weights: scales per row on both sides, recipe (1, 1, 128), FP32 accumulated in place.

As Megatron-style training does it: `main_grad[N, K] += dy[tokens, N].T @ x[tokens, K]`, both quantised along the
tokens, so that the product's K is the number of tokens.
"""

from __future__ import annotations

import pytest
import torch
from candidates import forced_tile
from devices import BUT_SM100, EACH_ARCH, FEW
from inputs import GuardedOutput, Operand, mn_major, random_rows, random_values
from reference import assert_matches, product_nt

import deep_gemm

RECIPE = (1, 1, 128)
LARGEST = 2.0**128 - 2.0**116 - 2.0**104  # scale whose leading 11 bits are finite when rounded


def operands(m: int, n: int, k: int, device: torch.device, seed: int = 0) -> tuple[Operand, Operand]:
    return random_rows((m, k), device, seed), random_rows((n, k), device, seed + 1)


@pytest.mark.parametrize("device", FEW, indirect=True)
# Tiles that problems of such a size do not get by themselves: three math warpgroups, two accumulators a warpgroup.
@pytest.mark.sampled(10)
@pytest.mark.parametrize("add", ["nothing", "c_is_d", "c_separate"])
@pytest.mark.parametrize(
    ("swapped", "rows", "cols"),
    [
        (False, 192, 128),
        (False, 128, 128),
        (False, 128, 64),
        (False, 128, 80),
        (False, 128, 112),
        (False, 256, 64),
        (False, 128, 160),
        (True, 128, 96),
        (True, 128, 128),
    ],
)
def test_every_tile(device, swapped, rows, cols, add) -> None:
    m, n, k = 200, 140, 400
    a, b = operands(m, n, k, device)
    c = random_values((m, n), device, 7)
    out = GuardedOutput((m, n), torch.float32, device)
    if add == "c_is_d":
        out.tensor.copy_(c)
    with forced_tile(device, (m, n, k), swapped, rows, cols):
        deep_gemm.fp8_gemm_nt(
            a, b, out.tensor, c={"nothing": None, "c_is_d": out.tensor, "c_separate": c}[add], recipe=RECIPE
        )
    out.check()
    assert_matches(out.tensor, product_nt(a, b, None if add == "nothing" else c))


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize(("swapped", "cols"), [(False, 128), (True, 128), (False, 112), (True, 80), (False, 64)])
def test_products_of_scales(device, swapped, cols) -> None:
    """The tensor cores multiply them in two parts of 11 bits: both count, to within 2^-22 of a product, and bits below
    belong to neither. One element of each K block is 1."""
    m, n, k = 136, 160, 384
    generator = torch.Generator().manual_seed(int(swapped))
    sides = []
    for rows in (m, n):
        data = torch.zeros((rows, k), dtype=torch.float8_e4m3fn)
        data[:, 64::128] = 1.0
        significands = torch.randint(1 << 23, 1 << 24, (rows, k // 128), generator=generator)
        exponents = torch.randint(-60, -20, (rows, k // 128), generator=generator)
        sides.append(Operand(data.to(device), torch.ldexp(significands.float(), exponents).to(device)))
    a, b = sides
    out = GuardedOutput((m, n), torch.float32, device)
    with forced_tile(device, (m, n, k), swapped, 128, cols):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor, recipe=RECIPE)
    out.check()
    expected = a.scales.double() @ b.scales.double().T
    assert ((out.tensor.double() - expected).abs() / expected).max() < 2.0**-21


@pytest.mark.parametrize("device", BUT_SM100, indirect=True)
@pytest.mark.parametrize("scale", [LARGEST, -LARGEST, (2 - 2**-23) * 2.0**-118, 2.0**-126, 0.0])
def test_products_of_scales_at_the_ends_of_fp32(device, scale) -> None:
    """Their parts overflow no sooner than at 2^128 - 2^116, and keep signs, zeros and subnormal values."""
    m, n, k = 128, 128, 128
    one = torch.ones((m, k)).to(torch.float8_e4m3fn).to(device)
    ends = Operand(one, torch.full((m, 1), scale, device=device))
    other = Operand(one, torch.full((n, 1), 2.0**-20 if abs(scale) > 1 else 2.0**20, device=device))
    for swapped in (False, True):
        a, b = (other, ends) if swapped else (ends, other)
        out = GuardedOutput((m, n), torch.float32, device)
        with forced_tile(device, (m, n, k), False, 128, 128):
            deep_gemm.fp8_gemm_nt(a, b, out.tensor, recipe=RECIPE)
        out.check()
        assert_matches(out.tensor, product_nt(a, b))


def added(a: Operand, b: Operand, gradient: bool = True) -> torch.Tensor:
    """The product; of a gradient, added to zeros where they lie."""
    d = torch.zeros((a.data.shape[0], b.data.shape[0]), device=a.data.device)
    deep_gemm.fp8_gemm_nt(a, b, d, c=d if gradient else None, recipe=RECIPE)
    return d


@pytest.mark.kernels_of("sm90")
@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("gradient", [True, False], ids=["gradient", "forward"])
def test_batch_invariance(device, gradient, batch_invariant) -> None:
    """On request: all of a gradient's tiles have products of scales by the tensor cores, whose last bits are not a
    multiplication's, and no tile of other calls has."""
    m, n, k = 300, 264, 7168
    a, b = operands(m, n, k, device)
    by_tensor_cores, by_threads = [(False, 128, 128), (False, 128, 64)], [(True, 128, 64), (False, 192, 96)]
    tiles = by_tensor_cores if gradient else [*by_threads, by_tensor_cores[0]]
    whole = added(a, b, gradient)
    for tile in tiles:
        with forced_tile(device, (m, n, k), *tile):
            assert torch.equal(added(a, b, gradient), whole), tile
    for first, last in ((0, 1), (5, 21), (17, 150)):
        part = added(Operand(a.data[first:last], a.scales[first:last]), b, gradient)
        assert torch.equal(part, whole[first:last]), (first, last)
    for tile in by_threads if gradient else ():
        with forced_tile(device, (m, n, k), *tile), pytest.raises(ValueError, match="asks for equal bits"):
            added(a, b)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 16), (7, 24, 64), (1, 520, 256), (300, 8, 144)])
def test_small_gradients_under_batch_invariance(device, m, n, k, batch_invariant) -> None:
    """A tile that may multiply scales is left, however little of it is wanted."""
    a, b = operands(m, n, k, device)
    out = GuardedOutput((m, n), torch.float32, device)
    out.tensor.zero_()
    deep_gemm.fp8_gemm_nt(a, b, out.tensor, c=out.tensor, recipe=RECIPE)
    out.check()
    assert_matches(out.tensor, product_nt(a, b))


@pytest.mark.kernels_of("sm90")
@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("multiple", [(1, 48), (1, 192), (192, 1)])
def test_batch_invariance_with_tiles_of_a_multiple(device, multiple, batch_invariant) -> None:
    """With the last two no tile is left in which the tensor cores could multiply scales: then threads do in all."""
    a, b = operands(300, 264, 1024, device)
    deep_gemm.set_block_size_multiple_of(*multiple, device=device)
    try:
        whole = added(a, b)
        assert_matches(whole, product_nt(a, b))
        assert torch.equal(added(Operand(a.data[17:40], a.scales[17:40]), b), whole[17:40])
    finally:
        deep_gemm.set_block_size_multiple_of(1, device=device)


@pytest.mark.parametrize(("rows", "cols"), [(192, 128), (128, 192)])
def test_stages_are_kept_until_their_scales_are_read(device, rows, cols) -> None:
    """Not all scales per column fit registers there. K goes round the ring three times."""
    m, n, k = 192, 192, 12 * 128
    a, b = operands(m, n, k, device)
    out = GuardedOutput((m, n), torch.float32, device)
    with forced_tile(device, (m, n, k), False, rows, cols):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor, recipe=RECIPE)
    out.check()
    assert_matches(out.tensor, product_nt(a, b))


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_bf16_from_three_warpgroups(device) -> None:
    a, b = operands(200, 136, 272, device)
    out = GuardedOutput((200, 136), torch.bfloat16, device)
    with forced_tile(device, (200, 136, 272), False, 192, 128):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor, recipe=RECIPE)
    out.check()
    assert_matches(out.tensor, product_nt(a, b))


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("layout", ["nt", "tn"])
def test_megatron_style_accumulation(device, layout) -> None:
    """Micro-batches of different lengths are added to a slice of the buffer that holds every gradient."""
    n, k = 72, 136
    buffer = torch.full((3 * n * k + 40,), 3.0, device=device)
    main_grad = buffer[n * k + 20 : 2 * n * k + 20].view(n, k)
    main_grad.zero_()
    expected = torch.zeros((n, k), dtype=torch.float64, device=device)
    magnitude = torch.zeros_like(expected)
    for step, tokens in enumerate([128, 48, 272]):
        dy, x = operands(n, k, tokens, device, seed=10 * step)
        product = product_nt(dy, x)
        expected += product.value
        magnitude += product.magnitude
        if layout == "nt":
            pair = (Operand(dy.data, mn_major(dy.scales)), Operand(x.data, mn_major(x.scales)))
        else:
            pair = tuple(
                Operand(t.data.view(torch.uint8).T.contiguous().view(t.data.dtype), t.scales.T.contiguous())
                for t in (dy, x)
            )
        getattr(deep_gemm, f"fp8_gemm_{layout}")(*pair, main_grad, c=main_grad, recipe=RECIPE)
    assert_matches(main_grad, type(product)(expected, magnitude))
    assert (buffer[: n * k + 20] == 3).all()
    assert (buffer[2 * n * k + 20 :] == 3).all()


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize(
    ("n", "row_stride", "offset"), [(135, 135, 64), (136, 141, 64), (136, 144, 65), (136, 200, 64)]
)
def test_accumulating_into_a_slice(device, n, row_stride, offset) -> None:
    """Where pairs of columns are not aligned to eight bytes, single ones are added."""
    a, b = operands(67, n, 144, device)
    c = random_values((67, n), device, 5)
    out = GuardedOutput((67, n), torch.float32, device, row_stride=row_stride, offset=offset)
    out.tensor.copy_(c)
    deep_gemm.fp8_gemm_nt(a, b, out.tensor, c=out.tensor, recipe=RECIPE)
    out.check()
    assert_matches(out.tensor, product_nt(a, b, c))


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_scales_of_one_token_block_only(device) -> None:
    a, b = operands(40, 48, 128, device)
    c = random_values((40, 48), device, 5)
    d = c.clone()
    deep_gemm.fp8_gemm_nt(a, b, d, c=d, recipe_a=(1, 128), recipe_b=(1, 128))
    assert_matches(d, product_nt(a, b, c))


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_equal_bits_from_run_to_run(device) -> None:
    a, b = operands(129, 136, 640, device)
    c = random_values((129, 136), device, 5)
    runs = []
    for _ in range(2):
        d = c.clone()
        deep_gemm.fp8_gemm_nt(a, b, d, c=d, recipe=RECIPE)
        runs.append(d)
    assert torch.equal(*runs)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_c_where_d_lies_but_in_other_strides(device) -> None:
    a, b = operands(32, 64, 128, device)
    out = GuardedOutput((64, 64), torch.float32, device)
    with pytest.raises(ValueError, match="c shares memory with d but is not d itself"):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor[::2], c=out.tensor[:32], recipe=RECIPE)
    out.assert_untouched()


@pytest.mark.gpu
@pytest.mark.parametrize("inplace", [True, False], ids=["c_is_d", "c_separate"])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(4096, 7168, 4096), (2112, 7168, 8192), (7168, 2048, 4096 + 16), (576, 7168, 100 * 16)]
)
def test_large_shapes(cuda, m, n, k, inplace) -> None:
    a, b = operands(m, n, k, cuda)
    c = random_values((m, n), cuda, 5)
    out = GuardedOutput((m, n), torch.float32, cuda)
    out.tensor.copy_(c)
    deep_gemm.fp8_gemm_nt(a, b, out.tensor, c=out.tensor if inplace else c, recipe=RECIPE)
    out.check()
    assert_matches(out.tensor, product_nt(a, b, c))
