"""Products of humming-kernels (PyPI), as calls to be timed beside ours: `pip install humming-kernels==0.1.19`."""

from __future__ import annotations

from collections.abc import Callable

import torch

# Names as in our tables: elements of weights and activations, as the peer calls them, and the group of K.
_FP8, _INT8, _BF16 = ({"dtype": name} for name in ("float8e4m3", "int8", "bfloat16"))
_MXFP4 = {"dtype": "float4e2m1", "group_size": 32, "scale_dtype": "float8e8m0"}
_FP8_BLOCKS = {"dtype": "float8e4m3", "group_size": 128, "group_size_n": 128}
FORMATS = {
    "fp8 x fp8": (_FP8_BLOCKS, _FP8 | {"group_size": 128}),
    "fp8 x fp8, channels": ({"dtype": "float8e4m3"}, _FP8),
    "int8 x int8": ({"dtype": "int8"}, _INT8),
    "int8 x int4": ({"dtype": "int4"}, _INT8),
    "int8 x int4, groups of 128": ({"dtype": "int4", "group_size": 128}, _INT8),
    "fp8 x int4": ({"dtype": "int4", "group_size": 128}, _FP8),
    "fp8 x int4, channels": ({"dtype": "int4"}, _FP8),
    "fp8 x mxfp4": (_MXFP4, _FP8),
    "bf16 x int4": ({"dtype": "int4", "group_size": 128}, _BF16),
    "bf16 x int4, groups of 32": ({"dtype": "int4", "group_size": 32}, _BF16),
    "bf16 x mxfp4": (_MXFP4, _BF16),
    "bf16 x fp8": (_FP8_BLOCKS, _BF16),
}
_LARGEST_ERROR = 0.2  # of the product's norm, quantisation to four bits included


class Peer:
    """One layer's weights, `[n, k]`, or of so many experts."""

    def __init__(self, name: str, n: int, k: int, experts: int = 0) -> None:
        from humming.layer import HummingLayer

        weights, activations = FORMATS[name]
        self.name, self.experts = name, experts
        self.layer = HummingLayer(
            shape_n=n,
            shape_k=k,
            weight_config=dict(weights),
            input_config=dict(activations),
            torch_dtype=torch.bfloat16,
            num_experts=experts or None,
        ).cuda()
        shape = (experts, n, k) if experts else (n, k)
        self.weight = torch.randn(shape, dtype=torch.bfloat16, device="cuda")
        self.layer.load_from_unquantized(self.weight)
        self.layer.transform()

    def dense(self, m: int) -> Callable[[], None]:
        """The product alone: activations are quantised before."""
        x = torch.randn((m, self.layer.shape_k), dtype=torch.bfloat16, device="cuda")
        inputs, scales = self._quantised(x)
        d = torch.empty((m, self.layer.shape_n), dtype=torch.bfloat16, device="cuda")

        def call() -> None:
            self.layer(inputs, outputs=d, input_scale=scales)

        call()
        self._require_right(d, x @ self.weight.T)
        return call

    def masked(self, counts: torch.Tensor, rows: int) -> Callable[[], None]:
        """So many tokens of each expert, in matrices of so many rows."""
        x = torch.randn((self.experts * rows, self.layer.shape_k), dtype=torch.bfloat16, device="cuda")
        inputs, scales = self._quantised(x)
        together = int(counts.sum())
        d = torch.zeros((self.experts * rows, self.layer.shape_n), dtype=torch.bfloat16, device="cuda")

        def call() -> None:
            self.layer(
                inputs,
                outputs=d,
                input_scale=scales,
                expert_layout=counts,
                valid_shape_m=together,
                compute_config={"gemm_type": "grouped_masked"},
            )

        call()
        valid = slice(0, int(counts[0]))
        by_expert = x.view(self.experts, rows, -1)
        self._require_right(d.view(self.experts, rows, -1)[0, valid], by_expert[0, valid] @ self.weight[0].T)
        return call

    def _quantised(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        from humming.forward import may_quant_input

        return may_quant_input(self.layer.humming_config, x)

    def _require_right(self, d: torch.Tensor, wanted: torch.Tensor) -> None:
        error = float((d - wanted).float().norm() / wanted.float().norm())
        if not error < _LARGEST_ERROR:
            raise AssertionError(f"{self.name} of the peer is off by {error:.3f} of its norm")
