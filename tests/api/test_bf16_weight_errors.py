"""Products of BF16 and FP16 activations with packed weights: what is refused, in which words."""

from __future__ import annotations

import pytest
import torch
from bf16_weight_inputs import KINDS, activations, weights
from inputs import GuardedOutput

import deep_gemm


def small(dtype: torch.dtype = torch.bfloat16):
    generator = torch.Generator().manual_seed(4)
    kind = KINDS["int4"]
    return kind, activations((8, 128), dtype, generator), weights(kind, (16, 128), generator)[0]


def test_weights_for_other_activations_are_refused() -> None:
    _, a, w = small()
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    other = deep_gemm.pack_weights(torch.ones(16, 128).char(), torch.ones(16), element="int4", activations="fp8")
    with pytest.raises(ValueError, match="w is packed for 'fp8' activations, but this function has 'bf16' ones"):
        deep_gemm.bf16_int4_gemm_nt(a, other, d.tensor)
    with pytest.raises(ValueError, match="w is packed for 'bf16' activations, but this function has 'fp8' ones"):
        deep_gemm.fp8_int4_gemm_nt((a.to(torch.float8_e4m3fn), 1.0), w, d.tensor)
    d.assert_untouched()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float32, torch.int8])
def test_activations_of_other_dtypes_are_refused(dtype) -> None:
    kind, a, w = small()
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    with pytest.raises(TypeError, match=f"a must be bfloat16 or float16, got {str(dtype)[6:]}"):
        kind.function("{}_gemm_nt")(a.to(dtype), w, d.tensor)
    d.assert_untouched()


def test_activations_with_scales_are_refused() -> None:
    kind, a, w = small()
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    with pytest.raises(TypeError, match=r"a must be a tensor, got \(tensor, 2.0\)"):
        kind.function("{}_gemm_nt")((a, 2.0), w, d.tensor)
    d.assert_untouched()


def test_bf16_activations_with_weights_for_others_are_refused() -> None:
    """Of dtypes that other functions have, packed otherwise."""
    _, a, _ = small()
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    for name, dtype in (("fp8", "float8_e4m3fn"), ("int8", "int8")):
        w = deep_gemm.pack_weights(-8 * torch.ones(16, 128).char(), torch.ones(16), element="int4", activations=name)
        with pytest.raises(TypeError, match=f"a must be {dtype}, got bfloat16"):
            getattr(deep_gemm, f"{name}_int4_gemm_nt")((a, 1.0), w, d.tensor)
    d.assert_untouched()


def test_activations_with_m_contiguous_are_refused() -> None:
    kind, a, w = small()
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    with pytest.raises(ValueError, match="a must have K contiguous, not M, beside packed weights"):
        kind.function("{}_gemm_nt")(a.T.contiguous().T, w, d.tensor)
    d.assert_untouched()
