"""weights_from_checkpoint: what is refused; and packed weights in a file of their own."""

from __future__ import annotations

import checkpoints
import pytest
import torch
from checkpoint_inputs import gptq, random, scales_of, shuffled_groups
from safetensors.torch import load_file, save_file

from deep_gemm import PackedWeights, weights_from_checkpoint

INT32 = torch.zeros((4, 8), dtype=torch.int32)
PAIR = {"weight": torch.zeros((8, 64), dtype=torch.int8)}
UNEQUAL = {"weight": [PAIR["weight"]] * 2, "weight_scale_inv": torch.ones(3, 8, 1)}
INT8 = torch.zeros((32, 32), dtype=torch.int8)
QOQ = {
    "qweight": INT8,
    "s1_scales": torch.ones(32).half(),
    "s2_scales": torch.full((2, 32), 20, dtype=torch.int8),
    "s2_zeros": torch.zeros((2, 32), dtype=torch.int8),
}
FAR_APART = torch.tensor([0, -1], dtype=torch.int8).repeat(32, 16)  # codes 0 and 15
CHANNELS = {"qweight": INT8, "s1_scales": torch.ones(32).half(), "s1_szeros": torch.full((32,), 0.5).half()}
BLOCKS = {"weight": torch.zeros(8, 64).to(torch.float8_e4m3fn), "weight_scale_inv": torch.ones(2, 1)}
TWO_GROUPS = {"config_groups": {"a": {"weights": {"num_bits": 4}}, "b": {"weights": {"num_bits": 8}}}}


@pytest.mark.parametrize(
    ("form", "tensors", "config", "error", "message"),
    [
        ("ggml", {}, None, ValueError, "format must be one of compressed-tensors, gptq, .*, qoq, got 'ggml'"),
        ("qoq", {}, None, ValueError, "a 'qoq' checkpoint has qweight, but no tensor has that name"),
        ("qoq", {"qweight": INT8[:24]}, None, ValueError, r"in blocks of 32 x 32, got \[24, 64\]"),
        ("qoq", QOQ, {"group_size": 64}, ValueError, "s2_scales must have 1 groups, one for 64 of K=64 as .* got 2"),
        (
            "qoq",
            {**QOQ, "s2_zeros": INT8[:2, :1]},
            None,
            ValueError,
            r"s2_zeros must have .* \[2, 32\].*got \[2, 1\]",
        ),
        (
            "qoq",
            {**QOQ, "qweight": FAR_APART},
            None,
            ValueError,
            "within -128..127 for 'int8' activations, but one is 300",
        ),
        ("qoq", CHANNELS, None, ValueError, "s1_szeros must be integers times s1_scales"),
        ("gptq", {}, None, ValueError, "a 'gptq' checkpoint has qweight, but no tensor has that name"),
        ("mxfp4", {}, None, ValueError, "has blocks or weight_packed or weight, but no tensor"),
        ("gptq", gptq(qweight=INT32.long()), None, TypeError, "qweight must be torch.int32, got torch.int64"),
        ("gptq", gptq(qzeros=INT32[0]), None, ValueError, r"qzeros must have the shape \[4, 1\].*got \[8\]"),
        ("gptq", gptq(), {"bits": 3}, NotImplementedError, "weights of 3 bits"),
        ("gptq", gptq(), {"bits": 8}, ValueError, r"g_idx must have the shape \[64\]"),
        ("gptq", gptq(), {"group_size": 64}, ValueError, "g_idx must give each of the 4 groups .*group_size says"),
        ("gptq", gptq(), {"checkpoint_format": "v3"}, ValueError, "'gptq' or 'gptq_v2', got 'v3'"),
        ("gptq", gptq(scales=torch.ones(3, 8)), None, ValueError, "g_idx must name groups 0 to 2, .* got 0 to 3"),
        ("gptq", gptq(scales=torch.ones(4, 7)), None, ValueError, r"scales must have the shape \[4, 8\].*\[4, 7\]"),
        ("gptq", gptq(g_idx=torch.zeros(128).int()), None, ValueError, "g_idx must give each of the 4 groups"),
        ("gptq", gptq(g_idx=torch.zeros(64).int()), None, ValueError, r"g_idx must have the shape \[128\].*got \[64\]"),
        ("awq", {}, {"version": "gemv"}, NotImplementedError, "version 'gemv' .config. are not served"),
        ("compressed-tensors", PAIR, {"num_bits": 3}, NotImplementedError, "weights of 3 bits"),
        ("compressed-tensors", PAIR, TWO_GROUPS, ValueError, "2 config groups with different weights"),
        ("w4afp8", UNEQUAL, None, ValueError, r"of as many experts each.*of {'weight': 2, 'weight_scale_inv': 3}"),
        (
            "fp8-block",
            BLOCKS,
            None,
            ValueError,
            r"scale_inv must have the shape \[1, 1\].*\[8, 64\]\), got \[2, 1\]",
        ),
    ],
)
def test_checkpoints_that_are_not_what_they_are_called_are_refused(form, tensors, config, error, message) -> None:
    with pytest.raises(error, match=message):
        weights_from_checkpoint(form, tensors, activations="int8", config=config)


def test_packed_weights_are_stored_in_safetensors(tmp_path) -> None:
    scales, zeros = scales_of((2, 40, 4), torch.float16), random((2, 40, 4), 1, 15, 2)
    stack = [
        checkpoints.gptq(random((40, 128), 0, 15, i), scales[i], zeros[i], g_idx=shuffled_groups(128, 32))
        for i in (0, 1)
    ]
    packed = weights_from_checkpoint(
        "gptq", {name: [one[name] for one in stack] for name in stack[0]}, activations="fp8"
    )
    save_file(packed.state_dict("layer."), tmp_path / "packed.safetensors")
    again = PackedWeights.from_state_dict(load_file(tmp_path / "packed.safetensors"), "layer.")
    assert repr(again) == repr(packed)
    assert all(map(torch.equal, again.tensors()[0], packed.tensors()[0]))
