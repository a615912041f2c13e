"""K groups that have scales for their K rounded up to the alignment: `use_padded_sf_layout`, or psum groups' number."""

from __future__ import annotations

import pytest
import torch
from devices import on_simulator
from grouped_inputs import alignment_of
from inputs import FP8, ceil_div, random_values
from scale_forms import E8M0, exponents, words

import deep_gemm

ALIGNMENT, M, N = 256, 40, 24
KS = (144, 0, 272, 16)
DEVICES = [*on_simulator("any", arch="sm100"), *on_simulator("any", arch="sm90")]


def up(k: int) -> int:
    return ceil_div(k, ALIGNMENT) * ALIGNMENT


class Groups:
    def __init__(self, rows: int, gran_k: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.rows, self.gran_k = rows, gran_k
        self.data = [random_values((k, rows), "cpu", seed + g).to(FP8) for g, k in enumerate(KS)]
        draws = [torch.randint(-4, 5, (ceil_div(k, gran_k), rows), generator=generator) for k in KS]
        self.scales = [torch.exp2(draw.float()) for draw in draws]

    def psum(self) -> torch.Tensor:
        return torch.cat(
            [torch.nn.functional.pad(x.view(torch.uint8), (0, 0, 0, up(len(x)) - len(x))) for x in self.data]
        ).view(FP8)

    def written(self, padded: bool, form: str) -> torch.Tensor:
        """What lies in the padding is another scale."""
        parts = []
        for k, scales in zip(KS, self.scales, strict=True):
            fill = ceil_div(up(k), self.gran_k) - len(scales) if padded else 0
            filled = torch.cat([scales, torch.full((fill, self.rows), 64.0)])
            parts.append(words(filled.T).T if form == "words" else exponents(filled) if form == "e8m0" else filled)
        joined = torch.cat(parts)
        return joined.view(E8M0) if form == "e8m0" else joined


def run(
    a: torch.Tensor, b: torch.Tensor, of_a: torch.Tensor, of_b: torch.Tensor, gran_k: int, ks, **how
) -> torch.Tensor:
    ends, end = [], 0
    for k in KS:
        end = up(end) + k
        ends.append(end)
    d = torch.full((len(KS), M, N), torch.nan)
    layout = torch.tensor(ends, dtype=torch.int32)
    deep_gemm.k_grouped_fp8_gemm_tn_contiguous(
        (a, of_a), (b, of_b), d, ks, layout, recipe=(1, 1, gran_k), use_psum_layout=True, **how
    )
    return d


@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("form", ["fp32", "e8m0", "words"])
@pytest.mark.parametrize("rows_first", [False, True])
def test_psum(device, form, rows_first) -> None:
    gran_k = 32 if rows_first and deep_gemm.get_target(device).startswith("sm_100") else 128
    a, b = Groups(M, gran_k, 0), Groups(N, gran_k, 10)
    given = [x.written(True, form).T.contiguous() if rows_first else x.written(True, form) for x in (a, b)]
    with alignment_of(ALIGNMENT):
        wanted = run(a.psum(), b.psum(), a.written(False, form), b.written(False, form), gran_k, None)
        for ks in ([up(k) for k in KS], [*KS], None):
            for told in (True, False):  # the number of scales tells too
                found = run(a.psum(), b.psum(), *given, gran_k, ks, use_padded_sf_layout=told)
                assert torch.equal(found, wanted)
    assert wanted.isfinite().all()


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_psum_of_flattened_groups(device) -> None:
    """The host knows padded sizes, the device where each group ends."""
    a, b = Groups(M, 128, 0), Groups(N, 128, 10)
    padded = [up(k) for k in KS]
    flat = [
        torch.cat([x.view(torch.uint8)[first : first + k].T.flatten() for first, k in zip(starts, padded, strict=True)])
        for x in (a.psum(), b.psum())
        for starts in [[sum(padded[:g]) for g in range(len(KS))]]
    ]
    ends = torch.tensor([sum(padded[:g]) + k for g, k in enumerate(KS)], dtype=torch.int32)
    d = torch.full((len(KS), M, N), torch.nan)
    with alignment_of(ALIGNMENT):
        wanted = run(a.psum(), b.psum(), a.written(False, "fp32"), b.written(False, "fp32"), 128, None)
        for told in (True, False):
            pairs = [(x.view(FP8), y.written(True, "fp32")) for x, y in zip(flat, (a, b), strict=True)]
            deep_gemm.k_grouped_fp8_gemm_nt_contiguous(
                *pairs, d, padded, ends, use_psum_layout=True, use_padded_sf_layout=told
            )
            torch.testing.assert_close(d, wanted, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_sizes_that_are_not_rounded_up(device) -> None:
    """Operands lie compact, their scales do not."""
    a, b = Groups(M, 128, 0), Groups(N, 128, 10)
    d, wanted = (torch.full((len(KS), M, N), torch.nan) for _ in range(2))
    sizes = torch.tensor(KS, dtype=torch.int32)
    with alignment_of(ALIGNMENT):
        for out, padded in ((d, True), (wanted, False)):
            pairs = [
                (torch.cat([x.view(torch.uint8) for x in y.data]).view(FP8), y.written(padded, "fp32")) for y in (a, b)
            ]
            deep_gemm.k_grouped_fp8_gemm_tn_contiguous(*pairs, out, [*KS], sizes, use_padded_sf_layout=padded)
    assert wanted.isfinite().all()
    assert torch.equal(d, wanted)


@pytest.mark.parametrize("device", DEVICES[:1], indirect=True)
@pytest.mark.parametrize("host", [True, False])
@pytest.mark.parametrize("k_alignment", [ALIGNMENT, None])
def test_packing(device, host, k_alignment) -> None:
    """Each group has words for its padded K; products that are told so take them."""
    x = Groups(M, 32, 0)
    ends, end = [], 0
    for k in KS:
        end = up(end) + k
        ends.append(end)
    with alignment_of(ALIGNMENT):
        packed = deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(
            x.written(True, "fp32"),
            torch.tensor(ends, dtype=torch.int32),
            [up(k) for k in KS] if host else None,
            32,
            k_alignment,
            use_psum_layout=True,
            use_padded_sf_layout=True,
        )
    wanted = x.written(True, "words")
    assert torch.equal(packed[: len(wanted)], wanted)
    assert len(packed) == len(wanted) or (not host and not packed[len(wanted) :].any())
