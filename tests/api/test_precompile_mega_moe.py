"""`precompile --model --mega-moe`: kernels of experts as one layer."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from model_configs import SMALL

import deep_gemm
from deep_gemm import jit, simulator
from deep_gemm._models import ModelCalls, kernels_of_model, weights_of_model
from deep_gemm._recording import Machine


@pytest.mark.parametrize(("product", "ranks"), [(None, 1), (None, 2), ("fp8_int4", 1), ("fp8_fp4", 2)])
def test_experts_as_one_layer_are_among_the_kernels(product, ranks) -> None:
    calls = ModelCalls(expert_parallel=ranks, max_m=160, max_masked_m=32, product=product, mega_moe=True)
    found = kernels_of_model(SMALL, weights_of_model(SMALL, calls), calls, Machine("sm_90a", 132))
    up, down = ((4 // ranks, n, k) for n, k in ((512, 512), (512, 256)))
    if product:
        element, group = {"fp8_int4": ("int4", 128), "fp8_fp4": ("e2m1", 32)}[product]
        pair: Any = tuple(
            deep_gemm.pack_weights(
                torch.ones(shape, dtype=torch.int8),
                torch.ones(*shape[:2], shape[2] // group),
                element=element,
                activations="fp8",
                group_size=group,
                gate_up=gate_up,
            )
            for shape, gate_up in ((up, "halves"), (down, None))
        )
    else:
        pair = tuple(
            (torch.zeros(shape).to(torch.float8_e4m3fn), torch.ones(shape[0], shape[1] // 128, shape[2] // 128))
            for shape in (up, down)
        )
    group = simulator.ranks(2)[1] if ranks == 2 else None
    with jit.record("sm_90a") as recording:
        apart, whole = (
            deep_gemm.get_symm_buffer_for_sm90_mega_moe(group, 4, 160, 2, 512, 256, device="cpu", persistent=persistent)
            for persistent in (False, True)
        )
        views = apart.x, apart.x_sf, apart.topk_idx, apart.topk_weights
        for m in (1, 160, *random.sample(range(2, 160), 3)):
            x, factors = torch.zeros(m, 512, dtype=torch.bfloat16), torch.zeros(m, 2)
            ids = torch.zeros(m, 2, dtype=random.choice([torch.int32, torch.int64]))
            deep_gemm.mega_moe_pre_dispatch_sm90(x, ids, factors, *views, num_tokens=m)
            for buffer in (apart, whole):
                deep_gemm.fp8_mega_moe(torch.zeros_like(x), *pair, buffer, num_tokens_bound=m)
    assert len(recording.kernels) > 6
    assert any("moe_layer" in each.name for each in recording.kernels)
    assert {*recording.kernels} <= {*found.kernels}, {each.name for each in {*recording.kernels} - {*found.kernels}}


def test_a_layer_of_other_experts_is_refused() -> None:
    with pytest.raises(ValueError, match="mega_moe is for experts of fp8, fp8_int4, fp8_fp4, not of bf16"):
        deep_gemm.precompile_model({**SMALL, "quantization_config": None}, deep_gemm.ModelCalls(mega_moe=True))
    with pytest.raises(ValueError, match="mega_moe must be False for a model without experts"):
        deep_gemm.precompile_model({**SMALL, "num_experts": None}, deep_gemm.ModelCalls(mega_moe=True))
