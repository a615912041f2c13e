"""Wrong calls of int8_gemm_nt are refused in a sentence, and D stays as it was."""

from __future__ import annotations

import pytest
import torch
from devices import ONE_OF_EACH_ARCH
from inputs import GuardedOutput
from int8_inputs import operands, scales

import deep_gemm


class TestErrors:
    """A wrong call is refused in a sentence, and D stays as it was."""

    def refused(self, device, error, match, dtype=torch.float32, **changes) -> None:
        a, b = operands(16, 24, 64, device)
        out = GuardedOutput((16, 24), dtype, device)
        arguments = {"a": (a, scales(16, device, 1)), "b": (b, scales(24, device, 2)), "d": out.tensor, **changes}
        arguments = {name: value(a, b, out.tensor) if callable(value) else value for name, value in arguments.items()}
        with pytest.raises(error, match=match):
            deep_gemm.int8_gemm_nt(**arguments)
        out.assert_untouched()

    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    def test_wrong_types(self, device) -> None:
        one = torch.ones(1, device=device)
        for error, match, changes in [
            (TypeError, "a must be int8, got float32", {"a": lambda a, *_: (a.float(), one)}),
            (TypeError, "b must be int8, got uint8", {"b": lambda _, b, __: (b.view(torch.uint8), one)}),
            (TypeError, "d must be bfloat16, float32, float16 or int32, got float64", {"d": one.double()}),
            (TypeError, "a's scales must be float32, got float64", {"a": lambda a, *_: (a, one.double())}),
            (TypeError, "b's scales must be float32, got bfloat16", {"b": lambda _, b, __: (b, one.bfloat16())}),
            (TypeError, "bias must have a dtype that d may have, a floating one, got int32", {"bias": one.int()}),
            (TypeError, "bias must have a dtype .* got float64", {"bias": one.double()}),
            (TypeError, "c must have d's dtype float32", {"c": lambda _, __, d: d.bfloat16()}),
            (
                TypeError,
                "a must be a pair .tensor, scales., with zeros as a third entry, or a tensor, got .tensor, None.",
                {"a": lambda a, *_: (a, None)},
            ),
            (ValueError, "a's scale must be a number that FP32 can hold", {"a": lambda a, *_: (a, 1e300)}),
        ]:
            self.refused(device, error, match, **changes)

    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    def test_wrong_scales_shapes_and_strides(self, device) -> None:
        for match, changes in [
            ("a's scales must be one .* or one a row .M = 16 of them.", {"a": lambda a, *_: (a, scales(7, device, 1))}),
            (
                "got shape .16, 2.: and one a row and 128 of K",
                {"a": lambda a, *_: (a, torch.ones(16, 2, device=device))},
            ),
            (
                "got shape .24, 2.: scales of groups of K, .* want a recipe",
                {"b": lambda _, b, __: (b, torch.ones(24, 2, device=device))},
            ),
            ("recipe must be .1, 1, 128. or .1, 128, 128., or None, got .128, 1", {"recipe": (128, 1, 128)}),
            ("recipe must be .1, 1, 128. or .1, 128, 128., or None, got .1, 1, 32", {"recipe": (1, 1, 32)}),
            ("b's scales must be a tensor", {"recipe": (1, 1, 128), "b": lambda _, b, __: (b, 1.0)}),
            (
                "b's scales must be one .* got shape .1, 24.",
                {"b": lambda _, b, __: (b, scales(24, device, 1)[None])},
            ),
            ("a's scales must be one .* got shape .0.", {"a": lambda a, *_: (a, scales(0, device, 1))}),
            ("bias must be .N. = .24., got shape .1.", {"bias": torch.ones(1, device=device)}),
            ("bias must be .N. = .24., got shape .24, 1.", {"bias": torch.ones(24, 1, device=device)}),
            ("b has K=32 but a has K=64", {"b": lambda _, b, __: (b[:, :32], 1.0)}),
            (
                "K must be a multiple of 16, got 40",
                {"a": lambda a, *_: (a[:, :40].contiguous(), 1.0), "b": lambda _, b, __: (b[:, :40].contiguous(), 1.0)},
            ),
            ("a must have K or M contiguous", {"a": lambda a, *_: (a.repeat(1, 2)[:, ::2], 1.0)}),
            ("d must be .M, N. = .16, 24.", {"d": torch.ones(16, 16, device=device)}),
        ]:
            self.refused(device, ValueError, match, **changes)

    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    def test_wrong_scales_of_groups_of_k(self, device) -> None:
        match = "b's scales must be .24, 1. .one float32 per row and 128 of K of b."
        self.refused(device, ValueError, match, recipe=(1, 1, 128))

    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    def test_scales_that_contradict_each_other_or_d_are_refused(self, device) -> None:
        plain_a, plain_b = {"a": lambda a, *_: a}, {"b": lambda _, b, __: b}
        self.refused(device, ValueError, "a must have scales, as b has", **plain_a)
        self.refused(device, ValueError, "b must have scales, as a has", **plain_b)
        self.refused(device, TypeError, "d must be int32 where operands have no scales", **plain_a, **plain_b)
        self.refused(device, TypeError, "d must be a floating dtype where operands have scales", torch.int32)
        self.refused(
            device,
            ValueError,
            "recipe must be None where operands have no scales",
            torch.int32,
            **plain_a,
            **plain_b,
            recipe=(1, 1, 128),
        )
        bias = torch.ones(24, device=device)
        self.refused(
            device, ValueError, "bias must be None where d is int32", torch.int32, **plain_a, **plain_b, bias=bias
        )

    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    def test_a_bias_and_scales_apart_from_d(self, device) -> None:
        self.refused(device, ValueError, "d shares memory with bias", bias=lambda _, __, d: d[0])
        self.refused(device, ValueError, "d shares memory with a's scales", a=lambda a, _, d: (a, d[:, 0]))

    @pytest.mark.gpu
    def test_wrong_devices(self, cuda) -> None:
        self.refused(cuda, ValueError, "bias .* cpu", bias=torch.ones(24))
        self.refused(cuda, ValueError, "b's scales .* cpu", b=lambda _, b, __: (b, torch.ones(24)))

    def test_other_products_take_no_integers(self) -> None:
        a, b = operands(16, 24, 64, torch.device("cpu"))
        with pytest.raises(TypeError, match=r"a must be bfloat16.* got int8"):
            deep_gemm.bf16_gemm_nt(a, b, torch.zeros(16, 24))
        # int8 is what FP4 is to these: two codes a byte.
        with pytest.raises(TypeError, match=r"FP4 is multiplied by FP4 on Blackwell \(SM100, SM120\) only, .* sm_90a"):
            deep_gemm.fp8_gemm_nt((a, torch.ones(16, 1)), (b, torch.ones(1, 1)), torch.zeros(16, 24))
