"""transform_sf_into_required_layout on each architecture."""

from __future__ import annotations

import pytest
import torch
from devices import FEW, on_simulator
from inputs import is_blackwell, mn_major, takes_powers_of_two
from scale_layouts import (
    assert_required_strides,
    on,
    packed_reference,
    random_scales,
    shape_of,
)

import deep_gemm
from deep_gemm import simulator


class TestTransformForBlackwell:
    """transform_sf_into_required_layout where the device is a Blackwell: exponents are packed, and never rounded."""

    @pytest.fixture(autouse=True, params=["sm_100a", "sm_120a"])
    def blackwell(self, request):
        with simulator.options(target=request.param):
            yield

    @pytest.mark.parametrize("columns", [32, 128])
    def test_per_row(self, columns) -> None:
        scales = random_scales((33, 5), "cpu", powers_of_two=True)
        result = deep_gemm.transform_sf_into_required_layout(scales, 33, 5 * columns, (1, columns))
        assert torch.equal(result, packed_reference(scales))
        assert_required_strides(result)

    def test_per_block_is_repeated_for_each_row(self) -> None:
        scales = random_scales((3, 5), "cpu", powers_of_two=True)
        result = deep_gemm.transform_sf_into_required_layout(scales, 300, 640, (1, 128, 128), is_sfa=False)
        assert torch.equal(result, packed_reference(scales.repeat_interleave(128, 0)[:300]))

    def test_packed_scales_stay(self) -> None:
        packed = mn_major(random_scales((33, 2), "cpu")).view(torch.int32)
        assert deep_gemm.transform_sf_into_required_layout(packed, 33, 1024, (1, 128)) is packed

    def test_what_is_no_power_of_two_is_refused(self) -> None:
        """The sentence names what quantises anew. Rows between experts are not judged."""
        transform = deep_gemm.transform_sf_into_required_layout
        for wrong in (1.5, -1.0, float("nan")):
            scales = random_scales((300, 5), "cpu", powers_of_two=True)
            scales[7, 3] = wrong
            with pytest.raises(
                ValueError, match=r"powers of two.*per_token_cast_to_fp8\(x, use_ue8m0=True, gran_k=32\)"
            ):
                transform(scales, 300, 160, (1, 32))
            assert (transform(scales, 300, 640, (1, 128), psum_layout=on("cpu", [7, 140]))[7:128] == 0).all()
        with pytest.raises(ValueError, match=r"per_block_cast_to_fp8\(x, use_ue8m0=True, gran_k=128\)"):
            transform(scales[5:8], 300, 640, (1, 128, 128), is_sfa=False)
        with pytest.raises(ValueError, match=r"anew, with scales that deep_gemm\.utils\.ceil_to_ue8m0 has rounded up"):
            transform(scales[5:8], 300, 160, (1, 128, 32), is_sfa=False)  # no cast makes blocks of 128 x 32

    def test_blocks_of_32_columns(self) -> None:
        scales = random_scales((2, 3, 5), "cpu", powers_of_two=True)
        result = deep_gemm.transform_sf_into_required_layout(scales, 300, 160, (1, 128, 32), 2, False)
        assert torch.equal(result, packed_reference(scales.repeat_interleave(128, 1)[:, :300]))

    def test_blocks_of_32_rows(self) -> None:
        scales = random_scales((2, 3, 5), "cpu", powers_of_two=True)
        result = deep_gemm.transform_sf_into_required_layout(scales, 90, 160, (1, 32, 32), 2, False)
        assert torch.equal(result, packed_reference(scales.repeat_interleave(32, 1)[:, :90]))

    def test_fp32_scales_stay_what_they_are_where_that_is_asked_for(self) -> None:
        of_rows, of_blocks = random_scales((33, 5), "cpu"), random_scales((2, 3, 5), "cpu")
        rows = deep_gemm.transform_sf_into_required_layout(of_rows, 33, 640, (1, 128), disable_ue8m0_cast=True)
        assert torch.equal(rows, of_rows)
        assert_required_strides(rows)
        blocks = deep_gemm.transform_sf_into_required_layout(
            of_blocks, 300, 640, (1, 128, 128), 2, False, disable_ue8m0_cast=True
        )
        assert blocks is of_blocks
        of_32 = of_rows, 33, 160, (1, 32)
        if deep_gemm.get_target("cpu") == "sm_120a":
            assert torch.equal(deep_gemm.transform_sf_into_required_layout(*of_32, disable_ue8m0_cast=True), of_rows)
            return
        with pytest.raises(ValueError, match=r"one per 1x128 or 128x128, but the recipe .* says 1x32"):
            deep_gemm.transform_sf_into_required_layout(*of_32, disable_ue8m0_cast=True)


class TestTransform:
    """transform_sf_into_required_layout on Hopper, and on Blackwell after `set_fp32_scales(True)`."""

    @pytest.fixture(params=[*on_simulator("any", arch="sm100fp32"), *FEW])
    def device(self, device):
        if takes_powers_of_two(device):
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
    @pytest.mark.parametrize("columns", [32, 128])
    def test_words_stay_words(self, device, groups, columns) -> None:
        """Calls unpack them; that they are per row is what the words say."""
        words = torch.arange(33 * 2 * (groups or 1), dtype=torch.int32, device=device).view(shape_of(groups, 33, 2))
        k = 5 * columns
        result = deep_gemm.transform_sf_into_required_layout(words, 33, k, (1, columns), num_groups=groups)
        assert result.dtype == torch.int32
        assert torch.equal(result, words)
        assert_required_strides(result)
        assert deep_gemm.transform_sf_into_required_layout(result, 33, k, (1, columns), num_groups=groups) is result

    def test_scales_of_fp4_weights(self, device) -> None:
        scales = random_scales((2, 33, 5), device)
        if is_blackwell(device) and not takes_powers_of_two(device):  # its kernel has scales for 128 of K only
            with pytest.raises(ValueError, match="scales must be one per 1x128 or 128x128"):
                deep_gemm.transform_sf_into_required_layout(scales, 33, 160, (1, 32), 2)
            return
        result = deep_gemm.transform_sf_into_required_layout(scales, 33, 160, (1, 32), 2)
        if takes_powers_of_two(device):
            assert result.dtype == torch.int32
            assert result.shape == (2, 33, 2)
        else:
            assert torch.equal(result, scales)
        assert_required_strides(result)

    def test_blocks_of_32_stay(self, device) -> None:
        scales = random_scales((2, 3, 5), device)
        if is_blackwell(device) and not takes_powers_of_two(device):  # its kernel has scales for 128 of K only
            with pytest.raises(ValueError, match="scales must be one per 1x128 or 128x128"):
                deep_gemm.transform_sf_into_required_layout(scales, 90, 160, (1, 32, 32), 2, False)
            return
        result = deep_gemm.transform_sf_into_required_layout(scales, 90, 160, (1, 32, 32), 2, False)
        if takes_powers_of_two(device):  # packed, for each row
            assert result.dtype == torch.int32
            assert result.shape == (2, 90, 2)
        else:
            assert result is scales

    @pytest.mark.parametrize("groups", [None, 2])
    def test_per_block_stays(self, device, groups) -> None:
        scales = random_scales(shape_of(groups, 3, 5), device)
        result = deep_gemm.transform_sf_into_required_layout(
            scales, mn=300, k=600, recipe=(1, 128, 128), num_groups=groups, is_sfa=False
        )
        assert result is scales

    def test_psum_layout_changes_nothing(self, device) -> None:
        scales = random_scales((300, 5), device)
        ends = on(device, [5, 140])
        result = deep_gemm.transform_sf_into_required_layout(scales, 300, 640, (1, 128), psum_layout=ends)
        assert torch.equal(result, scales)

    def test_positional_as_vllm_calls_it(self, device) -> None:
        scales = random_scales((2, 3, 5), device)
        assert deep_gemm.transform_sf_into_required_layout(scales, 300, 600, (1, 128, 128), 2, False) is scales

    def test_rejections(self, device) -> None:
        transform = deep_gemm.transform_sf_into_required_layout
        scales = random_scales((33, 5), device)
        with pytest.raises(ValueError, match=r"must have the shape \(33, 2\), got \(33, 5\)"):
            transform(scales.to(torch.int32), 33, 600, (1, 128))
        with pytest.raises(ValueError, match=r"one per 1x32 or 1x128, but the recipe .* says 128x128"):
            transform(scales.to(torch.int32), 33, 600, (128, 128))
        with pytest.raises(TypeError, match=r"must be torch.float32, got torch.bfloat16"):
            transform(scales.bfloat16(), 33, 600, (1, 128))
        with pytest.raises(ValueError, match=r"must have the shape \(34, 5\), got \(33, 5\)"):
            transform(scales, 34, 600, (1, 128))
        with pytest.raises(ValueError, match=r"must have the shape \(33, 6\), got \(33, 5\)"):
            transform(scales, 33, 641, (1, 128))
        with pytest.raises(ValueError, match=r"\[groups, mn, k\], got 2 dimensions"):
            transform(scales, 33, 600, (1, 128), num_groups=1)
        with pytest.raises(ValueError, match="is_sfa must say"):
            transform(scales, 33, 600, (1, 128, 128))
        for rows, columns in ((1, 64), (32, 128), (32, 32)):
            if (rows, columns) == (32, 32) and not is_blackwell(device):
                continue
            with pytest.raises(ValueError, match=f"1x128 or 128x128, but the recipe .* says {rows}x{columns}"):
                transform(scales, 33, 600, (rows, columns))
        with pytest.raises(ValueError, match="recipe must be"):
            transform(scales, 33, 600, (128,))
