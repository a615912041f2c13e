"""NVFP4 checkpoints: one second scale, or one an expert, or equal pairs; and scales in tiles."""

from __future__ import annotations

import checkpoints
import pytest
import torch
from checkpoint_inputs import exactly, random, scales_of

from deep_gemm import weights_from_checkpoint
from deep_gemm.weights import codes as code

N, K = 40, 128
CODES, SCALES = random((3, N, K), 0, 15, 0), scales_of((3, N, K // 16), torch.float8_e4m3fn)
TENSORS = {"weight": checkpoints.pairs(CODES), "weight_scale": SCALES}
ONE = {name: tensor[0] for name, tensor in TENSORS.items()}


def read(tensors, **config) -> torch.Tensor:
    return weights_from_checkpoint("nvfp4", tensors, activations="bf16", config=config).dequantize()


def wanted(seconds) -> torch.Tensor:
    parts = zip(CODES, SCALES, seconds, strict=True)
    return torch.stack([exactly(code.E2M1[c.long()], scales.double() * second) for c, scales, second in parts])


EACH = torch.tensor([0.5, 0.25, 2.0])


@pytest.mark.parametrize("name", ["weight_scale_2", "weight_global_scale"])
@pytest.mark.parametrize(
    ("stored", "seconds"),
    [
        (torch.tensor(0.5), [0.5] * 3),
        (torch.tensor([0.5]), [0.5] * 3),
        (EACH, EACH.tolist()),
        (EACH.view(3, 1), EACH.tolist()),
        (EACH.view(3, 1).repeat(1, 2), EACH.tolist()),
        ([*EACH], EACH.tolist()),
    ],
    ids=["one", "[1]", "[E]", "[E, 1]", "[E, 2]", "a sequence"],
)
def test_the_second_scales_of_a_stack(stored, seconds, name) -> None:
    seconds = seconds if name == "weight_scale_2" else [1 / second for second in seconds]
    assert torch.equal(read({**TENSORS, name: stored}), wanted(seconds))


@pytest.mark.parametrize(
    ("tensors", "second", "message"),
    [
        (TENSORS, torch.tensor([[0.5, 0.25]] * 3), r"weight_scale_2 must be one number for each matrix, or an equal"),
        (TENSORS, torch.ones(2), "tensors must be those of as many experts each, .*'weight_scale_2': 2"),
        (ONE, torch.ones(40), "weight_scale_2 must be one number for each matrix"),
        (ONE, torch.tensor(torch.nan), "weight_scale_2 must be finite"),
        (ONE, torch.tensor([0.5, 0.25]), "weight_scale_2 must be one number for each matrix, or an equal pair"),
    ],
)
def test_other_second_scales_are_refused(tensors, second, message) -> None:
    with pytest.raises(ValueError, match=message):
        read({**tensors, "weight_scale_2": second})


def test_a_divisor_of_0_and_two_second_scales_are_refused() -> None:
    with pytest.raises(ValueError, match="weight_global_scale must not be 0"):
        read({**ONE, "weight_global_scale": torch.zeros(1)})
    with pytest.raises(ValueError, match="weight_scale_2 and weight_global_scale must not both be there"):
        read({**ONE, "weight_global_scale": torch.ones(1), "weight_scale_2": torch.ones(1)})


def swizzled(scales: torch.Tensor) -> torch.Tensor:
    """One at a time, as tiles of 128 rows and 4 columns have them: byte 16 (row % 32) + 4 (row / 32) + column."""
    rows, columns = -(-scales.shape[0] // 128) * 128, -(-scales.shape[1] // 4) * 4
    stored = torch.zeros(rows * columns, dtype=torch.uint8)
    for row in range(scales.shape[0]):
        for column in range(scales.shape[1]):
            tile = row // 128 * (columns // 4) + column // 4
            place = 512 * tile + 16 * (row % 32) + 4 * (row % 128 // 32) + column % 4
            stored[place] = scales.view(torch.uint8)[row, column]
    return stored.view(scales.dtype)


@pytest.mark.parametrize(("n", "k"), [(40, 128), (128, 64), (200, 96)], ids=str)
@pytest.mark.parametrize("flat", [False, True])
def test_scales_in_tiles_are_put_in_order_where_the_config_says_so(n, k, flat) -> None:
    codes, scales = random((n, k), 0, 15, 0), scales_of((n, k // 16), torch.float8_e4m3fn)
    tiles = swizzled(scales)
    tiles = tiles if flat else tiles.view(-(-n // 128) * 128, -1)
    tensors = {"weight": checkpoints.pairs(codes), "weight_scale": tiles, "weight_scale_2": torch.ones(())}
    assert torch.equal(read(tensors, is_swizzled_scales=True), exactly(code.E2M1[codes.long()], scales))
    if (n, k) != (128, 64) or flat:
        with pytest.raises(ValueError, match=r"weight_scale must have .*size of tiles .*config's is_swizzled_scales"):
            read(tensors)


def test_scales_that_are_no_tiles_are_refused_where_the_config_says_tiles() -> None:
    tensors = {**ONE, "weight_scale_2": torch.ones(())}
    with pytest.raises(ValueError, match=r"weight_scale must have the shape \[128, 8\].*got \[40, 8\]"):
        read(tensors, is_swizzled_scales=True)
