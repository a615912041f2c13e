"""Scale layouts against torch: any stride, groups, odd sizes; exact exponents; nothing launched where all is right."""

from __future__ import annotations

import pytest
import torch
from devices import FEW
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs import ceil_div, mn_major, with_awkward_strides

import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C

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


def on(device, values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def psum_ends(ks, alignment) -> list[int]:
    """Where each group ends, the next one starting at that rounded up."""
    ends = []
    for k in ks:
        ends.append((ceil_div(ends[-1], alignment) * alignment if ends else 0) + k)
    return ends


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
        with pytest.raises(ValueError, match=r"starting at that rounded up to 128, but is \[129, 200\]"):
            self.pack(scales, on(device, [129, 200]), None, 128, 128, True)
        with pytest.raises(ValueError, match=r"must not be negative, but is \[-1, 256\]"):
            self.pack(scales, on(device, [-1, 256]), [128, 256])
        with pytest.raises(ValueError, match=r"sf must have 2 rows.*as grouped_layout says, but has 3"):
            self.pack(scales, on(device, [128, 256]), None, 128, 128, True)

    @pytest.mark.parametrize("device", FEW[:1], indirect=True)
    def test_refusals(self, device) -> None:
        scales, counts = random_scales((4, 3), device), on(device, [128, 256])
        rows = r"sf must have 3 rows, one per 128 of each group's K in \[128, 256\], but has 4"
        for error, message, arguments in [
            (ValueError, rows, (scales, counts, [128, 256])),
            (ValueError, "at most 3 rows", (scales, counts, [128, 256], 128, 128, True)),
            (TypeError, "grouped_layout must be int32, but is torch.int64", (scales[:3], counts.long(), [128, 256])),
            (TypeError, r"grouped_layout must be an int32 tensor.*but is \[128, 256\]", (scales[:3], [128, 256], [1])),
            (TypeError, "grouped_layout must be an int32 tensor.*but is None", (scales[:3],)),
            (ValueError, r"grouped_layout must be \[groups\], but has", (scales[:3], counts[None], [128, 256])),
            (ValueError, r"has 2 groups, but ks_cpu has 1: \[128\]", (scales[:1], counts, [128])),
            (ValueError, r"ks_cpu\[1\] must be at least 0, but is -128", (scales[:1], counts, [256, -128])),
            (TypeError, r"ks_cpu\[0\] must be an integer, but is True", (scales[:1], counts, [True, 128])),
            (ValueError, "ks_cpu may be missing with use_psum_layout only", (scales[:3], counts, None)),
            (ValueError, "gran_k must be 32 or 128, but is 64", (scales[:3], counts, [128, 256], 64)),
            (ValueError, "k_alignment must be at least 1, but is 0", (scales[:3], counts, [128, 256], 128, 0)),
            (ValueError, "grouped_layout is on the meta device", (scales[:3], counts.to("meta"), [128, 256])),
        ]:
            with pytest.raises(error, match=message):
                self.pack(*arguments)
        with pytest.raises(TypeError, match="ks is the older name of ks_cpu"):
            self.pack(scales[:3], counts, [128, 256], ks=[128, 256])
        with pytest.raises(TypeError, match="ks_tensor is the older name of grouped_layout"):
            self.pack(scales[:3], counts, [128, 256], ks_tensor=counts)


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
    def test_refusals(self, device) -> None:
        scales, ends = random_scales((300, 5), device), on(device, [5, 140])
        transform = deep_gemm.transform_sf_into_required_layout
        with pytest.raises(TypeError, match=r"psum_layout must be int32, but is torch\.int64"):
            transform(scales, 300, 640, (1, 128), psum_layout=ends.long())
        with pytest.raises(TypeError, match=r"psum_layout must be an int32 tensor.*but is True"):
            transform(scales, 300, 640, (1, 128), psum_layout=True)
        with pytest.raises(ValueError, match=r"psum_layout is of scales per row, but the recipe \(1, 128, 128\) says"):
            transform(scales[:3], 300, 640, (1, 128, 128), is_sfa=False, psum_layout=ends)
        with pytest.raises(ValueError, match=r"psum_layout is of scales \[mn, k\], but these have the shape \(1, "):
            deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(scales[None], ends)


class TestTransformForBlackwell:
    """transform_sf_into_required_layout where the device is a Blackwell: exponents are packed, and never rounded."""

    @pytest.fixture(autouse=True)
    def blackwell(self):
        with simulator.options(target="sm_100a"):
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

    def test_fp32_scales_as_they_are_are_refused(self) -> None:
        scales = random_scales((33, 5), "cpu", powers_of_two=True)
        with pytest.raises(ValueError, match=r"disable_ue8m0_cast=True asks for .* no kernel on Blackwell multiplies"):
            deep_gemm.transform_sf_into_required_layout(scales, 33, 640, (1, 128), disable_ue8m0_cast=True)


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

    def test_psum_layout_changes_nothing(self, device) -> None:
        scales = random_scales((300, 5), device)
        ends = on(device, [5, 140])
        result = deep_gemm.transform_sf_into_required_layout(scales, 300, 640, (1, 128), psum_layout=ends)
        assert torch.equal(result, scales)

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
        for columns in (32, 64):  # 32: on Blackwell only
            with pytest.raises(ValueError, match=f"one per 1x128 or 128x128, but the recipe .* says 1x{columns}"):
                transform(scales, 33, 600, (1, columns))
        with pytest.raises(ValueError, match="recipe must be"):
            transform(scales, 33, 600, (128,))


@pytest.mark.parametrize("device", FEW[:1], indirect=True)
def test_refusals(device) -> None:
    scales = random_scales((4, 3), device)
    with pytest.raises(TypeError, match=r"must be torch.float32, but are torch.float64"):
        deep_gemm.get_mn_major_tma_aligned_tensor(scales.double())
    with pytest.raises(ValueError, match="but have 1 dimensions"):
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
