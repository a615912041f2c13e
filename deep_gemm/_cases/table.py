"""Which functions there are cases of, and what makes them."""

from __future__ import annotations

from collections.abc import Callable

import deep_gemm

from .. import logits, quantize
from .._models import ModelWeight
from ..utils.math import ceil_div
from . import others, products, sums
from .case import Case, Wanted

Build = Callable[[str, tuple[int, ...], Wanted], Case]


def _table() -> dict[str, Build]:
    made: dict[str, Build] = {name: products.of_name for name in dir(deep_gemm) if products.form_of(name) is not None}
    k_grouped = ("fp8_gemm_nt", "fp8_gemm_tn", "bf16_gemm_tn", "fp4_gemm_nt")
    made |= {f"k_grouped_{name}_contiguous": sums.k_groups for name in k_grouped}
    made |= dict.fromkeys(("einsum", "fp8_einsum"), sums.einsum)
    made["tf32_hc_prenorm_gemm"] = sums.prenorm
    made |= {name: others.index_logits for name in logits.__all__ if name.endswith("mqa_logits")}
    made |= {f"quantize.{name}": others.quantised for name in quantize.__all__}
    made |= {f"routing.{name}": others.routed for name in ("route", "gather", "combine")}
    layouts = ("get_mn_major_tma_aligned_tensor", "get_mn_major_tma_aligned_packed_ue8m0_tensor")
    made |= dict.fromkeys(layouts, others.scale_layout)
    casts = ("per_token_cast_to_fp8", "per_block_cast_to_fp8", "per_token_cast_to_int8", "per_token_cast_to_fp4")
    return made | dict.fromkeys((*casts, "per_token_cast_to_nvfp4"), others.cast)


FUNCTIONS = _table()


def build(name: str, shape: tuple[int, ...], wanted: Wanted) -> Case:
    if name not in FUNCTIONS:
        raise ValueError(f"there is no case of {name!r}: it must be one of {', '.join(sorted(FUNCTIONS))}")
    return FUNCTIONS[name](name, shape, wanted)


def build_weight(weight: ModelWeight, m: int, wanted: Wanted) -> Case:
    """A model's weight with `m` tokens; of experts, as many rows each as tokens bring if they spread evenly."""
    if weight.calls.grouping == "dense":
        return products.of_calls(weight.calls, (m, weight.n, weight.k), wanted)
    rows = max(1, ceil_div(m * weight.rows_a_token, weight.model_experts))
    return products.of_calls(weight.calls, (weight.calls.experts, rows, weight.n, weight.k), wanted)
