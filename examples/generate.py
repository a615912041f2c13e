"""transformers generates with this library's products, beside its own eager experts.

    python -m examples.generate [FOLDER]

Needs transformers 5.17 to 5.24. Without FOLDER the model has random weights: on a GPU four layers of Qwen3-30B-A3B's
sizes, elsewhere a tiny one on the simulator, and what it generates are numbers of tokens. With FOLDER, a checkpoint in
BF16 that transformers can load, the text is printed.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
import transformers

from deep_gemm import nn
from deep_gemm.integrations import transformers as integration

QWEN3_30B_A3B: dict[str, Any] = {
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "vocab_size": 151936,
}
QWEN3_30B_A3B |= {"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128}
QWEN3_30B_A3B |= {"num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True}
TINY: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 256, "moe_intermediate_size": 128, "vocab_size": 256}
TINY |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "num_experts": 4, "num_experts_per_tok": 2}


def generate(model: Any, prompt: torch.Tensor, new_tokens: int) -> tuple[torch.Tensor, float]:
    """The most likely tokens, and how many came in a second. The first round compiles and is not timed."""
    how = {"max_new_tokens": new_tokens, "min_new_tokens": new_tokens, "do_sample": False, "pad_token_id": 0}
    asked = {"attention_mask": torch.ones_like(prompt), **how}
    model.generate(prompt, **asked)
    start = time.perf_counter()
    tokens = model.generate(prompt, **asked)[:, prompt.shape[1] :].cpu()  # waits for the GPU
    return tokens, tokens.numel() / (time.perf_counter() - start)


def logits_of(model: Any, prompt: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        result: torch.Tensor = model(prompt).logits.float()
    return result


def main() -> None:
    transformers.logging.set_verbosity_error()
    gpu = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
    device, folder = "cuda" if gpu else "cpu", sys.argv[1] if len(sys.argv) > 1 else None
    torch.manual_seed(0)
    tokenizer = None
    if folder is not None:
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        model = model.to(device).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        prompt = tokenizer("Matrices are multiplied fastest", return_tensors="pt")["input_ids"].to(device)
    else:
        config = transformers.Qwen3MoeConfig(**(QWEN3_30B_A3B if gpu else TINY), num_hidden_layers=4 if gpu else 1)
        with torch.device(device):
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
        prompt = torch.randint(0, config.vocab_size, (8, 128) if gpu else (1, 4), device=device)
    new_tokens = 64 if gpu else 3

    def tell(name: str, exact: torch.Tensor | None, limit: float) -> torch.Tensor:
        found = logits_of(model, prompt)
        tokens, rate = generate(model, prompt, new_tokens)
        error = 0.0 if exact is None else float((found - exact).norm() / exact.norm())
        said = tokens[0, :8].tolist() if tokenizer is None else tokenizer.decode(tokens[0])
        print(f"{name}: {rate:.1f} tokens a second, logits {error:.4f} from the first, {said}")
        if not error < limit:
            raise SystemExit(f"logits of {name} must be within {limit} of the first, got {error}")
        return found

    model.set_experts_implementation("eager")
    exact = tell("eager torch", None, 1)
    integration.enable()
    model.set_experts_implementation("deepgemm")
    tell("BF16 experts by deep_gemm", exact, 0.1)
    integration.disable()
    model.set_experts_implementation("eager")  # which convert can try with small tensors, on any device
    nn.convert(model, config={"element": "int4", "activations": "bf16", "skip": ["lm_head"]})
    tell("int4 weights by deep_gemm.nn.convert", exact, 0.8)  # rounded without calibration: other tokens are expected


if __name__ == "__main__":
    main()
