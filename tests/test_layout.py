"""Scale layouts against torch: any stride, groups, odd sizes; exact exponents; nothing launched where all is right."""

from __future__ import annotations

import pytest
import torch
from devices import FEW
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs import ceil_div, mn_major, with_awkward_strides

import deep_gemm

SHAPES = [(1, 1), (3, 4), (4, 3), (33, 5), (64, 16), (100, 57), (257, 130)]
GROUPS = [None, 1, 3]


def random_scales(shape, device, powers_of_two=False, seed=0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if powers_of_two:
        scales = torch.exp2(torch.randint(-126, 128, shape, generator=generator).float())
    else:
        scales = torch.rand(shape, generator=generator) + 0.5
    return scales.to(device)


def shape_of(groups, mn, k):
    return (mn, k) if groups is None else (groups, mn, k)


def strided(scales: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "row_major":
        return scales
    if layout == "mn_major":  # without padding
        return scales.transpose(-1, -2).contiguous().transpose(-1, -2)
    return with_awkward_strides(scales)


def assert_required_strides(result: torch.Tensor) -> None:
    rows = result.shape[-2]
    padded = deep_gemm.get_tma_aligned_size(rows, 4)
    assert result.stride()[-2:] == (1, padded)
    if result.dim() == 3:
        assert result.stride(0) == padded * result.shape[-1]
    assert result.data_ptr() % 16 == 0


def with_padding(result: torch.Tensor) -> torch.Tensor:
    """The result and the padding of its rows."""
    *groups, rows, columns = result.shape
    return result.as_strided((*groups, deep_gemm.get_tma_aligned_size(rows, 4), columns), result.stride())


def packed_reference(scales: torch.Tensor) -> torch.Tensor:
    """Four exponents a word, the first in the low byte."""
    *groups, mn, k = scales.shape
    exponents = torch.zeros((*groups, mn, ceil_div(k, 4) * 4), dtype=torch.int64, device=scales.device)
    exponents[..., :k] = (scales.contiguous().view(torch.int32) >> 23).long()
    parts = exponents.view(*groups, mn, -1, 4)
    words = parts[..., 0] | parts[..., 1] << 8 | parts[..., 2] << 16 | parts[..., 3] << 24
    return words.where(words < 1 << 31, words - (1 << 32)).to(torch.int32)


def test_aligned_size() -> None:
    assert [deep_gemm.get_tma_aligned_size(mn, 4) for mn in (0, 1, 4, 5)] == [0, 4, 4, 8]
    assert [deep_gemm.get_tma_aligned_size(mn, 1) for mn in (1, 16, 17)] == [16, 16, 32]
    assert deep_gemm.get_tma_aligned_size(9, 2) == 16
    with pytest.raises(ValueError, match="element_size must divide 16, but is 3"):
        deep_gemm.get_tma_aligned_size(4, 3)


@pytest.mark.sampled(80)
@pytest.mark.parametrize("layout", ["row_major", "mn_major", "awkward"])
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize(("mn", "k"), SHAPES)
def test_mn_major(device, groups, mn, k, layout) -> None:
    scales = random_scales(shape_of(groups, mn, k), device)
    result = deep_gemm.get_mn_major_tma_aligned_tensor(strided(scales, layout))
    assert torch.equal(result, scales)
    assert_required_strides(result)
    if layout == "awkward":  # so the result is new, and its padding is ours
        assert (with_padding(result)[..., mn:, :] == 0).all()


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize(("mn", "k"), [(4, 3), (33, 5), (100, 57)])
def test_right_scales_are_returned_as_they_are(device, groups, mn, k) -> None:
    scales = mn_major(random_scales(shape_of(groups, mn, k), device))
    result = deep_gemm.get_mn_major_tma_aligned_tensor(scales)
    assert result is scales


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_nan_and_infinity_are_copied_bit_for_bit(device) -> None:
    bits = torch.tensor([[0x7FC12345, 0x7F800000, -1], [-(1 << 31), 1, 0]], dtype=torch.int32, device=device)
    result = deep_gemm.get_mn_major_tma_aligned_tensor(bits.view(torch.float32))
    assert torch.equal(result.contiguous().view(torch.int32), bits)


@pytest.mark.sampled(80)
@pytest.mark.parametrize("layout", ["row_major", "mn_major", "awkward"])
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize(("mn", "k"), SHAPES)
def test_packed(device, groups, mn, k, layout) -> None:
    scales = random_scales(shape_of(groups, mn, k), device, powers_of_two=True)
    result = deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(strided(scales, layout))
    assert result.dtype == torch.int32
    assert torch.equal(result, packed_reference(scales))
    assert_required_strides(result)
    assert (with_padding(result)[..., mn:, :] == 0).all()


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_what_has_no_exponent_becomes_nan(device) -> None:
    scales = torch.tensor([[1.0, 1.5, -1.0, 0.0], [float("nan"), float("inf"), 2.0**-126, 1e-40]], device=device)
    result = deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(scales)
    found = result.reshape(2, 1).clone(memory_format=torch.contiguous_format).view(torch.uint8).tolist()
    assert found == [[127, 255, 255, 0], [255, 255, 1, 255]]


@pytest.mark.parametrize("mn", [4, 130])
@pytest.mark.parametrize("ks", [[128], [512, 128, 640], [0, 1024, 0, 384], [256, 0], [16, 144]])
def test_k_grouped_packed(device, mn, ks) -> None:
    rows = sum(ceil_div(k, 128) for k in ks)
    scales = random_scales((rows, mn), device, powers_of_two=True)
    result = deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(
        scales, torch.tensor(ks, dtype=torch.int32, device=device), ks
    )
    parts = scales.split([ceil_div(k, 128) for k in ks])
    expected = torch.cat([packed_reference(part.T).T for part in parts if part.numel() > 0])
    assert torch.equal(result, expected)
    assert result.stride() == (deep_gemm.get_tma_aligned_size(mn, 4), 1)


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_k_grouped_takes_any_stride(device) -> None:
    ks = [640, 128]
    scales = random_scales((6, 12), device, powers_of_two=True)
    counts = torch.tensor(ks, dtype=torch.int32, device=device)
    call = deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor
    assert torch.equal(call(with_awkward_strides(scales), counts, ks), call(scales, counts, ks))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    mn=st.integers(1, 400),
    k=st.integers(1, 140),
    groups=st.sampled_from(GROUPS),
    layout=st.sampled_from(["row_major", "mn_major", "awkward"]),
)
@pytest.mark.parametrize("device", FEW, indirect=True)
def test_any_shape(device, mn, k, groups, layout) -> None:
    scales = random_scales(shape_of(groups, mn, k), device, powers_of_two=True, seed=mn * k)
    source = strided(scales, layout)
    result = deep_gemm.get_mn_major_tma_aligned_tensor(source)
    assert torch.equal(result, scales)
    assert_required_strides(result)
    assert torch.equal(deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(source), packed_reference(scales))


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 4, 4), (2, 0, 4)])
def test_empty(device, shape) -> None:
    assert deep_gemm.get_mn_major_tma_aligned_tensor(torch.empty(shape, device=device)).shape == shape


class TestTransform:
    """transform_sf_into_required_layout on Hopper."""

    @pytest.fixture(params=FEW)
    def device(self, device):
        if device.type == "cuda" and torch.cuda.get_device_capability()[0] != 9:
            pytest.skip("the required layout differs on Blackwell")
        return device

    @pytest.mark.parametrize("groups", [None, 2])
    @pytest.mark.parametrize("recipe", [((1, 128, 128), True), ((1, 1, 128), False), ((1, 128), None)])
    def test_per_row(self, device, groups, recipe) -> None:
        recipe, is_sfa = recipe
        scales = random_scales(shape_of(groups, 33, 5), device)
        result = deep_gemm.transform_sf_into_required_layout(
            scales, mn=33, k=600, recipe=recipe, num_groups=groups, is_sfa=is_sfa
        )
        assert torch.equal(result, scales)
        assert_required_strides(result)

    @pytest.mark.parametrize("groups", [None, 2])
    def test_per_block_stays(self, device, groups) -> None:
        scales = random_scales(shape_of(groups, 3, 5), device)
        result = deep_gemm.transform_sf_into_required_layout(
            scales, mn=300, k=600, recipe=(1, 128, 128), num_groups=groups, is_sfa=False
        )
        assert result is scales

    def test_positional_as_vllm_calls_it(self, device) -> None:
        scales = random_scales((2, 3, 5), device)
        assert deep_gemm.transform_sf_into_required_layout(scales, 300, 600, (1, 128, 128), 2, False) is scales

    def test_refusals(self, device) -> None:
        transform = deep_gemm.transform_sf_into_required_layout
        scales = random_scales((33, 5), device)
        with pytest.raises(TypeError, match=r"int32 \(packed UE8M0 exponents, which only Blackwell takes\)"):
            transform(scales.to(torch.int32), 33, 600, (1, 128))
        with pytest.raises(TypeError, match=r"must be torch.float32, but are torch.bfloat16"):
            transform(scales.bfloat16(), 33, 600, (1, 128))
        with pytest.raises(ValueError, match=r"must have the shape \(34, 5\), but have \(33, 5\)"):
            transform(scales, 34, 600, (1, 128))
        with pytest.raises(ValueError, match=r"must have the shape \(33, 6\), but have \(33, 5\)"):
            transform(scales, 33, 641, (1, 128))
        with pytest.raises(ValueError, match=r"\[groups, mn, k\], but have 2 dimensions"):
            transform(scales, 33, 600, (1, 128), num_groups=1)
        with pytest.raises(ValueError, match="is_sfa must say"):
            transform(scales, 33, 600, (1, 128, 128))
        with pytest.raises(ValueError, match="says 1x64"):
            transform(scales, 33, 600, (1, 64))
        with pytest.raises(ValueError, match="recipe must be"):
            transform(scales, 33, 600, (128,))


@pytest.mark.parametrize("device", FEW[:1], indirect=True)
def test_refusals(device) -> None:
    scales = random_scales((4, 3), device)
    with pytest.raises(TypeError, match=r"must be torch.float32, but are torch.float64"):
        deep_gemm.get_mn_major_tma_aligned_tensor(scales.double())
    with pytest.raises(ValueError, match="but have 1 dimensions"):
        deep_gemm.get_mn_major_tma_aligned_tensor(scales[0])
    call = deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor
    counts = torch.tensor([128, 256], dtype=torch.int32, device=device)
    with pytest.raises(
        ValueError, match=r"sf must have 3 rows, one per 128 of each group's K in \[128, 256\], but has 4"
    ):
        call(scales, counts, [128, 256])
    with pytest.raises(TypeError, match="ks_tensor must be int32"):
        call(scales[:3], counts.long(), [128, 256])
    with pytest.raises(ValueError, match=r"must have the shape \(1,\)"):
        call(scales[:1], counts, [128])
    with pytest.raises(ValueError, match="must not be negative"):
        call(scales[:1], counts, [256, -128])


@pytest.mark.gpu
def test_captured_in_a_graph(cuda) -> None:
    scales = random_scales((100, 7), cuda)
    deep_gemm.get_mn_major_tma_aligned_tensor(scales)  # compiled outside of the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = deep_gemm.get_mn_major_tma_aligned_tensor(scales)
    scales.copy_(random_scales((100, 7), cuda, seed=5))
    graph.replay()
    assert torch.equal(result, scales)
