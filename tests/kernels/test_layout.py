"""Scale layouts against torch: any stride, groups, odd sizes; exact exponents; nothing launched where all is right."""

from __future__ import annotations

import pytest
import torch
from devices import FEW
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs import ceil_div, mn_major
from scale_layouts import (
    assert_required_strides,
    on,
    packed_reference,
    random_scales,
    shape_of,
    strided,
    with_padding,
)

import deep_gemm

SHAPES = [(1, 1), (3, 4), (4, 3), (33, 5), (64, 16), (100, 57), (257, 130)]
GROUPS = [None, 1, 3]


def test_aligned_size() -> None:
    assert [deep_gemm.get_tma_aligned_size(mn, 4) for mn in (0, 1, 4, 5)] == [0, 4, 4, 8]
    assert [deep_gemm.get_tma_aligned_size(mn, 1) for mn in (1, 16, 17)] == [16, 16, 32]
    assert deep_gemm.get_tma_aligned_size(9, 2) == 16
    with pytest.raises(ValueError, match="element_size must divide 16, got 3"):
        deep_gemm.get_tma_aligned_size(4, 3)


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.sampled(30)
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


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.sampled(30)
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


class TestPsumLayout:
    """Scales of rows that belong to no expert may be anything, and are packed as zero."""

    ENDS = ([5, 140], [0, 3], [128, 128, 300])

    @staticmethod
    def scales(ends, device) -> tuple[torch.Tensor, torch.Tensor]:
        scales = random_scales((300, 5), device, powers_of_two=True)
        start, belongs = 0, torch.zeros(300, dtype=torch.bool, device=device)
        for end in ends:
            belongs[start:end] = True
            start = ceil_div(end, 128) * 128
        scales[~belongs] = float("nan")
        return scales, scales.where(belongs[:, None], torch.zeros((), device=device))

    @pytest.mark.parametrize("device", FEW, indirect=True)
    @pytest.mark.parametrize("ends", ENDS)
    def test_packed(self, device, ends) -> None:
        scales, clean = self.scales(ends, device)
        result = deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(scales, psum_layout=on(device, ends))
        assert torch.equal(result, packed_reference(clean))
        assert_required_strides(result)

    @pytest.mark.parametrize("device", FEW, indirect=True)
    def test_no_experts(self, device) -> None:
        scales = random_scales((3, 5), device)
        assert (deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(scales, on(device, [])) == 0).all()

    @pytest.mark.parametrize("device", FEW[:1], indirect=True)
    def test_rejections(self, device) -> None:
        scales, ends = random_scales((300, 5), device), on(device, [5, 140])
        transform = deep_gemm.transform_sf_into_required_layout
        with pytest.raises(TypeError, match=r"psum_layout must be int32, got torch\.int64"):
            transform(scales, 300, 640, (1, 128), psum_layout=ends.long())
        with pytest.raises(TypeError, match=r"psum_layout must be an int32 tensor.*got True"):
            transform(scales, 300, 640, (1, 128), psum_layout=True)
        with pytest.raises(ValueError, match=r"psum_layout is of scales per row, but the recipe \(1, 128, 128\) says"):
            transform(scales[:3], 300, 640, (1, 128, 128), is_sfa=False, psum_layout=ends)
        with pytest.raises(ValueError, match=r"psum_layout is of scales \[mn, k\], but these have the shape \(1, "):
            deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(scales[None], ends)


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


@pytest.mark.parametrize("device", FEW[:1], indirect=True)
def test_rejections(device) -> None:
    scales = random_scales((4, 3), device)
    with pytest.raises(TypeError, match=r"must be torch.float32, got torch.float64"):
        deep_gemm.get_mn_major_tma_aligned_tensor(scales.double())
    with pytest.raises(ValueError, match="got 1 dimensions"):
        deep_gemm.get_mn_major_tma_aligned_tensor(scales[0])


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
