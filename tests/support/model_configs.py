"""Fields of models' config.json that decide what is multiplied."""

from __future__ import annotations

from typing import Any

FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
MLA = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
DEEPSEEK = {
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_attention_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "quantization_config": FP8,
    **MLA,
}
# Fields, (tensor, expert) parallel, and some weights of one GPU: N, K, product, experts.
MODELS: dict[str, tuple[dict[str, Any], tuple[int, int], dict[str, tuple[int, int, str, int]]]] = {
    "DeepSeek-V3": (
        DEEPSEEK,
        (1, 8),
        {
            "q_a and kv_a": (2112, 7168, "fp8", 1),
            "q_b": (24576, 1536, "fp8", 1),
            "kv_b": (32768, 512, "fp8", 1),
            "o": (7168, 16384, "fp8", 1),
            "gate and up": (36864, 7168, "fp8", 1),
            "shared expert's down": (7168, 2048, "fp8", 1),
            "experts' gate and up": (4096, 7168, "fp8", 32),
        },
    ),
    "heads' results by groups, as DeepSeek-V4 has them": (
        {
            **{name: value for name, value in DEEPSEEK.items() if name not in MLA},
            "head_dim": 512,
            "q_lora_rank": 1536,
            "o_lora_rank": 1024,
            "o_groups": 16,
        },
        (2, 1),
        {
            "q_a and kv": (2048, 7168, "fp8", 1),
            "q_b": (32768, 1536, "fp8", 1),
            "o_b": (7168, 8192, "fp8", 1),
        },
    ),
    "Kimi-K2": (
        {**DEEPSEEK, "num_attention_heads": 64, "n_routed_experts": 384, "first_k_dense_replace": 1},
        (8, 1),
        {"q_b": (1536, 1536, "fp8", 1), "experts' down": (7168, 256, "fp8", 384), "down": (7168, 2304, "fp8", 1)},
    ),
    "Qwen3-30B-A3B": (
        {
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "moe_intermediate_size": 768,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "torch_dtype": "bfloat16",
        },
        (1, 1),
        {"qkv": (5120, 2048, "bf16", 1), "o": (2048, 4096, "bf16", 1), "experts' down": (2048, 768, "bf16", 128)},
    ),
    "GLM-4.5": (
        {
            "hidden_size": 5120,
            "intermediate_size": 12288,
            "moe_intermediate_size": 1536,
            "num_attention_heads": 96,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "n_routed_experts": 160,
            "n_shared_experts": 1,
            "first_k_dense_replace": 3,
        },
        (4, 1),
        {
            "qkv": (3584, 5120, "bf16", 1),
            "gate and up": (6144, 5120, "bf16", 1),
            "experts' down": (5120, 384, "bf16", 160),
        },
    ),
    "gpt-oss-120b": (
        {
            "hidden_size": 2880,
            "intermediate_size": 2880,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "num_local_experts": 128,
            "quantization_config": {"quant_method": "mxfp4"},
        },
        (1, 1),
        {"qkv": (5120, 2880, "bf16", 1), "experts' gate and up": (5760, 2880, "bf16_fp4", 128)},
    ),
    "MiniMax-M2": (
        {
            "hidden_size": 3072,
            "intermediate_size": 1536,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "num_local_experts": 256,
            "quantization_config": FP8,
        },
        (1, 4),
        {"qkv": (8192, 3072, "fp8", 1), "experts' gate and up": (3072, 3072, "fp8", 64)},
    ),
    "Llama 4 Scout": (
        {
            "text_config": {
                "hidden_size": 5120,
                "intermediate_size": 8192,
                "intermediate_size_mlp": 16384,
                "num_attention_heads": 40,
                "num_key_value_heads": 8,
                "head_dim": 128,
                "num_local_experts": 16,
            }
        },
        (8, 1),
        {
            "qkv": (896, 5120, "bf16", 1),
            "down": (5120, 2048, "bf16", 1),
            "shared expert's down": (5120, 1024, "bf16", 1),
            "experts' down": (5120, 1024, "bf16", 16),
        },
    ),
    "Mixtral-8x7B, AWQ": (
        {
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "num_local_experts": 8,
            "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
        },
        (1, 1),
        {"qkv": (6144, 4096, "bf16_int4", 1), "experts' gate and up": (28672, 4096, "bf16_int4", 8)},
    ),
}

SMALL = {
    "hidden_size": 512,
    "intermediate_size": 768,
    "moe_intermediate_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "quantization_config": FP8,
}
