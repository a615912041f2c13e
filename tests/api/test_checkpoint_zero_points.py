"""GPTQ's zero points as their writers store them, and symmetric files that say the other version."""

from __future__ import annotations

import checkpoints
import pytest
import torch
from checkpoint_inputs import exactly, random, scales_of

from deep_gemm import weights_from_checkpoint

CODES, SCALES = random((16, 128), 0, 15, 0), scales_of((16, 4), torch.float16)
ZEROS = random((16, 4), 0, 15, 2)
EIGHTS = torch.full((16, 4), 8)
BYTES, ZERO_BYTES = random((16, 128), 0, 255, 3), random((16, 4), 1, 255, 4)
WITH_ZERO = torch.tensor([0, 8, 8, 8, 8, 8, 8, 8]).repeat(2).view(16, 1).expand(16, 4)
GPTQMODEL = {"meta": {"quantizer": ["optimum:1.24.0", "gptqmodel:2.2.0"]}}


def read(tensors, **config) -> torch.Tensor:
    return weights_from_checkpoint("gptq", tensors, activations="fp8", config={"bits": 4, **config}).dequantize()


def test_a_zero_point_of_0_borrows_from_the_next_in_words_of_gptqmodel() -> None:
    tensors = checkpoints.gptq(CODES, SCALES, WITH_ZERO, "gptqmodel")
    assert {word & 0xFFFFFFFF for word in tensors["qzeros"].flatten().tolist()} == {0x7777776F}
    assert torch.equal(read(tensors, **GPTQMODEL), exactly(CODES, SCALES, WITH_ZERO))


@pytest.mark.parametrize(
    ("writer", "config"),
    [
        ("gptqmodel", GPTQMODEL),
        ("gptqmodel", {"meta": {"quantizer": "gptqmodel:1.0.0"}, "checkpoint_format": "gptq", "format": "gptq"}),
        ("nibbles", {"meta": {"quantizer": ["auto_gptq:0.7.1"]}}),
        ("nibbles", {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq"}),
        ("v2", {"quant_method": "auto-round", "packing_format": "auto_round"}),
        ("v2", {"checkpoint_format": "gptq_v2", **GPTQMODEL}),
    ],
    ids=str,
)
def test_the_config_says_who_wrote_zero_points(writer, config) -> None:
    assert torch.equal(read(checkpoints.gptq(CODES, SCALES, ZEROS, writer), **config), exactly(CODES, SCALES, ZEROS))


@pytest.mark.parametrize("writer", ["gptqmodel", "nibbles"])
def test_where_writers_differ_one_must_be_named(writer) -> None:
    tensors = checkpoints.gptq(CODES, SCALES, WITH_ZERO, writer)
    with pytest.raises(ValueError, match=r"qzeros hold 15 where writers differ.*config's meta.quantizer must say"):
        read(tensors)


@pytest.mark.parametrize("config", [{}, GPTQMODEL, {"meta": {"quantizer": "auto_gptq:0.7"}}], ids=str)
def test_a_0_in_the_highest_place_is_the_same_from_every_writer(config) -> None:
    zeros = torch.tensor([8, 1, 15, 3, 2, 9, 7, 0]).repeat(2).view(16, 1).expand(16, 4)
    for writer in ("gptqmodel", "nibbles"):
        assert torch.equal(
            read(checkpoints.gptq(CODES, SCALES, zeros, writer), **config), exactly(CODES, SCALES, zeros)
        )


@pytest.mark.parametrize(
    ("stored", "said"), [("v2", "gptq"), ("nibbles", "gptq_v2")], ids=["v2 called gptq", "gptq called v2"]
)
def test_symmetric_weights_that_are_called_the_other_version_are_read_with_a_warning(stored, said) -> None:
    tensors = checkpoints.gptq(CODES, SCALES, EIGHTS, stored)
    with pytest.warns(UserWarning, match="qzeros hold [78] throughout.*config's sym"):
        found = read(tensors, sym=True, checkpoint_format=said)
    assert torch.equal(found, exactly(CODES, SCALES, EIGHTS))


def test_symmetric_weights_warn_of_nothing_where_all_agrees(recwarn) -> None:
    for writer, said in (("v2", "gptq_v2"), ("nibbles", "gptq"), ("gptqmodel", "gptq")):
        tensors = checkpoints.gptq(CODES, SCALES, EIGHTS, writer)
        assert torch.equal(read(tensors, sym=True, checkpoint_format=said), exactly(CODES, SCALES, EIGHTS))
    assert not [warning for warning in recwarn if "qzeros" in str(warning.message)]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"sym": True}, "qzeros must hold the zero point 8 throughout, as config's sym says"),
        ({"sym": 1}, "config's sym must be True or False, got 1"),
        ({"packing_format": "auto_round:auto_awq"}, "config's packing_format must be .*got 'auto_round:auto_awq'"),
        ({"packing_format": "auto_round", "checkpoint_format": "gptq"}, "checkpoint_format and packing_format must ag"),
        ({"quant_method": "auto-round"}, "config's packing_format must be there"),
        ({"quant_method": "awq"}, "config's quant_method must be .*got 'awq'"),
        ({"checkpoint_format": "marlin"}, "config's checkpoint_format must be 'gptq' or 'gptq_v2', got 'marlin'"),
        ({"meta": {"quantizer": 5}}, "config's meta.quantizer must be the names of programs, got 5"),
        ({"bits": "four"}, "config's bits must be an integer, got 'four'"),
        ({"group_size": 0}, "config's group_size must be positive, or -1 for all of K, got 0"),
        ({"dynamic": {"+:.*": {"group_size": 64}}}, "config's dynamic .*pass the prefix"),
    ],
    ids=str,
)
def test_keys_that_contradict_the_zero_points_are_refused_by_name(config, message) -> None:
    with pytest.raises(ValueError, match=message):
        read(checkpoints.gptq(CODES, SCALES, ZEROS, "nibbles"), **config)


def test_a_layer_has_keys_of_its_own() -> None:
    tensors = {f"model.q.{name}": x for name, x in checkpoints.gptq(CODES, SCALES, EIGHTS, "v2").items()}
    config = {"group_size": 128, "dynamic": {"+:model\\.q": {"group_size": 32, "checkpoint_format": "gptq_v2"}}}
    w = weights_from_checkpoint("gptq", tensors, activations="fp8", config=config, prefix="model.q.")
    assert torch.equal(w.dequantize(), exactly(CODES, SCALES, EIGHTS))
    with pytest.raises(ValueError, match=r"config's dynamic says that model.q is not quantised"):
        weights_from_checkpoint(
            "gptq", tensors, activations="fp8", config={"dynamic": {"-:model": {}}}, prefix="model.q."
        )


def of_bytes(tensors, **config) -> torch.Tensor:
    w = weights_from_checkpoint("gptq", tensors, activations="bf16", config=config)
    assert w.element == "uint8"
    return w.dequantize()


@pytest.mark.parametrize("config", [{"bits": 8}, {}], ids=["said", "told by the words of zero points"])
@pytest.mark.parametrize("writer", ["gptqmodel", "nibbles", "v2"])
def test_eight_bits_are_read_exactly(writer, config) -> None:
    version = {"checkpoint_format": "gptq_v2" if writer == "v2" else "gptq"}
    tensors = checkpoints.gptq(BYTES, SCALES, ZERO_BYTES, writer, bits=8)
    assert torch.equal(of_bytes(tensors, **config, **version), exactly(BYTES, SCALES, ZERO_BYTES))


def test_zero_points_of_eight_bits_that_are_0_borrow_from_the_next_in_words_of_gptqmodel() -> None:
    zeros = ZERO_BYTES.clone()
    zeros[::4] = 0
    with pytest.raises(ValueError, match="qzeros hold 255 where writers differ"):
        of_bytes(checkpoints.gptq(BYTES, SCALES, zeros, "nibbles", bits=8))
    tensors = checkpoints.gptq(BYTES, SCALES, zeros, "gptqmodel", bits=8)
    assert torch.equal(of_bytes(tensors, **GPTQMODEL), exactly(BYTES, SCALES, zeros))


def test_symmetric_eight_bits_have_no_zero_points_to_subtract() -> None:
    zeros = torch.full((16, 4), 128)
    tensors = checkpoints.gptq(BYTES, SCALES, zeros, bits=8)
    assert torch.equal(of_bytes(tensors, sym=True), exactly(BYTES, SCALES, zeros))
    w = weights_from_checkpoint("gptq", tensors, activations="bf16", config={"sym": True, "bits": 8})
    assert not w.needs_zeros
    with pytest.raises(ValueError, match="qzeros must hold the zero point 128 throughout, as config's sym says"):
        of_bytes(checkpoints.gptq(BYTES, SCALES, ZERO_BYTES, bits=8), sym=True)
