"""Marks of tests that go over kinds of packed weights. (The kinds themselves serve programs without pytest, too.)"""

from __future__ import annotations

import bf16_weight_inputs
import packed_products
import pytest
import torch

EVERY_KIND = pytest.mark.parametrize("kind", packed_products.KINDS.values(), ids=packed_products.KINDS)
EVERY_WIDE_KIND = pytest.mark.parametrize("kind", bf16_weight_inputs.KINDS.values(), ids=bf16_weight_inputs.KINDS)
ACTIVATIONS = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
OUTPUTS = pytest.mark.parametrize("output", [*bf16_weight_inputs.ROUNDING], ids=str)
