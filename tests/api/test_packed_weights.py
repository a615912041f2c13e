"""pack_weights and PackedWeights: nothing is lost, and every code lies where the kernels look for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from packed_inputs import FORMATS, GROUPS, high_nibbles, matrix_of, same, two_levels, values_of, wanted, weights

from deep_gemm import pack_weights
from deep_gemm.utils import pack_int4
from deep_gemm.weights import codes as code
from deep_gemm.weights.matrix import Matrix
from deep_gemm.weights.pack import pack_matrices


def e4m3_of_sign_and_magnitude(words, first):
    """As kernels convert for FP8: a word rotated left by 4, and masked."""
    word = words.contiguous().view(torch.int32).long() & 0xFFFFFFFF
    turned = word if first else (word << 4 | word >> 28)
    masked = turned & 0x87878787
    return torch.where(masked >= 1 << 31, masked - (1 << 32), masked).int().view(torch.float8_e4m3fn).float()


def padded(values: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(values, (0, -values.shape[1] % 128, 0, -values.shape[0] % 128))


@pytest.mark.parametrize("shape", [(128, 128), (130, 2880)], ids=str)
def test_codes_for_int8_lie_where_the_kernel_looks_for_them(shape) -> None:
    packed = pack_weights(**weights("int4", "int8", shape, None))
    assert packed.codes.shape == (1, -(-shape[0] // 128) * 2, -(-shape[1] // 128), 4096)
    assert torch.equal(matrix_of(packed.codes[0], high_nibbles), padded(values_of("int4", shape)) * 16)


@pytest.mark.parametrize("shape", [(128, 128), (130, 2880)], ids=str)
def test_codes_for_fp8_are_subnormal_e4m3_once_masked(shape) -> None:
    packed = pack_weights(**weights("int4", "fp8", shape, None, smallest=-7))
    values = values_of("int4", shape, smallest=-7)
    assert not packed.holds_minus_eight
    assert torch.equal(matrix_of(packed.codes[0], e4m3_of_sign_and_magnitude), padded(values) * 2.0**-9)


def test_one_code_of_minus_eight_makes_the_whole_stack_twos_complement() -> None:
    arguments = weights("int4", "fp8", (2, 128, 256), 128, smallest=-7)
    arguments["values"][1, 77, 200] = -8
    packed = pack_weights(**arguments)
    assert packed.holds_minus_eight
    assert torch.equal(matrix_of(packed.codes[0], high_nibbles), arguments["values"][0] * 16)
    assert torch.equal(packed.scales.transpose(1, 2), arguments["scales"] * 512)
    assert torch.equal(packed.dequantize(), wanted(arguments))


@pytest.mark.parametrize(("element", "activations"), FORMATS)
def test_every_code_in_every_place_of_a_block_comes_back(element, activations) -> None:
    smallest = -7 if (element, activations) == ("int4", "fp8") else {"int4": -8, "uint4": 0}[element]
    count = 15 if smallest == -7 else 16
    place = torch.arange(128 * 128).view(128, 128)
    for shift in range(count):
        values = ((place + shift) % count + smallest).to(torch.int8)
        zeros = torch.full((128,), 8, dtype=torch.int32) if element == "uint4" else None
        packed = pack_weights(values, torch.ones(128), zeros, element=element, activations=activations)
        assert not packed.needs_zeros
        assert torch.equal(packed.dequantize(), values.float() - (8 if element == "uint4" else 0))


@pytest.mark.sampled(40)
@pytest.mark.parametrize(("element", "activations"), FORMATS)
@pytest.mark.parametrize("group_size", GROUPS, ids=str)
@pytest.mark.parametrize("shape", [(130, 768), (3, 64, 768)], ids=str)
def test_weights_come_back_exactly(element, activations, group_size, shape) -> None:
    arguments = weights(element, activations, shape, group_size)
    packed = pack_weights(**arguments)
    assert packed.shape == shape
    assert packed.needs_zeros == (element == "uint4")
    assert torch.equal(packed.dequantize(), wanted(arguments))
    assert torch.equal(packed.dequantize(torch.bfloat16), wanted(arguments).bfloat16())


@pytest.mark.parametrize("activations", ["int8", "fp8"])
def test_a_k_that_is_no_multiple_of_128(activations) -> None:
    arguments = weights("uint4", activations, (5, 2880), 32)
    packed = pack_weights(**arguments)
    assert packed.scales.shape == packed.zeros.shape == (1, 92, 128)
    assert packed.scale_group == packed.zero_group == 32
    assert torch.equal(packed.dequantize(), wanted(arguments))


@pytest.mark.parametrize(
    ("activations", "group_size", "groups", "factor"),
    [
        ("int8", None, 1, 1 / 16),
        ("int8", 32, 12, 1 / 16),
        ("int8", 384, 3, 1 / 16),
        ("fp8", None, 3, 512),
        ("fp8", 64, 6, 512),
        ("fp8", 384, 3, 512),
    ],
)
def test_scales_lie_as_kernels_read_them(activations, group_size, groups, factor) -> None:
    arguments = weights("int4", activations, (130, 384), group_size, smallest=-7)
    packed = pack_weights(**arguments)
    assert packed.scales.shape == (1, groups, 256)
    assert packed.scale_factor == factor
    given = arguments["scales"] if group_size else arguments["scales"].unsqueeze(1)
    assert torch.equal(packed.scales[0, :, :130].T, given.repeat_interleave(groups // given.shape[1], 1) * factor)
    assert not packed.scales[0, :, 130:].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.uint8], ids=str)
def test_scales_of_every_type_are_taken_exactly(dtype) -> None:
    values = values_of("int4", (4, 128))
    if dtype == torch.uint8:
        scales, exact = torch.tensor([[0], [1], [127], [240]], dtype=dtype), 2.0 ** torch.tensor([-127, -126, 0, 113])
    else:
        scales = torch.tensor([[0.1], [3.7], [0.02], [200.0]]).to(dtype)
        exact = scales.float().squeeze(1)
    packed = pack_weights(values, scales, element="int4", activations="fp8", group_size=128)
    assert torch.equal(packed.dequantize(), values * exact.float().unsqueeze(1))


def test_a_matrix_larger_than_one_part_is_packed_like_its_parts(monkeypatch) -> None:
    arguments = weights("uint4", "fp8", (500, 256), 64)
    whole = pack_weights(**arguments)
    monkeypatch.setattr(code, "_VALUES_AT_ONCE", 1)
    parts = pack_weights(**arguments)
    assert torch.equal(whole.codes, parts.codes)
    assert torch.equal(parts.dequantize(), wanted(arguments))


def test_no_more_than_a_part_lies_unpacked(monkeypatch) -> None:
    asked = []

    def read(first: int, last: int) -> torch.Tensor:
        asked.append((first, last))
        return torch.ones((last - first, 256), dtype=torch.int8)

    monkeypatch.setattr(code, "_VALUES_AT_ONCE", 256 * 256)
    matrices = [Matrix(600, 256, read, torch.ones(600))] * 2
    pack_matrices(matrices, is_stack=True, element="int4", activations="int8", group_size=None)
    assert asked == [(0, 256), (256, 512), (512, 600)] * 2


@pytest.mark.parametrize("element", ["int4", "uint4"])
def test_packed_values_give_the_same_weights(element) -> None:
    arguments = weights(element, "int8", (2, 100, 256), 64)
    pairs = pack_int4(arguments["values"] if element == "int4" else (arguments["values"] << 4) >> 4)
    packed = pack_weights(**{**arguments, "values": pairs}, packed=True)
    assert torch.equal(packed.codes, pack_weights(**arguments).codes)


def test_values_may_have_any_strides() -> None:
    arguments = weights("int4", "int8", (128, 256), 64)
    strided = {"values": arguments["values"].T.contiguous().T, "scales": arguments["scales"].T.contiguous().T}
    assert same(pack_weights(**{**arguments, **strided}), pack_weights(**arguments))


def test_a_sequence_of_experts_is_a_stack() -> None:
    arguments = weights("uint4", "int8", (3, 64, 128), 32)
    lists = {name: arguments[name].unbind(0) for name in ("values", "scales", "zeros")}
    packed = pack_weights(**{**arguments, **lists})
    assert packed.shape == (3, 64, 128)
    assert torch.equal(packed.dequantize(), wanted(arguments))


def test_repr_tells_what_it_is() -> None:
    assert repr(pack_weights(**weights("int4", "fp8", (3, 100, 256), 64, smallest=-7))) == (
        "PackedWeights(3 x [100, 256] of int4 for fp8 activations, a scale for 64 of K, 0.1 MB, cpu)"
    )
    assert repr(pack_weights(**weights("uint4", "fp8", (100, 256), None))) == (
        "PackedWeights([100, 256] of uint4 for fp8 activations, a scale for all of K, zero points, 0.0 MB, cpu)"
    )
    assert repr(pack_weights(**two_levels("int4", (100, 256), 64))) == (
        "PackedWeights([100, 256] of int4 for int8 activations, a scale for 64 of K within one for all of it, "
        "zero points, 0.0 MB, cpu)"
    )


def test_the_example_of_the_documents_runs(capsys) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "low_precision.md").read_text()
    example = text.split("```python\n")[1].split("```")[0]
    exec(compile(example, "low_precision.md", "exec"), {})
    assert capsys.readouterr().out.strip() == example.rsplit("  # ", 1)[1].strip()


REFUSED = [
    ({"element": "int5"}, ValueError, "element must be one of int4, uint4, e2m1, int8, uint8, e4m3, got 'int5'"),
    ({"activations": "fp16"}, ValueError, "activations must be one of int8, int4, fp8, bf16, got 'fp16'"),
    ({"element": "e2m1"}, NotImplementedError, "e2m1 for int8 activations are not served yet: int4 for int8"),
    (
        {"second_scales": torch.ones(64), "activations": "fp8"},
        NotImplementedError,
        "second_scales are not served for weights of int4 and 'fp8' activations: they are for int4 and uint4",
    ),
    ({"second_scales": torch.ones(())}, TypeError, "scales must be torch.int8 where there are second_scales, got"),
    (
        {"second_scales": torch.ones(63), "scales": torch.ones((64, 4), dtype=torch.int8)},
        ValueError,
        r"second_scales must have the shape \[64, 1\] \(one for each row.*got \[63, 1\]",
    ),
    ({"element": "uint4"}, ValueError, "'uint4' need zeros"),
    ({"values": torch.ones(64, 128)}, TypeError, r"must be torch.int8, got torch.float32"),
    ({"values": torch.ones(64, 128, dtype=torch.uint8)}, TypeError, r"must be torch.int8, got torch.uint8"),
    ({"values": torch.ones(128, dtype=torch.int8)}, ValueError, r"\[N, K\] or \[G, N, K\], got shape \[128\]"),
    ({"values": torch.ones(0, 128, dtype=torch.int8)}, ValueError, r"neither of them 0, got shape \[0, 128\]"),
    ({"values": torch.full((64, 128), 8, dtype=torch.int8)}, ValueError, r"within -8..7, but one is 8"),
    ({"values": torch.full((64, 128), -9, dtype=torch.int8)}, ValueError, r"within -8..7, but one is -9"),
    ({"values": []}, ValueError, "those of at least one matrices"),
    ({"group_size": 16}, ValueError, "a multiple of 32 or None, got 16"),
    ({"group_size": 48}, ValueError, "a multiple of 32 or None, got 48"),
    ({"group_size": 96}, ValueError, r"scales must have the shape \[64, 2\] \(one for 96 of K\), got \[64, 4\]"),
    ({"group_size": True}, TypeError, "group_size must be an integer"),
    ({"group_size": None}, ValueError, r"scales must have the shape \[64, 1\] \(one for each row.*got \[64, 4\]"),
    ({"group_size": 64}, ValueError, r"scales must have the shape \[64, 2\] \(one for 64 of K\), got \[64, 4\]"),
    ({"scales": torch.ones(64, 4).double()}, TypeError, r"scales must be float32, .*got torch.float64"),
    ({"scales": torch.full((64, 4), torch.nan)}, ValueError, "scales must be finite"),
    ({"scales": torch.full((64, 4), torch.inf)}, ValueError, "scales must be finite"),
    ({"scales": torch.full((64, 4), 2.0**-149)}, ValueError, "exactly times 0.0625"),
    ({"scales": torch.full((64, 4), 255, dtype=torch.uint8)}, ValueError, "scales must be finite"),
    ({"scales": [torch.ones(64, 4)] * 2, "values": [torch.ones(64, 128, dtype=torch.int8)]}, ValueError, "of 1 matr"),
    ({"zeros": torch.ones(64, 2, dtype=torch.int32)}, ValueError, r"zeros must have the shape \[64, 4\]"),
    ({"zeros": torch.ones(64, 4)}, TypeError, "zeros must be torch.int32, torch.int8 or torch.uint8"),
    ({"zeros": torch.full((64, 4), 256, dtype=torch.int32)}, ValueError, r"within -128..255"),
    ({"values": torch.ones(64, 128, dtype=torch.int8, device="meta")}, ValueError, "scales must be on meta"),
]


@pytest.mark.parametrize(("changed", "error", "message"), REFUSED)
def test_what_cannot_be_packed_is_refused(changed, error, message) -> None:
    arguments = weights("int4", "int8", (64, 128), 32)
    with pytest.raises(error, match=message):
        pack_weights(**{**arguments, **changed})


def test_experts_of_different_sizes_are_refused() -> None:
    values = [torch.ones(n, 128, dtype=torch.int8) for n in (64, 65)]
    with pytest.raises(ValueError, match=r"one size, got \[64, 128\] and \[65, 128\]"):
        pack_weights(values, [torch.ones(64), torch.ones(65)], element="int4", activations="int8")
