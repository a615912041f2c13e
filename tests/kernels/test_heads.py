"""`fp8_gemm_nt_skip_head_mid`: D's columns in heads, of which the middle ones stay as they are."""

from __future__ import annotations

import pytest
import torch
from candidates import forced_tile
from devices import EACH_ARCH, FEW
from inputs import GuardedOutput, Operand, random_blocks, random_rows
from reference import assert_matches, product_nt

import deep_gemm

few = pytest.mark.parametrize("device", FEW, indirect=True)
each_arch = pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
HEADS = 3
# Through the copy engine; from registers, in pairs and not.
SPLITS = [(128, 64, 128), (64, 8, 128), (64, 0, 64), (24, 10, 40), (7, 3, 5), (0, 16, 64), (64, 16, 0), (64, 3, 64)]


class Case:
    def __init__(self, splits: tuple[int, int, int], m: int, k: int, device: torch.device, heads: int = HEADS) -> None:
        self.splits, self.device = splits, device
        n = heads * (splits[0] + splits[2])
        self.a, self.b = random_rows((m, k), device, 0), random_blocks((n, k), device, 1)
        self.shape = m, heads * sum(splits)

    def output(self, dtype: torch.dtype = torch.bfloat16, padding: int = 0) -> GuardedOutput:
        return GuardedOutput(self.shape, dtype, self.device, self.shape[1] + padding)

    def run(self, d: torch.Tensor, **more) -> None:
        deep_gemm.fp8_gemm_nt_skip_head_mid(tuple(self.a), tuple(self.b), d, self.splits, **more)

    def check(self, out: GuardedOutput) -> None:
        """The product where it belongs, and what was there everywhere else."""
        out.check(complete=False)
        left, mid, _ = self.splits
        heads = out.tensor.unflatten(1, (-1, sum(self.splits)))
        assert heads[..., left : left + mid].isnan().all()
        written = torch.cat([heads[..., :left], heads[..., left + mid :]], dim=2).flatten(1)
        assert_matches(written, product_nt(self.a, self.b))


@each_arch
@pytest.mark.sampled(8)
@pytest.mark.parametrize("splits", SPLITS, ids=str)
@pytest.mark.parametrize("m", [1, 7, 129])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_against_fp64(device, splits, m, dtype) -> None:
    case = Case(splits, m, 144, device)
    out = case.output(dtype, padding=8 if m == 7 else 0)
    case.run(out.tensor)
    case.check(out)


@few
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("splits", [(128, 64, 128), (64, 8, 64), (24, 10, 40), (9, 1, 7)], ids=str)
def test_tiles_that_end_within_heads(device, splits, swapped) -> None:
    case = Case(splits, 40, 128, device)
    out = case.output()
    rows, cols = (128, 48) if swapped else (64, 96)
    with forced_tile(device, (40, case.b.data.shape[0], 128), swapped, rows, cols):
        case.run(out.tensor)
    case.check(out)


@each_arch
def test_scales_per_row(device) -> None:
    case = Case((128, 64, 128), 20, 256, device)
    case.b = random_rows(case.b.data.shape, device, 1)
    out = case.output()
    case.run(out.tensor, recipe=(1, 1, 128), compiled_dims="", disable_ue8m0_cast=True)
    case.check(out)


@each_arch
def test_without_k_what_is_written_is_zero(device) -> None:
    case = Case((24, 10, 40), 5, 0, device)
    out = case.output()
    case.run(out.tensor)
    case.check(out)


@each_arch
def test_rejections(device) -> None:
    case = Case((128, 64, 128), 5, 128, device)
    out = case.output()
    for splits, error, message in [
        ((128, 64), TypeError, r"head_splits must be three integers \(left, mid, right\)"),
        ((128, -1, 128), ValueError, "head_splits must not be negative, but one is -1"),
        ((0, 64, 0), ValueError, "head_splits must leave columns to write"),
        (
            (128, 64, 100),
            ValueError,
            r"N a multiple of the columns of a head, 128 \+ 100 of head_splits, got N=768",
        ),
        ((128, 32, 128), ValueError, r"d must be \[M, columns of all heads\] = \[5, 864\], got shape \[5, 960\]"),
    ]:
        case.splits = splits
        with pytest.raises(error, match=message):
            case.run(out.tensor)
    case.splits, case.a = (128, 64, 128), Operand(case.a.data.bfloat16(), case.a.scales)
    with pytest.raises(TypeError, match=r"a must be float8_e4m3fn.*, got bfloat16"):
        case.run(out.tensor)
    out.assert_untouched()
