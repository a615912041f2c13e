"""The names of mega-MoE as SGLang and DeepGEMM's forks call them on Hopper: their parameters, and such calls."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import layer_weights
import pytest
import torch

import deep_gemm

EXPERTS, TOKENS, TOPK, HIDDEN, INNER = 4, 6, 2, 256, 128
# As they stand there; what is ours comes behind these, by keyword.
PARAMETERS = {
    "get_symm_buffer_for_sm90_mega_moe": (
        "group num_experts num_max_tokens_per_rank num_topk hidden intermediate_hidden use_fp8_dispatch=True "
        "activation=swiglu"
    ),
    "get_symm_buffer_for_mega_moe": (
        "group num_experts num_max_tokens_per_rank num_topk hidden intermediate_hidden num_shared_experts=0 "
        "use_fp8_dispatch=None mma_type=fp8xfp4 activation=swiglu"
    ),
    "transform_weights_for_mega_moe_sm90": "l1_weights l2_weights",
    "mega_moe_pre_dispatch_sm90": (
        "x topk_idx topk_weights buf_x buf_x_sf buf_topk_idx buf_topk_weights num_tokens group_size=128 "
        "routed_scaling_factor=1.0"
    ),
    "fp8_mega_moe": (
        "y l1_weights l2_weights sym_buffer cumulative_local_expert_recv_stats=None recipe=(128,128,128) "
        "activation=swiglu activation_clamp=None fast_math=True num_tokens_bound=None"
    ),
    "get_block_m_for_mega_moe": (
        "num_ranks num_experts num_max_tokens_per_rank num_tokens num_topk mma_type=fp8xfp8 global_num_tokens=None"
    ),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name) -> None:
    parameters = inspect.signature(getattr(deep_gemm, name)).parameters.values()
    found = [
        each.name if each.default is each.empty else f"{each.name}={each.default}".replace(", ", ",")
        for each in parameters
        if each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    assert found == PARAMETERS[name].split()


def test_every_name_is_on_the_page() -> None:
    page = (Path(deep_gemm.__file__).parent.parent / "docs" / "mega-moe.md").read_text()
    named = set(re.findall(r"(?:`|deep_gemm\.)(\w+_mega_moe\w*|mega_moe_\w+|\w*SymmBuffer)", page))
    assert named >= {*PARAMETERS, "SM90SymmBuffer"}
    for name in named:
        assert hasattr(deep_gemm, name), name


def filled(name: str, **more: Any) -> deep_gemm.SM90SymmBuffer:
    made = getattr(deep_gemm, name)(None, EXPERTS, TOKENS, TOPK, HIDDEN, INNER, **more)
    assert isinstance(made, deep_gemm.SM90SymmBuffer)
    ids = (torch.arange(TOKENS * TOPK, dtype=torch.int32) % EXPERTS).view(TOKENS, TOPK)
    x = torch.randn(TOKENS, HIDDEN, generator=torch.Generator().manual_seed(0)).bfloat16()
    deep_gemm.mega_moe_pre_dispatch_sm90(
        x,
        ids,
        torch.full((TOKENS, TOPK), 0.5),
        made.x,
        made.x_sf,
        made.topk_idx,
        made.topk_weights,
        num_tokens=TOKENS,
        group_size=128,
        routed_scaling_factor=2.0,
    )
    return made


def test_calls() -> None:
    """The way of a layer in SGLang: a buffer for all layers, weights once, and in each call tokens and the layer."""
    (l1, _), (l2, _) = layer_weights.made("fp8", EXPERTS, HIDDEN, INNER, torch.device("cpu"))
    weights = deep_gemm.transform_weights_for_mega_moe_sm90(l1, l2)
    counts, results = torch.zeros(EXPERTS, dtype=torch.int32), []
    for name, more in (
        ("get_symm_buffer_for_sm90_mega_moe", {"use_fp8_dispatch": True, "activation": "swiglu"}),
        ("get_symm_buffer_for_mega_moe", {"mma_type": "fp8xfp8"}),
    ):
        y = torch.empty(TOKENS, HIDDEN, dtype=torch.bfloat16)
        deep_gemm.fp8_mega_moe(
            y,
            weights[0],
            weights[1],
            filled(name, **more),
            cumulative_local_expert_recv_stats=counts,
            recipe=(128, 128, 128),
            activation="swiglu",
            activation_clamp=10.0,
            fast_math=True,
            num_tokens_bound=TOKENS,
        )
        results.append(y)
    assert torch.equal(*results)
    assert counts.tolist() == [2 * TOKENS * TOPK // EXPERTS] * EXPERTS


def test_rows_of_a_tile_by_tokens_of_all_ranks() -> None:
    of_rank = deep_gemm.get_block_m_for_mega_moe(8, 256, 4096, 64, 8, "fp8xfp4")
    assert of_rank == deep_gemm.get_block_m_for_mega_moe(
        num_ranks=8,
        num_experts=256,
        num_max_tokens_per_rank=4096,
        num_tokens=1,
        num_topk=8,
        mma_type="fp8xfp8",
        global_num_tokens=512,
    )
    assert of_rank == 16
