"""Exponents of K groups, packed: get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor against torch."""

from __future__ import annotations

import pytest
import torch
from devices import FEW
from inputs import ceil_div, with_awkward_strides
from scale_layouts import (
    on,
    packed_reference,
    psum_ends,
    random_scales,
)

import deep_gemm
from deep_gemm._extension import C


class TestKGroups:
    """get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor."""

    pack = staticmethod(deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor)
    KS = ([128], [512, 128, 640], [0, 1024, 0, 384], [256, 0], [16, 144])

    @staticmethod
    def scales_and_words(ks, mn, gran_k, device) -> tuple[torch.Tensor, torch.Tensor]:
        blocks = [ceil_div(k, gran_k) for k in ks]
        scales = random_scales((sum(blocks), mn), device, powers_of_two=True)
        return scales, torch.cat([packed_reference(part.T).T for part in scales.split(blocks) if part.numel() > 0])

    @pytest.mark.parametrize("gran_k", [32, 128])
    @pytest.mark.parametrize("mn", [4, 130])
    @pytest.mark.parametrize("ks", KS)
    def test_sizes(self, device, mn, ks, gran_k) -> None:
        scales, words = self.scales_and_words(ks, mn, gran_k, device)
        result = self.pack(scales, on(device, ks), ks, gran_k, gran_k)
        assert torch.equal(result, words)
        assert result.stride() == (deep_gemm.get_tma_aligned_size(mn, 4), 1)

    @pytest.mark.parametrize("device", FEW, indirect=True)
    @pytest.mark.parametrize("gran_k", [32, 128])
    @pytest.mark.parametrize("k_alignment", [32, 128, 160])
    @pytest.mark.parametrize("ks", KS)
    def test_psum(self, device, ks, gran_k, k_alignment) -> None:
        """K on the host exact, rounded up, and unknown: the result's first rows are the same, and the others zero."""
        scales, words = self.scales_and_words(ks, 12, gran_k, device)
        ends = on(device, psum_ends(ks, k_alignment))
        assert torch.equal(self.pack(scales, ends, ks, gran_k, k_alignment, use_psum_layout=True), words)
        rounded = [ceil_div(k, k_alignment) * k_alignment for k in ks]
        for sizes in (rounded, None, []):
            result = self.pack(scales, ends, sizes, gran_k, k_alignment, True)
            assert torch.equal(result[: len(words)], words)
            assert (result[len(words) :] == 0).all()

    @pytest.mark.parametrize("device", FEW, indirect=True)
    def test_any_stride_and_the_older_keywords(self, device) -> None:
        ks = [640, 128]
        scales, words = self.scales_and_words(ks, 12, 128, device)
        counts = on(device, ks)
        strided_counts = torch.stack([counts, counts], 1)[:, 0]
        for result in (
            self.pack(with_awkward_strides(scales), counts, ks),
            self.pack(scales, strided_counts, ks),
            self.pack(scales, ks_tensor=counts, ks=ks),
            self.pack(sf=scales, grouped_layout=counts, ks_cpu=ks, gran_k=128, k_alignment=128),
        ):
            assert torch.equal(result, words)

    @pytest.mark.parametrize("device", FEW, indirect=True)
    def test_no_groups_and_no_rows(self, device) -> None:
        assert self.pack(torch.empty((0, 8), device=device), on(device, []), []).shape == (0, 8)
        assert self.pack(torch.empty((2, 0), device=device), on(device, [256]), [256]).shape == (1, 0)
        assert (self.pack(torch.empty((0, 8), device=device), on(device, [0, 0]), None, 128, 128, True) == 0).all()

    @pytest.mark.parametrize("device", FEW, indirect=True)
    @pytest.mark.parametrize("psum_alignment", [0, 128, 2**31 - 1])
    @pytest.mark.parametrize(
        "layout",
        [
            [2**31 - 1, 2**31 - 1],
            [-1, 2**31 - 1],
            [-(2**31), 128],
            [4096, 512],
            [512, 4096],
            [0, 0],
            [100_000, 100_001],
        ],
    )
    def test_the_kernel_stays_inside_whatever_the_device_says(self, device, layout, psum_alignment) -> None:
        """What a GPU call cannot look at. The simulator refuses any access outside."""
        scales = random_scales((3, 8), device, powers_of_two=True)
        memory = torch.full((4, 8), -7, dtype=torch.int32, device=device)
        C.scale_layout_transform_k_grouped(scales, on(device, layout), memory[:3], 8, 128, psum_alignment)
        assert (memory[3] == -7).all()
        exponents = set((scales.view(torch.int32) >> 23).flatten().tolist()) | {0}
        assert set(memory[:3].contiguous().view(torch.uint8).flatten().tolist()) <= exponents

    @pytest.mark.parametrize("device", FEW, indirect=True)
    @pytest.mark.parametrize(
        ("layout", "psum_alignment", "means"),
        [([-500, 128, 640], 0, [0, 128, 640]), ([256, 128, 256, 896], 128, [256, 0, 128, 640])],
    )
    def test_groups_of_less_than_nothing_are_empty(self, device, layout, psum_alignment, means) -> None:
        scales, words = self.scales_and_words(means, 8, 128, device)
        result = torch.empty((len(words), 8), dtype=torch.int32, device=device)
        C.scale_layout_transform_k_grouped(scales, on(device, layout), result, 8, 128, psum_alignment)
        assert torch.equal(result, words)

    @pytest.mark.parametrize("device", FEW[:1], indirect=True)
    def test_counts_that_contradict_the_host_are_refused(self, device) -> None:
        scales = random_scales((3, 8), device, powers_of_two=True)
        both = r"grouped_layout contradicts ks_cpu: it says K of \[256, 512\].*ks_cpu says \[128, 256\]"
        with pytest.raises(ValueError, match=both):
            self.pack(scales, on(device, [256, 512]), [128, 256])
        with pytest.raises(ValueError, match=r"K of \[128, 384\] \(\[128, 512\]\), ks_cpu says \[128, 256\]"):
            self.pack(scales, on(device, [128, 512]), [128, 256], 128, 128, True)
        with pytest.raises(ValueError, match=r"K of \[128, 128\].*ks_cpu says \[128, 384\]"):
            self.pack(scales, on(device, [128, 256]), [128, 384], 128, 128, True)
        with pytest.raises(ValueError, match=r"starting at that rounded up to 128, got \[129, 200\]"):
            self.pack(scales, on(device, [129, 200]), None, 128, 128, True)
        with pytest.raises(ValueError, match=r"must not be negative, got \[-1, 256\]"):
            self.pack(scales, on(device, [-1, 256]), [128, 256])
        with pytest.raises(ValueError, match=r"sf must have 2 rows.*as grouped_layout says, got 3"):
            self.pack(scales, on(device, [128, 256]), None, 128, 128, True)

    @pytest.mark.parametrize("device", FEW[:1], indirect=True)
    def test_rejections(self, device) -> None:
        scales, counts = random_scales((4, 3), device), on(device, [128, 256])
        rows = r"sf must have 3 rows, one per 128 of each group's K in \[128, 256\], got 4"
        for error, message, arguments in [
            (ValueError, rows, (scales, counts, [128, 256])),
            (ValueError, "at most 3 rows", (scales, counts, [128, 256], 128, 128, True)),
            (TypeError, "grouped_layout must be int32, got torch.int64", (scales[:3], counts.long(), [128, 256])),
            (TypeError, r"grouped_layout must be an int32 tensor.*got \[128, 256\]", (scales[:3], [128, 256], [1])),
            (TypeError, "grouped_layout must be an int32 tensor.*got None", (scales[:3],)),
            (ValueError, r"grouped_layout must be \[groups\], got", (scales[:3], counts[None], [128, 256])),
            (ValueError, r"has 2 groups, but ks_cpu has 1: \[128\]", (scales[:1], counts, [128])),
            (ValueError, r"ks_cpu\[1\] must be at least 0, got -128", (scales[:1], counts, [256, -128])),
            (TypeError, r"ks_cpu\[0\] must be an integer, got True", (scales[:1], counts, [True, 128])),
            (ValueError, "ks_cpu may be missing with use_psum_layout only", (scales[:3], counts, None)),
            (ValueError, "gran_k must be 32 or 128, got 64", (scales[:3], counts, [128, 256], 64)),
            (ValueError, "k_alignment must be at least 1, got 0", (scales[:3], counts, [128, 256], 128, 0)),
            (ValueError, "grouped_layout is on the meta device", (scales[:3], counts.to("meta"), [128, 256])),
        ]:
            with pytest.raises(error, match=message):
                self.pack(*arguments)
        with pytest.raises(TypeError, match="ks is the older name of ks_cpu"):
            self.pack(scales[:3], counts, [128, 256], ks=[128, 256])
        with pytest.raises(TypeError, match="ks_tensor is the older name of grouped_layout"):
            self.pack(scales[:3], counts, [128, 256], ks_tensor=counts)
