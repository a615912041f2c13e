"""FP8 by FP4 on Blackwell, which multiplies the public pair of FP4 weights where it lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from devices import on_simulator
from fp4_inputs import Fp4Rows, Fp8Rows, matches
from grouped_inputs import alignment_of
from inputs import GuardedOutput

import deep_gemm
from deep_gemm import simulator

BLACKWELL = on_simulator("any", arch="sm100")
blackwell = pytest.mark.parametrize("device", BLACKWELL, indirect=True)


@pytest.fixture
def sm100() -> Iterator[None]:
    with simulator.options(target="sm_100a"):
        yield


def launches(call: Callable[[], None]) -> list[str]:
    simulator.clear_reports()
    call()
    return [report.kernel for report in simulator.reports()]


@blackwell
def test_every_code_of_fp4_is_the_value_that_it_stands_for(device) -> None:
    k, n = 256, 32
    codes = (torch.arange(n)[:, None] + torch.arange(k)[None]).to(torch.uint8) & 15
    w = Fp4Rows((n, k), codes=codes)
    one = torch.eye(k).to(torch.float8_e4m3fn), torch.ones((k, k // 128))
    d = torch.empty((k, n))
    deep_gemm.fp8_fp4_gemm_nt(one, w.pair, d)
    assert torch.equal(d.double(), w.exact.T)


@blackwell
@pytest.mark.parametrize("m", [3, 130])
def test_a_bias_is_added_to_complete_sums(device, m) -> None:
    n, k = 72, 256
    a, w, bias = Fp8Rows((m, k)), Fp4Rows((n, k)), torch.arange(n, dtype=torch.bfloat16) / 7
    sums, d = torch.empty((m, n)), GuardedOutput((m, n), torch.float32, device)
    deep_gemm.fp8_fp4_gemm_nt(a.pair, w.pair, sums)
    deep_gemm.fp8_fp4_gemm_nt(a.pair, w.pair, d.tensor, bias=bias)
    d.check()
    assert torch.equal(d.tensor, sums + bias.float())


# K of gpt-oss is 22.5 blocks of 128; others end within a byte's neighbours, and within 32 of K.
@blackwell
@pytest.mark.parametrize("k", [2880, 2, 34, 160, 250, 384])
@pytest.mark.parametrize("along_n", [False, True], ids=["along_k", "along_n"])
def test_any_k_and_what_lies_behind_it_counts_for_nothing(device, k, along_n) -> None:
    m, n = 9, 40
    a, w = Fp8Rows((m, k)), Fp4Rows((n, k), form="words")  # behind the last exponent stands NaN
    d = GuardedOutput((m, n), torch.float32, device)
    deep_gemm.fp8_fp4_gemm_nt(a.pair, w.along_n if along_n else w.pair, d.tensor)
    d.check()
    matches(d.tensor, a, w)


@blackwell
@pytest.mark.sampled(10)
@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
@pytest.mark.parametrize(("offset", "gap"), [(0, 0), (32, 32), (16, 0), (0, 16), (1, 3)])
@pytest.mark.parametrize("along_n", [False, True], ids=["along_k", "along_n"])
def test_rows_may_lie_anywhere_and_either_way(device, layout, offset, gap, along_n) -> None:
    m, n, k = 48, 144, 256
    a, w = Fp8Rows((m, k)), Fp4Rows((n, k))
    d = GuardedOutput((m, n), torch.float32, device)
    codes, scales = w.placed(offset, gap, along_n)
    data, a_scales = a.pair
    given_a = (data.T.contiguous(), a_scales.T) if layout[0] == "t" else a.pair
    given_b = (codes.T, scales.T) if layout[1] == "n" else (codes, scales)
    gemm = getattr(deep_gemm, f"fp8_fp4_gemm_{layout}")
    launched = launches(lambda: gemm(given_a, given_b, d.tensor))
    d.check()
    matches(d.tensor, a, w)
    copies = [name for name in launched if name.startswith(("copy_lines", "transpose_fp4"))]
    in_place = not along_n and offset % 32 == 0 and gap % 32 == 0
    assert [name.split("_unit")[0].removesuffix("_unaligned") for name in copies] == (
        [] if in_place else ["transpose_fp4" if along_n else "copy_lines"]
    )


@blackwell
@pytest.mark.parametrize("along_n", [False, True], ids=["along_k", "along_n"])
def test_experts_lie_either_way(device, along_n) -> None:
    experts, rows, n, k = 3, 128, 72, 160
    a, w = Fp8Rows((experts * rows, k)), Fp4Rows((experts, n, k))
    owners = torch.arange(experts, dtype=torch.int32).repeat_interleave(rows)
    codes, scales = w.along_n if along_n else w.pair
    d, of_nn = torch.empty((experts * rows, n)), torch.empty((experts * rows, n))
    with alignment_of(rows):
        deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous(a.pair, (codes, scales), d, owners)
        deep_gemm.m_grouped_fp8_fp4_gemm_nn_contiguous(a.pair, (codes.mT, scales.mT), of_nn, owners)
    assert torch.equal(d, of_nn)
    expected = torch.cat([a.exact[rows * i : rows * (i + 1)] @ w.exact[i].T for i in range(experts)])
    assert (d.double() - expected).abs().le(1e-6 * a.exact.abs().amax() * w.exact.abs().amax() * k).all()


@blackwell
def test_scales_of_both_operands_may_be_for_32_or_128_of_k(device) -> None:
    m, n, k = 7, 24, 384
    for group_a in (32, 128):
        for group_b in (32, 128):
            a, w = Fp8Rows((m, k), group=group_a), Fp4Rows((n, k), group=group_b)
            d = torch.empty((m, n))
            deep_gemm.fp8_fp4_gemm_nt(a.pair, w.pair, d, recipe_a=(1, group_a), recipe_b=(1, group_b))
            matches(d, a, w)


@blackwell
@pytest.mark.parametrize("along_m", [False, True], ids=["along_k", "along_m"])
@pytest.mark.parametrize("k", [256, 2880, 34])
def test_activations_may_be_fp4_beside_fp8(device, along_m, k) -> None:
    m, n = 10, 72
    a, b = Fp4Rows((m, k)), Fp8Rows((n, k))
    d = GuardedOutput((m, n), torch.float32, device)
    given = a.along_n if along_m else a.pair
    deep_gemm.fp8_fp4_gemm_nt(given, b.pair, d.tensor, recipe_a=(1, 32), recipe_b=(1, 128))
    d.check()
    matches(d.tensor, a, b)
    transposed = torch.empty((m, n))
    data, scales = given
    deep_gemm.fp8_fp4_gemm_tt((data.T, scales.T), b.pair, transposed, recipe_a=(1, 32), recipe_b=(1, 128))
    assert torch.equal(transposed, d.tensor)


@blackwell
def test_both_operands_may_be_fp4_under_these_names(device) -> None:
    experts, rows, n, k = 2, 128, 40, 128
    a, w = Fp4Rows((experts * rows, k)), Fp4Rows((experts, n, k))
    d, wanted = torch.empty((experts * rows, n)), torch.empty((experts * rows, n))
    (codes, scales), owners = w.pair, torch.arange(experts, dtype=torch.int32).repeat_interleave(rows)
    recipes = {"recipe_a": (1, 32), "recipe_b": (1, 32)}
    deep_gemm.fp4_gemm_nt(a.pair, (codes[0], scales[0]), wanted)
    deep_gemm.fp8_fp4_gemm_nt(a.pair, (codes[0], scales[0]), d, **recipes)
    assert torch.equal(d, wanted)
    with alignment_of(rows):
        deep_gemm.m_grouped_fp4_gemm_nt_contiguous(a.pair, w.pair, wanted, owners)
        deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous(a.pair, w.pair, d, owners, **recipes)
    assert torch.equal(d, wanted)
    halves = tuple(part.view(experts, rows, -1) for part in a.pair)
    counts = torch.full((experts,), rows, dtype=torch.int32)
    deep_gemm.m_grouped_fp8_fp4_gemm_nt_masked(halves, w.pair, d.view(experts, rows, n), counts, rows, **recipes)
    assert torch.equal(d, wanted)
    with pytest.raises(ValueError, match="FP4 by FP4 takes no bias"):
        deep_gemm.fp8_fp4_gemm_nt(a.pair, (codes[0], scales[0]), d, bias=torch.ones(n))


def test_fp4_activations_are_refused_but_on_blackwell() -> None:
    a, b = Fp4Rows((4, 128)), Fp8Rows((24, 128))
    d = GuardedOutput((4, 24), torch.float32, "cpu")
    with pytest.raises(TypeError, match="a must be float8_e4m3fn, got int8"):
        deep_gemm.fp8_fp4_gemm_nt(a.pair, b.pair, d.tensor)
    d.assert_untouched()
    with (
        simulator.options(target="sm_100a"),
        pytest.raises(ValueError, match=r"a must be \[M, K / 2\] or \[M / 2, K\], got shape \[1, 4, 64\]"),
    ):
        deep_gemm.fp8_fp4_gemm_nt((a.pair[0][None], a.pair[1]), b.pair, d.tensor)


@pytest.mark.usefixtures("sm100")
def test_a_float32_scale_that_is_no_power_of_two_is_refused() -> None:
    a, w = Fp8Rows((3, 128)), Fp4Rows((24, 128))
    codes, scales = w.pair
    d = GuardedOutput((3, 24), torch.float32, "cpu")
    with pytest.raises(ValueError, match="b's scales must be powers of two on Blackwell"):
        deep_gemm.fp8_fp4_gemm_nt(a.pair, (codes, scales * 3), d.tensor)
    d.assert_untouched()


@pytest.mark.usefixtures("sm100")
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"disable_ue8m0_cast": True},
            ValueError,
            "float32 scales as they are, of which there is none for e4m3 by e2m1r",
        ),
        ({"a_scales": 1.0}, ValueError, "a's scales must be a tensor, one for each row and 128 of K .* got a number"),
        ({"a_scales": torch.ones(3)}, ValueError, r"a's scales must .*\[3, 1\]"),
        ({"recipe_a": (1, 128), "recipe_b": (1, 64)}, ValueError, "b's scales must be one float8_e8m0fnu per row and"),
        ({"recipe_a": (1, 128), "recipe_b": (128, 128)}, ValueError, "those of b must be for one row"),
        ({"codes": torch.zeros((24, 32), dtype=torch.int8)}, ValueError, "b has K=64 but a has K=128"),
        ({"codes": torch.zeros((64, 24), dtype=torch.int8).T[::2]}, ValueError, "b must have K or N contiguous"),
        ({"codes": torch.zeros((1, 64), dtype=torch.int8).expand(24, 64)}, ValueError, "b's lines overlap: .* 0 bytes"),
        ({"codes": torch.zeros((2, 24, 64), dtype=torch.int8)}, ValueError, r"b must be \[N, K / 2\] or \[N / 2, K\]"),
        ({"scales": torch.ones((24, 3))}, ValueError, r"b's scales must be \[24, 4\]"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_blackwell_cannot_multiply_is_refused(changes, error, message) -> None:
    a, w = Fp8Rows((3, 128)), Fp4Rows((24, 128))
    (data, a_scales), (codes, scales) = a.pair, w.pair
    arguments = dict(changes)
    given_a = data, arguments.pop("a_scales", a_scales)
    given_b = arguments.pop("codes", codes), arguments.pop("scales", scales)
    d = GuardedOutput((3, 24), torch.float32, "cpu")
    with pytest.raises(error, match=message):
        deep_gemm.fp8_fp4_gemm_nt(given_a, given_b, d.tensor, **arguments)
    d.assert_untouched()


def test_only_blackwell_takes_k_before_n() -> None:
    w = Fp4Rows((24, 128))
    a = Fp8Rows((3, 128))
    d = GuardedOutput((3, 24), torch.float32, "cpu")
    with pytest.raises(ValueError, match="b must have N before K, as functions whose names end with nt take it"):
        deep_gemm.fp8_fp4_gemm_nn(a.pair, (w.pair[0].T, w.pair[1].T), d.tensor)
    d.assert_untouched()


@pytest.mark.usefixtures("sm100")
def test_a_pair_that_lies_well_is_known_again_and_others_are_copied_each_time() -> None:
    a, w, d = Fp8Rows((3, 256), form="words"), Fp4Rows((24, 256), form="words"), torch.empty((3, 24))
    for _ in range(3):
        d.fill_(torch.nan)
        deep_gemm.fp8_fp4_gemm_nt(a.pair, w.pair, d)
        matches(d, a, w)
    codes, _ = w.along_n
    for _ in range(3):
        d.fill_(torch.nan)
        launched = launches(lambda: deep_gemm.fp8_fp4_gemm_nt(a.pair, (codes, w.pair[1]), d))
        assert [name for name in launched if name.startswith("transpose_fp4")]
        matches(d, a, w)


@pytest.mark.usefixtures("sm100")
@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
def test_products_without_k_are_c_and_their_bias(layout) -> None:
    m, n = 5, 24
    a = torch.empty((0, m) if layout[0] == "t" else (m, 0)).to(torch.float8_e4m3fn), torch.empty((m, 0))
    b = torch.empty((n, 0), dtype=torch.int8), torch.empty((n, 0))
    if layout[1] == "n":
        b = b[0].T, b[1].T
    d, c, bias = torch.empty((m, n)), torch.randn((m, n)), torch.randn(n)
    gemm = getattr(deep_gemm, f"fp8_fp4_gemm_{layout}")
    gemm(a, b, d, c)
    assert torch.equal(d, c)
    gemm(a, b, d, c, bias=bias)
    assert torch.equal(d, c + bias)


@pytest.mark.usefixtures("sm100")
def test_experts_without_k_are_their_bias() -> None:
    n, bias = 24, torch.randn((2, 24))
    a = torch.empty((128, 0)).to(torch.float8_e4m3fn), torch.empty((128, 0))
    b = torch.empty((2, n, 0), dtype=torch.int8), torch.empty((2, n, 0))
    owners, d = torch.tensor([1] * 5 + [-1] * 123, dtype=torch.int32), torch.empty((128, n))
    deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous(a, b, d, owners, bias=bias)
    assert torch.equal(d, bias[1] * (owners == 1).unsqueeze(1))
    masked, counts = torch.full((2, 64, n), 3.0), torch.tensor([3, 64], dtype=torch.int32)
    halves = a[0].view(2, 64, 0), a[1].view(2, 64, 0)
    deep_gemm.m_grouped_fp8_fp4_gemm_nt_masked(halves, b, masked, counts, 8, bias=bias)
    assert torch.equal(masked[0, :3], bias[0].expand(3, n))
    assert torch.equal(masked[1], bias[1].expand(64, n))


@pytest.mark.usefixtures("sm100")
def test_operators_and_compiled_programs_take_every_layout() -> None:
    m, n, k = 4, 24, 128
    a, w = Fp8Rows((m, k)), Fp4Rows((n, k))
    (data, a_scales), (codes, scales) = a.pair, w.pair

    def step(data, a_scales, codes, scales):
        d = torch.zeros((m, n))
        deep_gemm.fp8_fp4_gemm_nn((data, a_scales), (codes.T, scales.T), d)
        return d + 1

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(data, a_scales, codes, scales), step(data, a_scales, codes, scales))
    d = torch.empty((m, n))
    torch.ops.deep_gemm.fp8_fp4_gemm_tt(data.T.contiguous(), a_scales.T, codes, scales, d)
    matches(d, a, w)
    owners = torch.zeros(m, dtype=torch.int32)
    torch.ops.deep_gemm.m_grouped_fp8_fp4_gemm_nn_contiguous(
        data, a_scales, codes.T.unsqueeze(0), scales.T.unsqueeze(0), d.zero_(), owners
    )
    matches(d, a, w)
