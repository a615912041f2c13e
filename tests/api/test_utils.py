"""deep_gemm.utils and deep_gemm.testing: none of this needs a GPU."""

import itertools
import os
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_gemm import simulator, testing, utils
from deep_gemm.testing.bench import kernel_seconds

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
        (torch.ones(4, dtype=torch.float64), TypeError, r"torch\.float32, but is torch\.float64"),
        (torch.ones(6), ValueError, r"multiple of 4, but its shape is \[6\]"),
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
        with pytest.raises(IndexError, match=r"dimensions of x, which has 3, but are \["):
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
    with pytest.raises(ValueError, match="x must have rows, but is a scalar"):
        utils.per_token_cast_to_int8(torch.tensor(1.0))
    with pytest.raises(TypeError, match="x must be a floating-point tensor"):
        utils.per_channel_cast_to_int8(torch.zeros(3, 8, dtype=torch.int32))


@pytest.mark.parametrize("wrong", [True, 32.0, float("nan")], ids=str)
def test_casts_want_integers(cast, wrong):
    function, *_ = cast
    for cast_function in (function, utils.per_token_cast_to_fp4):
        with pytest.raises(TypeError, match=f"gran_k must be an integer, but is {wrong!r}"):
            cast_function(random_matrix((4, 64)), False, gran_k=wrong)
        with pytest.raises(ValueError, match="gran_k must be at least 1, but is 0"):
            cast_function(random_matrix((4, 64)), False, 0)


def test_unpack_ue8m0_gives_back_what_was_packed():
    scales = torch.cat([torch.zeros(1), 2.0 ** torch.arange(-126, 128).float(), torch.ones(1)])
    assert torch.equal(utils.unpack_ue8m0_from_int(utils.pack_ue8m0_to_int(scales)), scales)
    words = torch.tensor([[127 | 128 << 8 | 126 << 16 | 1 << 24, -1]], dtype=torch.int32)
    assert utils.unpack_ue8m0_from_int(words)[:, :4].tolist() == [[1.0, 2.0, 0.5, 2.0**-126]]
    assert utils.unpack_ue8m0_from_int(words)[:, 4:].isnan().all()
    assert torch.equal(utils.unpack_ue8m0_from_int(words.t()).flatten()[:4], utils.unpack_ue8m0_from_int(words)[0, :4])
    with pytest.raises(TypeError, match=r"packed_sf must be torch\.int32, but is torch\.int64"):
        utils.unpack_ue8m0_from_int(words.long())
    with pytest.raises(ValueError, match="is a scalar"):
        utils.unpack_ue8m0_from_int(words[0, 0])


FP4_VALUES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


class TestFp4:
    @staticmethod
    def codes(x: list[float]) -> list[int]:
        """Codes of values of one group whose scale is 1."""
        t, sf = utils.per_token_cast_to_fp4(torch.tensor([[6.0, *x, *[0.0] * (31 - len(x))]]), False, gran_k=32)
        assert sf.tolist() == [[1.0]]
        pairs = t.view(torch.uint8).tolist()[0]
        return [code for pair in pairs for code in (pair & 15, pair >> 4)][1 : len(x) + 1]

    def test_every_value_has_its_code(self):
        assert self.codes(FP4_VALUES) == list(range(8))
        assert self.codes([-value for value in FP4_VALUES]) == [0, *range(9, 16)]

    def test_ties_go_to_the_even_code(self):
        ties = [(low + high) / 2 for low, high in itertools.pairwise(FP4_VALUES)]
        assert self.codes(ties) == [0, 2, 2, 4, 4, 6, 6]
        assert self.codes([-tie for tie in ties]) == [0, 10, 10, 12, 12, 14, 14]
        above, below = (
            [float(torch.nextafter(torch.tensor(tie), torch.tensor(end))) for tie in ties] for end in (9, 0)
        )
        assert self.codes(above) == list(range(1, 8))
        assert self.codes(below) == list(range(7))

    def test_the_first_code_is_in_the_low_nibble(self):
        t, _ = utils.per_token_cast_to_fp4(torch.tensor([[6.0, -0.5]]), False)
        assert (t.dtype, t.tolist()) == (torch.int8, [[-0x69]])  # 0x97

    @pytest.mark.parametrize("use_ue8m0", [False, True])
    @pytest.mark.parametrize("gran_k", [16, 32, 128])
    @pytest.mark.parametrize("n", [2, 128, 130, 600])
    def test_cast_and_back(self, n, gran_k, use_ue8m0):
        x = random_matrix((3, n)) * torch.tensor([[1e-6], [1.0], [300.0]])
        t, sf = utils.per_token_cast_to_fp4(x, use_ue8m0, gran_k)
        assert (t.shape, sf.shape) == ((3, n // 2), (3, utils.ceil_div(n, gran_k)))
        groups = torch.nn.functional.pad(x, (0, -n % gran_k)).view(3, -1, gran_k)
        wanted = groups.abs().amax(2).clamp(min=1e-4) / torch.tensor(6.0)
        assert torch.equal(sf, utils.ceil_to_ue8m0(wanted) if use_ue8m0 else wanted)
        back = utils.cast_back_from_fp4(t, sf, gran_k)
        scales = sf.repeat_interleave(gran_k, 1)[:, :n]
        quotients = x / scales
        nearest = (quotients.abs()[..., None] - torch.tensor(FP4_VALUES)).abs().amin(-1)
        torch.testing.assert_close((back / scales - quotients).abs(), nearest, rtol=0, atol=1e-6)

    @pytest.mark.parametrize("n", [128, 200])
    def test_packed_scales(self, n):
        """As an indexer's queries and keys are cast and cast back."""
        x = random_matrix((6, n), torch.bfloat16)
        t, sf = utils.per_token_cast_to_fp4(x, use_ue8m0=True, gran_k=32)
        packed_t, packed = utils.per_token_cast_to_fp4(x, use_ue8m0=True, gran_k=32, use_packed_ue8m0=True)
        assert (packed.dtype, packed.shape) == (torch.int32, (6, utils.ceil_div(n, 128)))
        assert torch.equal(packed_t, t)
        back = utils.cast_back_from_fp4(packed_t, packed, gran_k=32, use_packed_ue8m0=True)
        assert back.dtype == torch.float32
        assert torch.equal(back, utils.cast_back_from_fp4(t, sf, gran_k=32))

    @pytest.mark.parametrize("shape", [(2, 2), (6, 10), (128, 64)])
    def test_transpose(self, shape):
        x = random_matrix(shape) * 3
        t, _ = utils.per_token_cast_to_fp4(x, True)
        ones = torch.ones(max(shape), 1)
        back = utils.cast_back_from_fp4(utils.transpose_packed_fp4(t), ones[: shape[1]], gran_k=shape[0])
        assert torch.equal(back.t(), utils.cast_back_from_fp4(t, ones[: shape[0]], gran_k=shape[1]))
        assert torch.equal(utils.transpose_packed_fp4(utils.transpose_packed_fp4(t)), t)

    def test_refusals(self):
        packed, sf = utils.per_token_cast_to_fp4(random_matrix((3, 64)), True, 32)
        for error, message, function, arguments in [
            (
                ValueError,
                r"even number of columns.*\[3, 5\]",
                utils.per_token_cast_to_fp4,
                (random_matrix((3, 5)), True),
            ),
            (TypeError, "floating-point", utils.per_token_cast_to_fp4, (packed, True)),
            (ValueError, "needs use_ue8m0", utils.per_token_cast_to_fp4, (random_matrix((3, 4)), False, 32, True)),
            (TypeError, r"a must be torch\.int8", utils.transpose_packed_fp4, (packed.view(torch.uint8),)),
            (ValueError, "a must have 2 dimensions", utils.transpose_packed_fp4, (packed[0],)),
            (ValueError, "even number of rows.*has 3", utils.transpose_packed_fp4, (packed,)),
            (TypeError, r"packed must be torch\.int8", utils.cast_back_from_fp4, (packed.int(), sf)),
            (ValueError, r"3 rows of 2, one for 32 of 64.*\[3, 1\]", utils.cast_back_from_fp4, (packed, sf[:, :1], 32)),
        ]:
            with pytest.raises(error, match=message):
                function(*arguments)


def test_casts_refuse_what_they_cannot_cast(cast):
    function, *_ = cast
    with pytest.raises(TypeError, match=r"floating-point tensor .* but is torch\.int32"):
        function(torch.ones((2, 2), dtype=torch.int32), False)
    with pytest.raises(ValueError, match=r"2 dimensions, but its shape is \[4\]"):
        function(torch.ones(4), False)


def test_the_layout_functions_are_those_of_the_package():
    from deep_gemm import layout

    for name in utils.layout.__all__:
        assert getattr(utils, name) is getattr(utils.layout, name)
        if hasattr(layout, name):
            assert getattr(utils, name) is getattr(layout, name)


def test_calc_diff():
    x = random_matrix((20, 30))
    assert testing.calc_diff(x, x) == pytest.approx(0, abs=1e-12)
    assert testing.calc_diff(torch.zeros(4), torch.zeros(4)) == 0
    assert testing.calc_diff(x, -x) == pytest.approx(2)
    assert testing.calc_diff(x, torch.zeros_like(x)) == 1
    # Away from exact by a small relative error e, it is about e squared over two.
    assert testing.calc_diff(x, x * 1.001) == pytest.approx(5e-7, rel=1e-2)
    assert testing.calc_diff(x, x.bfloat16()) < 1e-5
    broken = x.clone()
    broken[3, 4] = torch.nan
    assert not testing.calc_diff(broken, x) < 1  # NaN never passes a test of smallness


def test_assert_bitwise_equal():
    nan = torch.tensor([[1.0, float("nan")], [0.0, 2.0]])
    testing.assert_bitwise_equal(nan, nan.clone())
    testing.assert_bitwise_equal(nan.t(), nan.t().contiguous(), "strides")
    testing.assert_bitwise_equal(torch.empty(0), torch.empty(0))
    testing.assert_bitwise_equal(torch.tensor(3), torch.tensor(3))
    testing.assert_bitwise_equal(torch.ones(3, 5)[:1, :1], torch.ones(1, 1))
    other = nan.clone()
    other[1, 0] = -0.0
    with pytest.raises(AssertionError, match=r"^logits: 1 of 4 elements differ, the first at \(1, 0\): 0\.0 and -0\.0"):
        testing.assert_bitwise_equal(nan, other, "logits")
    with pytest.raises(AssertionError, match=r"torch\.float32 \[2, 2\] is compared with torch\.float32 \[4\]"):
        testing.assert_bitwise_equal(nan, nan.flatten())
    with pytest.raises(AssertionError, match=r"torch\.float32 \[2, 2\] is compared with torch\.bfloat16"):
        testing.assert_bitwise_equal(nan, nan.bfloat16())


def test_suppress_stdout_stderr(capfd):
    with testing.suppress_stdout_stderr():
        print("hidden")
        print("hidden", file=sys.stderr)
        os.write(1, b"hidden")
        os.write(2, b"hidden")
    print("seen")
    os.write(2, b"seen")
    assert capfd.readouterr() == ("seen\n", "seen")
    with pytest.raises(KeyError), testing.suppress_stdout_stderr():
        raise KeyError
    os.write(1, b"seen again")
    assert capfd.readouterr().out == "seen again"


def test_count_bytes():
    a, b = torch.empty((3, 5), dtype=torch.bfloat16), torch.empty(7, dtype=torch.float8_e4m3fn)
    assert testing.count_bytes() == 0
    assert testing.count_bytes(a, (b, [a, None]), None) == 30 + 7 + 30


def test_ignore_env(monkeypatch):
    monkeypatch.setenv("DG_TEST_VARIABLE", "1")
    active = True

    @testing.ignore_env("DG_TEST_VARIABLE", lambda: active)
    def read(fail=False):
        if fail:
            raise KeyError("on purpose")
        return os.environ.get("DG_TEST_VARIABLE")

    assert read() is None
    with pytest.raises(KeyError):
        read(fail=True)
    assert os.environ["DG_TEST_VARIABLE"] == "1"
    active = False
    assert read() == "1"


def test_test_filter(capsys):
    holds = False

    @testing.test_filter(lambda: holds)
    def double(x):
        return 2 * x

    assert double(2) is None
    assert "double: skipped" in capsys.readouterr().out
    holds = True
    assert double(2) == 4
    assert double.__name__ == "double"


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_what_needs_a_gpu_says_so():
    with pytest.raises(RuntimeError, match="no CUDA device"):
        testing.get_arch_major()
    with pytest.raises(RuntimeError, match="no CUDA device"):
        testing.bench_kineto(lambda: None, "gemm")


@pytest.mark.parametrize(("target", "major"), [("sm_90a", 9), ("sm_100f", 10)])
def test_the_architecture_of_the_cpu_is_the_simulators(target, major):
    with simulator.options(target=target):
        assert testing.get_arch_major(torch.device("cpu")) == major


def test_bench_calls_as_often_as_asked(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    calls = []
    assert testing.bench(lambda: calls.append(1), num_warmups=2, num_tests=3) > 0
    assert len(calls) == 5


class Event:
    def __init__(self, key, count, microseconds, on_gpu=True):
        device = torch.autograd.DeviceType
        self.key, self.count, self.self_device_time_total = key, count, microseconds
        self.device_type = device.CUDA if on_gpu else device.CPU


def test_kernel_seconds_averages_over_launches():
    events = [Event("gemm_a", 10, 50), Event("gemm_b", 10, 150), Event("gemm_a launch", 10, 1000, on_gpu=False)]
    assert kernel_seconds(events, "gemm_a") == pytest.approx(5e-6)
    assert kernel_seconds(events, "gemm", with_multiple_kernels=True) == pytest.approx(10e-6)
    assert kernel_seconds(events, "other") == 0
    with pytest.raises(ValueError, match="names 2 kernels"):
        kernel_seconds(events, "gemm")


@pytest.mark.gpu
def test_bench_kineto_on_a_gpu():
    x = torch.randn((1024, 1024), device="cuda")
    assert testing.bench_kineto(lambda: x.mul_(1.0), "MulFunctor", num_tests=3, suppress_kineto_output=True) > 0
