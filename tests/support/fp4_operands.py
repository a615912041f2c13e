"""FP4 operands, of MXFP4 and NVFP4, as `deep_gemm.fp4` takes them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matrix import Scaling, packed, quantised
from scale_forms import Form, laid_out, written

SCALINGS = {"mxfp4": Scaling("ue8m0", 1, 32), "nvfp4": Scaling("e4m3", 1, 16)}
NAN = {"mxfp4": 0xFF, "nvfp4": 0x7F}
BYTES = {"mxfp4": torch.float8_e8m0fnu, "nvfp4": torch.float8_e4m3fn}


@dataclass
class Fp4:
    codes: torch.Tensor  # int8 [rows, K / 2]
    scales: torch.Tensor  # uint8 [rows, ceil(K / group)]
    exact: torch.Tensor  # FP64 [rows, K]
    kind: str

    @property
    def pair(self) -> tuple[torch.Tensor, torch.Tensor]:
        """In rows, a byte a scale."""
        return self.codes, self.scales.view(BYTES[self.kind])

    @property
    def words_with_nan(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Words of scales, NaN behind the end of K."""
        scales = torch.nn.functional.pad(self.scales, (0, -self.scales.shape[1] % 4), value=NAN[self.kind])
        words = scales.view(torch.int32) if scales.numel() else scales.to(torch.int32)
        return self.codes, words


def operand(kind: str, rows: int, k: int, seed: int) -> Fp4:
    x = quantised("e2m1r", SCALINGS[kind], rows, k, torch.Generator().manual_seed(seed))
    form = Form("e8m0" if kind == "mxfp4" else "e4m3")
    return Fp4(packed(x.data), laid_out(written(x.scales, form), form).view(torch.uint8), x.exact, kind)


def recipe(kind: str) -> tuple[int, int, int]:
    return (1, 1, SCALINGS[kind].k)


def assert_near(found: torch.Tensor, a: torch.Tensor, b: torch.Tensor, factor: float = 1) -> None:
    """An FP32 result, against operands in FP64."""
    expected, magnitude = factor * (a @ b.T), abs(factor) * (a.abs() @ b.abs().T)
    wrong = ~((found.double().cpu() - expected).abs() <= 2e-6 * magnitude)
    assert not wrong.any(), f"{wrong.sum().item()} of {wrong.numel()} elements are wrong"
