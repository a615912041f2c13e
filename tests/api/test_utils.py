"""deep_gemm.utils and deep_gemm.testing: none of this needs a GPU."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_gemm import simulator, testing, utils

E4M3_MAX = 448.0
SHAPES = [(1, 1), (1, 128), (7, 33), (128, 128), (129, 257), (3, 640), (200, 100)]


def random_matrix(shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def spread(sf, shape, row_group, column_group):
    """The scale of each element."""
    return sf.repeat_interleave(row_group, 0).repeat_interleave(column_group, 1)[: shape[0], : shape[1]]


CASTS = {
    "per_token": (utils.per_token_cast_to_fp8, 1, 128),
    "per_channel": (utils.per_channel_cast_to_fp8, 128, 1),
    "per_block": (utils.per_block_cast_to_fp8, 128, 128),
}


@pytest.fixture(params=CASTS, ids=str)
def cast(request):
    return CASTS[request.param]


def test_integer_helpers():
    assert [utils.ceil_div(x, 4) for x in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [utils.align(x, 128) for x in (0, 1, 128, 129)] == [0, 128, 128, 256]


@given(st.floats(min_value=2.0**-126, max_value=2.0**127, width=32), st.booleans())
def test_ceil_to_ue8m0_is_the_next_power_of_two(value, negative):
    rounded = utils.ceil_to_ue8m0(torch.tensor([-value if negative else value])).item()
    mantissa, _ = torch.frexp(torch.tensor(rounded, dtype=torch.float64))
    assert mantissa.item() == 0.5  # a power of two
    assert value <= rounded < 2 * value


def test_ceil_to_ue8m0_at_the_ends():
    ends = torch.tensor([0.0, 2.0**-149, 2.0**-126, 2.0**127, torch.finfo(torch.float32).max, torch.inf])
    assert utils.ceil_to_ue8m0(ends).tolist() == [2.0**-126] * 3 + [2.0**127] * 3


def test_ceil_to_ue8m0_is_exact_beside_every_power_of_two():
    powers = 2.0 ** torch.arange(-125, 127, dtype=torch.float64)
    powers = powers.float()
    above, below = (torch.nextafter(powers, torch.tensor(end)) for end in (torch.inf, 0.0))
    assert torch.equal(utils.ceil_to_ue8m0(powers), powers)
    assert torch.equal(utils.ceil_to_ue8m0(above), 2 * powers)
    assert torch.equal(utils.ceil_to_ue8m0(below), powers)


def test_pack_ue8m0_puts_the_first_exponent_into_the_low_byte():
    packed = utils.pack_ue8m0_to_int(torch.tensor([[1.0, 2.0, 0.5, 2.0**-126]]))
    assert packed.dtype == torch.int32
    assert packed.tolist() == [[127 | 128 << 8 | 126 << 16 | 1 << 24]]


def test_pack_ue8m0_takes_any_strides():
    x = 2.0 ** torch.arange(16).float().view(8, 2)
    assert torch.equal(utils.pack_ue8m0_to_int(x.t()), utils.pack_ue8m0_to_int(x.t().contiguous()))


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (torch.ones(4, dtype=torch.float64), TypeError, r"torch\.float32, got torch\.float64"),
        (torch.ones(6), ValueError, r"multiple of 4, got shape \[6\]"),
        (torch.full((4,), 1.5), ValueError, "powers of two only"),
        (torch.full((4,), -2.0), ValueError, "powers of two only"),
    ],
    ids=["dtype", "shape", "fraction", "sign"],
)
def test_pack_ue8m0_refuses(x, error, message):
    with pytest.raises(error, match=message):
        utils.pack_ue8m0_to_int(x)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("use_ue8m0", [False, True], ids=["fp32", "ue8m0"])
def test_casts_give_back_their_input(cast, shape, dtype, use_ue8m0):
    function, row_group, column_group = cast
    x = random_matrix(shape, dtype)
    t, sf = function(x, use_ue8m0)
    assert t.dtype == torch.float8_e4m3fn
    assert t.shape == x.shape
    assert t.is_contiguous()
    assert sf.dtype == torch.float32
    assert sf.shape == (-(-shape[0] // row_group), -(-shape[1] // column_group))
    scales = spread(sf, shape, row_group, column_group)
    # E4M3 has three mantissa bits: half a step is 2^-4 of the value, and 2^-10 of the scale among its denormals.
    error = (t.float() * scales - x.float()).abs()
    assert bool((error <= torch.maximum(x.float().abs() * 2.0**-4, scales * 2.0**-10) * 1.0001).all())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_scales_are_the_largest_magnitude_over_448(cast, shape):
    function, row_group, column_group = cast
    x = random_matrix(shape, seed=1)
    _, sf = function(x, False)
    _, rounded = function(x, True)
    for row in range(sf.shape[0]):
        for column in range(sf.shape[1]):
            rows = slice(row * row_group, (row + 1) * row_group)
            columns = slice(column * column_group, (column + 1) * column_group)
            assert sf[row, column] == x[rows, columns].abs().max().clamp(min=1e-4) / torch.tensor(E4M3_MAX)
    assert torch.equal(rounded, utils.ceil_to_ue8m0(sf))


@pytest.mark.parametrize("use_ue8m0", [False, True], ids=["fp32", "ue8m0"])
@pytest.mark.parametrize("value", [0.0, 1e-30, 1e-4, 1.0, 3e38], ids=str)
def test_constant_inputs_stay_finite(cast, value, use_ue8m0):
    function, row_group, column_group = cast
    x = torch.full((5, 131), value)
    t, sf = function(x, use_ue8m0)
    assert bool(t.float().isfinite().all())
    assert bool((sf > 0).all())
    restored = t.float() * spread(sf, x.shape, row_group, column_group)
    if value in (0.0, 1e-30):
        assert not restored.any()
    else:
        torch.testing.assert_close(restored, x, rtol=2.0**-4, atol=0)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 40), st.integers(0, 300), st.sampled_from([16, 32, 128]), st.booleans())
def test_casts_of_any_shape_and_granularity(m, n, gran_k, use_ue8m0):
    x = random_matrix((m, n))
    for name, (function, _, _) in CASTS.items():
        t, sf = function(x, use_ue8m0, gran_k)
        assert t.shape == x.shape
        rows, columns = -(-m // gran_k), -(-n // gran_k)
        assert sf.shape == {"per_token": (m, columns), "per_channel": (rows, n), "per_block": (rows, columns)}[name]


def test_casts_take_strided_inputs(cast):
    function, *_ = cast
    wide = random_matrix((130, 300))
    for x in (wide[:, :150], wide[::2], wide.t()):
        for got, wanted in zip(function(x, False), function(x.contiguous(), False), strict=True):
            assert torch.equal(got.float(), wanted.float())


@pytest.mark.parametrize("n", [128, 512, 600])
def test_per_token_cast_packs_its_scales(n):
    x = random_matrix((3, n))
    t, sf = utils.per_token_cast_to_fp8(x, True)
    packed_t, packed = utils.per_token_cast_to_fp8(x, True, use_packed_ue8m0=True)
    assert torch.equal(packed_t.float(), t.float())
    exponents = packed.view(torch.uint8).view(3, -1)[:, : sf.shape[1]].int()
    assert torch.equal((exponents << 23).view(torch.float32), sf)


def test_per_custom_dims_cast():
    x = random_matrix((3, 5, 70))
    t, sf = utils.per_custom_dims_cast_to_fp8(x, (0, 1), False)
    assert t.shape == x.shape
    assert torch.equal(sf, x.abs().amax(2) / torch.tensor(E4M3_MAX))
    t, sf = utils.per_custom_dims_cast_to_fp8(x, (-1,), True)
    assert torch.equal(sf, utils.ceil_to_ue8m0(x.abs().amax((0, 1)) / torch.tensor(E4M3_MAX)))
    torch.testing.assert_close(t.float() * sf, x, rtol=2.0**-4, atol=1e-2)
    _, sf = utils.per_custom_dims_cast_to_fp8(x, (), False)
    assert sf.shape == ()
    with pytest.raises(ValueError, match="names every dimension"):
        utils.per_custom_dims_cast_to_fp8(x, (0, 1, 2), False)
    for dims in ((5,), (0, 3), (-4,)):
        with pytest.raises(IndexError, match=r"dims must name dimensions of x, which has 3"):
            utils.per_custom_dims_cast_to_fp8(x, dims, False)


def test_per_custom_dims_cast_refuses_dimensions_that_are_not_there():
    for dims in ((5,), (0, -4)):
        with pytest.raises(IndexError, match=r"dimensions of x, which has 3, got \["):
            utils.per_custom_dims_cast_to_fp8(random_matrix((3, 5, 70)), dims, False)


@pytest.mark.parametrize("cast", [utils.per_token_cast_to_int8, utils.per_channel_cast_to_int8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(5, 300), (2, 3, 64), (7, 1)])
def test_int8_casts_give_back_their_input(cast, shape, dtype) -> None:
    x = (torch.randn(shape) * torch.tensor([1e-3, 1.0, 1e5])[torch.arange(shape[-2]) % 3][:, None]).to(dtype)
    q, sf = cast(x)
    assert (q.dtype, q.shape, sf.dtype, sf.shape) == (torch.int8, x.shape, torch.float32, x.shape[:-1])
    assert torch.equal(sf, x.float().abs().amax(-1).clamp(min=1e-4) / torch.tensor(127.0))
    assert q.min() >= -127
    assert ((q * sf[..., None] - x.float()).abs() <= sf[..., None] * 0.5001).all()


@pytest.mark.parametrize("shift", [-3.0, 0.0, 3.0, 1000.0])
def test_asymmetric_int8_spreads_the_range_over_all_values(shift) -> None:
    x = torch.randn(5, 300) + shift
    q, sf, zeros = utils.per_token_cast_to_int8(x, symmetric=False)
    assert (q.dtype, sf.dtype, zeros.dtype, zeros.shape) == (torch.int8, torch.float32, torch.int32, (5,))
    span = x.amax(-1).clamp(min=0) - x.amin(-1).clamp(max=0)
    assert torch.equal(sf, span / torch.tensor(255.0))
    assert ((q.int() - zeros[:, None]) * sf[:, None] - x).abs().amax() <= sf.max() * 1.01
    zero = utils.per_token_cast_to_int8(torch.tensor([[0.0, shift or 1.0]]), symmetric=False)
    assert zero[0][0, 0] == zero[2], "0 is a value"


@pytest.mark.parametrize("symmetric", [True, False])
def test_int8_casts_of_nothing_and_of_zeros(symmetric) -> None:
    for shape in ((0, 8), (3, 0), (3, 8)):
        q, sf, *zeros = utils.per_token_cast_to_int8(torch.zeros(shape), symmetric)
        assert q.shape == shape
        assert len(zeros) == (not symmetric)
        assert ((q - (zeros[0][:, None] if zeros else 0)) == 0).all()
        assert sf.isfinite().all()
    with pytest.raises(ValueError, match="x must have rows, got a scalar"):
        utils.per_token_cast_to_int8(torch.tensor(1.0))
    with pytest.raises(TypeError, match="x must be a floating-point tensor"):
        utils.per_channel_cast_to_int8(torch.zeros(3, 8, dtype=torch.int32))


@pytest.mark.parametrize("wrong", [True, 32.0, float("nan")], ids=str)
def test_casts_want_integers(cast, wrong):
    function, *_ = cast
    for cast_function in (function, utils.per_token_cast_to_fp4):
        with pytest.raises(TypeError, match=f"gran_k must be an integer, got {wrong!r}"):
            cast_function(random_matrix((4, 64)), False, gran_k=wrong)
        with pytest.raises(ValueError, match="gran_k must be at least 1, got 0"):
            cast_function(random_matrix((4, 64)), False, 0)


def test_unpack_ue8m0_gives_back_what_was_packed():
    scales = torch.cat([torch.zeros(1), 2.0 ** torch.arange(-126, 128).float(), torch.ones(1)])
    assert torch.equal(utils.unpack_ue8m0_from_int(utils.pack_ue8m0_to_int(scales)), scales)
    words = torch.tensor([[127 | 128 << 8 | 126 << 16 | 1 << 24, -1]], dtype=torch.int32)
    assert utils.unpack_ue8m0_from_int(words)[:, :4].tolist() == [[1.0, 2.0, 0.5, 2.0**-126]]
    assert utils.unpack_ue8m0_from_int(words)[:, 4:].isnan().all()
    assert torch.equal(utils.unpack_ue8m0_from_int(words.t()).flatten()[:4], utils.unpack_ue8m0_from_int(words)[0, :4])
    with pytest.raises(TypeError, match=r"packed_sf must be torch\.int32, got torch\.int64"):
        utils.unpack_ue8m0_from_int(words.long())
    with pytest.raises(ValueError, match="got a scalar"):
        utils.unpack_ue8m0_from_int(words[0, 0])


def test_casts_refuse_what_they_cannot_cast(cast):
    function, *_ = cast
    with pytest.raises(TypeError, match=r"floating-point tensor .* got torch\.int32"):
        function(torch.ones((2, 2), dtype=torch.int32), False)
    with pytest.raises(ValueError, match=r"2 dimensions, got shape \[4\]"):
        function(torch.ones(4), False)


def test_the_layout_functions_are_those_of_the_package():
    from deep_gemm import layout

    for name in utils.layout.__all__:
        assert getattr(utils, name) is getattr(utils.layout, name)
        if hasattr(layout, name):
            assert getattr(utils, name) is getattr(layout, name)


@pytest.mark.parametrize(("target", "major"), [("sm_90a", 9), ("sm_100f", 10), ("sm_120a", 12), ("sm_121a", 12)])
def test_the_architecture_of_the_cpu_is_the_simulators(target, major):
    with simulator.options(target=target):
        assert testing.get_arch_major(torch.device("cpu")) == major


@pytest.mark.parametrize(("gran_k", "packed"), [(128, False), (32, False), (32, True)])
def test_fp8_is_cast_back(gran_k, packed) -> None:
    x = torch.randn(5, 200)
    t, sf = utils.per_token_cast_to_fp8(x, packed, gran_k, packed)
    scales = utils.unpack_ue8m0_from_int(sf) if packed else sf
    wanted = t.float() * scales.repeat_interleave(gran_k, 1)[:, :200]
    assert torch.equal(utils.cast_back_from_fp8(t, sf, gran_k, packed), wanted)
    assert torch.allclose(wanted, x, rtol=0.07, atol=1e-2)
    with pytest.raises(ValueError, match="sf must hold 5 rows of"):
        utils.cast_back_from_fp8(t, sf[:4], gran_k, packed)
    with pytest.raises(TypeError, match=r"x must be float8_e4m3fn \[m, n\], got torch.float32"):
        utils.cast_back_from_fp8(x, sf, gran_k, packed)
