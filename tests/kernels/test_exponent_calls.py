"""Calls whose scales are exponents (SM100), in what the matrix of pairs does not draw.

K groups as the device counts them, words that lie anywhere, the default recipe, plans that want another order.
"""

from __future__ import annotations

import pytest
import torch
from devices import BUT_SM100, devices_of, on_simulator
from fresh import check
from inputs import FP8, GuardedOutput, Operand, ceil_div, random_values
from scale_forms import Form, laid_out, words, written

import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C

SM100 = pytest.mark.parametrize("device", devices_of("sm100", "any"), indirect=True)
FORMS = ("words", "fp32", "e8m0")
M, N = 40, 136


def drawn(rows: int, k: int, gran_k: int, device: torch.device, seed: int, block_rows: int = 1) -> Operand:
    generator = torch.Generator().manual_seed(seed)
    shape = ceil_div(rows, block_rows), ceil_div(k, gran_k)
    scales = torch.exp2(torch.randint(-4, 5, shape, generator=generator).float()).to(device)
    return Operand(random_values((rows, k), device, seed).to(FP8), scales)


def exact(x: Operand, gran_k: int, block_rows: int = 1) -> torch.Tensor:
    rows, k = x.data.shape
    every = x.scales.double().repeat_interleave(block_rows, 0)[:rows].repeat_interleave(gran_k, 1)[:, :k]
    return x.data.double() * every


def assert_close(d: torch.Tensor, expected: torch.Tensor) -> None:
    assert (d.double() - expected).norm() <= 1e-6 * expected.norm()


class TestKGroups:
    KS = (640, 0, 144, 128, 16)
    ALIGNMENT = 128

    def operands(self, rows: int, gran_k: int, device: torch.device, seed: int) -> list[Operand]:
        return [drawn(rows, k, gran_k, device, seed + g) for g, k in enumerate(self.KS)]

    def stacked(self, parts: list[Operand], layout: str, psum: bool) -> torch.Tensor:
        """[sum_k, rows], or flattened. Between groups of the psum layout there is NaN."""
        pieces = []
        for part in parts:
            data = part.data.view(torch.uint8)
            if layout == "nt":
                pieces.append(data.flatten())
                continue
            pieces.append(data.T)
            if psum:
                gap = -len(data.T) % self.ALIGNMENT
                pieces.append(torch.full((gap, len(data)), 0x7F, dtype=torch.uint8, device=data.device))
        return torch.cat(pieces).contiguous().view(FP8)

    def layout_of(self, device: torch.device, psum: bool) -> torch.Tensor:
        if not psum:
            return torch.tensor(self.KS, dtype=torch.int32, device=device)
        ends = [0]
        for k in self.KS:
            ends.append(ceil_div(ends[-1], self.ALIGNMENT) * self.ALIGNMENT + k)
        return torch.tensor(ends[1:], dtype=torch.int32, device=device)

    def scales_of(self, parts: list[Operand], form: str, rows_first: bool) -> torch.Tensor:
        """[entries, rows], group by group."""
        scales = torch.cat([written(part.scales, Form(form)).T for part in parts]).contiguous()
        scales = scales.T.contiguous() if rows_first else scales
        return laid_out(scales, Form(form))

    def run(self, device, layout, form, gran_k, psum=False, ks="exact", rows_first=False) -> None:
        a, b = self.operands(M, gran_k, device, 0), self.operands(N, gran_k, device, 100)
        out = GuardedOutput((len(self.KS), M, N), torch.float32, device)
        rounded = [ceil_div(k, self.ALIGNMENT) * self.ALIGNMENT for k in self.KS]
        sizes = {"exact": list(self.KS), "rounded": rounded, "missing": None}[ks]
        operands = [(self.stacked(x, layout, psum), self.scales_of(x, form, rows_first)) for x in (a, b)]
        call = getattr(deep_gemm, f"k_grouped_fp8_gemm_{layout}_contiguous")
        groups = self.layout_of(device, psum)
        call(*operands, out.tensor, sizes, groups, recipe=(1, 1, gran_k), use_psum_layout=psum)
        out.check()
        for d, x, y in zip(out.tensor, a, b, strict=True):
            assert_close(d, exact(x, gran_k) @ exact(y, gran_k).T)

    @SM100
    @pytest.mark.parametrize("gran_k", [32, 128])
    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("layout", ["tn", "nt"])
    def test_sizes_of_the_host(self, device, layout, form, gran_k) -> None:
        self.run(device, layout, form, gran_k)

    @SM100
    @pytest.mark.parametrize("gran_k", [32, 128])
    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("ks", ["exact", "rounded", "missing"])
    def test_psum(self, device, ks, form, gran_k) -> None:
        """What lies between groups is never read."""
        self.run(device, "tn", form, gran_k, psum=True, ks=ks)

    @SM100
    @pytest.mark.parametrize("form", FORMS)
    def test_rows_may_come_first(self, device, form) -> None:
        self.run(device, "tn", form, 128, rows_first=True)

    @SM100
    def test_words_for_more_than_the_groups(self, device) -> None:
        """As many as they can be at most, which is what packing without `ks_cpu` makes."""
        a, b = self.operands(M, 128, device, 0), self.operands(N, 128, device, 100)
        groups = self.layout_of(device, psum=True)
        pack = deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor
        operands = [
            (self.stacked(x, "tn", psum=True), pack(self.scales_of(x, "fp32", False), groups, use_psum_layout=True))
            for x in (a, b)
        ]
        d = torch.empty((len(self.KS), M, N), device=device)
        deep_gemm.k_grouped_fp8_gemm_tn_contiguous(*operands, d, None, groups, use_psum_layout=True)
        for each, x, y in zip(d, a, b, strict=True):
            assert_close(each, exact(x, 128) @ exact(y, 128).T)

    @SM100
    def test_too_few_words_are_refused(self, device) -> None:
        a, b = self.operands(M, 128, device, 0), self.operands(N, 128, device, 100)
        scales = [self.scales_of(x, "words", False) for x in (a, b)]
        data = [self.stacked(x, "tn", psum=False) for x in (a, b)]
        d, groups = torch.empty((len(self.KS), M, N), device=device), self.layout_of(device, psum=False)
        with pytest.raises(
            ValueError, match=r"a's scales must be \[5, 40\] \(one int32 of 4 exponents per row and 512"
        ):
            deep_gemm.k_grouped_fp8_gemm_tn_contiguous(
                (data[0], scales[0][:-1]), (data[1], scales[1]), d, self.KS, groups
            )

    @pytest.mark.parametrize("device", on_simulator("any", arch="sm100"), indirect=True)
    def test_no_powers_of_two_are_refused(self, device) -> None:
        a, b = self.operands(M, 128, device, 0), self.operands(N, 128, device, 100)
        of_a, of_b = (self.scales_of(x, "fp32", False) for x in (a, b))
        data = [self.stacked(x, "tn", psum=False) for x in (a, b)]
        d, groups = torch.empty((len(self.KS), M, N), device=device), self.layout_of(device, psum=False)
        of_b[8, 5] = 1.5
        message = (
            r"b's scales .* row 5 and K from 1024 is 1\.5.*per_channel_cast_to_fp8\(x, use_ue8m0=True, gran_k=128\)"
        )
        with pytest.raises(ValueError, match=message):
            deep_gemm.k_grouped_fp8_gemm_tn_contiguous((data[0], of_a), (data[1], of_b), d, self.KS, groups)

    @pytest.mark.parametrize("device", BUT_SM100, indirect=True)
    def test_others_take_128_of_k(self, device) -> None:
        with pytest.raises(
            ValueError, match=r"scales of K groups must be one float32 per row and 128 of K here, .* 32"
        ):
            self.run(device, "tn", "fp32", 32)


@SM100
@pytest.mark.parametrize("lying", ["mn_major", "rows", "apart", "misaligned", "broadcast"])
def test_words_that_lie_anywhere(device, lying) -> None:
    k = 1300
    a, b = drawn(M, k, 128, device, 0), drawn(N, k, 128, device, 1)
    packed = words(a.scales.cpu()).to(device)
    if lying == "misaligned":
        room = torch.full((3, M + 5), -1, dtype=torch.int32, device=device)
        room[:, 1 : M + 1] = packed.T
        packed = room[:, 1 : M + 1].T
    elif lying == "broadcast":
        a = Operand(a.data, a.scales[:1].expand(a.scales.shape))
        packed = packed[:1].expand(packed.shape)
    else:
        packed = laid_out(packed, Form("words", lying))
    out = GuardedOutput((M, N), torch.float32, device)
    deep_gemm.fp8_gemm_nt((a.data, packed), b, out.tensor, recipe=(1, 1, 128))
    out.check()
    assert_close(out.tensor, exact(a, 128) @ exact(b, 128).T)


@SM100
@pytest.mark.parametrize("k", [1, 8, 33, 97, 130, 204])
def test_any_k(device, k) -> None:
    a, b = drawn(M, k, 128, device, 0), drawn(N, k, 32, device, 1)
    out = GuardedOutput((M, N), torch.float32, device)
    deep_gemm.fp8_gemm_nt(a, b, out.tensor, recipe_a=(1, 128), recipe_b=(1, 32))
    out.check()
    assert_close(out.tensor, exact(a, 128) @ exact(b, 32).T)


@SM100
@pytest.mark.parametrize("form", ["fp32", "e8m0"])
@pytest.mark.parametrize("recipes", [{"recipe": (1, 32, 32)}, {"recipe_a": (1, 128), "recipe_b": (32, 32)}], ids=str)
def test_blocks_of_32_rows(device, form, recipes) -> None:
    gran_a = 32 if "recipe" in recipes else 128
    a, b = drawn(M, 208, gran_a, device, 0), drawn(N, 208, 32, device, 1, block_rows=32)
    out = GuardedOutput((M, N), torch.float32, device)
    of_b = laid_out(written(b.scales, Form(form)), Form(form))
    deep_gemm.fp8_gemm_nt(a, (b.data, of_b), out.tensor, **recipes)
    out.check()
    assert_close(out.tensor, exact(a, gran_a) @ exact(b, 32, 32).T)


@SM100
@pytest.mark.parametrize("form", FORMS)
def test_the_default_recipe(device, form) -> None:
    """B's scales are per row where they are packed, else per block."""
    a, b = drawn(M, 640, 128, device, 0), drawn(N, 640, 128, device, 1, block_rows=1 if form == "words" else 128)
    out = GuardedOutput((M, N), torch.float32, device)
    of_b = laid_out(written(b.scales, Form(form)), Form(form))
    deep_gemm.fp8_gemm_nt(a, (b.data, of_b), out.tensor)
    out.check()
    assert_close(out.tensor, exact(a, 128) @ exact(b, 128, 1 if form == "words" else 128).T)


def measure_candidates() -> list[str]:
    """By a clock of ours, in which what comes last is fastest. Returns the kernels that ran."""
    clock = iter(range(100, 0, -1))
    C.set_autotune(True, 0, True, lambda _config: float(next(clock)))
    a, b = drawn(200, 256, 128, torch.device("cpu"), 0), drawn(N, 256, 32, torch.device("cpu"), 1)
    for _ in range(2):
        out = GuardedOutput((200, N), torch.float32, "cpu")
        deep_gemm.fp8_gemm_nt(a, b, out.tensor, recipe_a=(1, 128), recipe_b=(1, 32))
        out.check()
        assert_close(out.tensor, exact(a, 128) @ exact(b, 32).T)
    return [report.kernel for report in simulator.reports()]


def test_candidates_that_want_words_in_other_orders_are_measured(fresh_cache) -> None:
    """One tile has words in blocks, another none: each gets its own."""
    code = """
import test_exponent_calls
from deep_gemm import simulator
simulator.set_options(target="sm_100a")
result = test_exponent_calls.measure_candidates()
"""
    kernels = check(code, DG_AUTOTUNE=1, DG_JIT_CACHE_DIR=fresh_cache).result
    packing = {name for name in kernels if name.startswith("pack_fp32_into_ue8m0")}
    assert {name.endswith("_in_blocks") for name in packing} == {False, True}, kernels
