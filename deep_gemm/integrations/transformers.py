"""transformers multiplies by this library, on every GPU that it has kernels for, and without the `kernels` package.

    from deep_gemm.integrations import transformers as integration

    integration.enable()
    model = AutoModelForCausalLM.from_pretrained(name, experts_implementation="deepgemm")

transformers' own integration of DeepGEMM asks in five places whether it may be used: the `kernels` package, a GPU of
compute capability 9 or 10, nvcc in CUDA_HOME, no FP32 scales on Blackwell, no FP4 weights on Hopper; it lets go of it
where a process has several GPUs; and it expands FP8 checkpoints on GPUs before 8.9. None of that is needed here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

import deep_gemm

from .._compiled import constant_when_compiled
from .._dtypes import E8M0
from .._targets import BLACKWELL_TARGETS
from ..settings import get_target

KNOWN = ("5.17", "5.18", "5.19", "5.20", "5.21", "5.22", "5.23", "5.24")
_FP4 = torch.int8  # two codes a byte
_BLOCK = 128  # rows of weights that share a scale
_KERNELS = "transformers.integrations.deepgemm"
_FP8 = "transformers.integrations.finegrained_fp8"
_QUANTIZER = "transformers.quantizers.quantizer_finegrained_fp8"

_replaced: list[tuple[Any, str, Any]] = []  # owner, name, what was there


def enable() -> None:
    """Let transformers use this library wherever it has DeepGEMM, until `disable()`. Once is enough.

    BF16 and FP8 experts do with `experts_implementation="deepgemm"` (an argument of `from_pretrained`, or
    `model.set_experts_implementation`); FP8 linear layers, with blocks of 128 x 128, by themselves. FP4 weights of
    experts are multiplied by FP8 tokens on every GPU, and FP32 scales on Blackwell as they are, never rounded. FP8
    checkpoints stay FP8 on CPUs too, where the simulator multiplies: for tests.

    For inference: a product whose inputs ask for a gradient is refused, so call the model in `torch.no_grad()`.

    Raises:
        ImportError: transformers is not installed.
        RuntimeError: its version is none of KNOWN, or its integration is not as it was there.
    """
    if _replaced:
        return
    version = str(importlib.import_module("transformers").__version__)
    if ".".join(version.split(".")[:2]) not in KNOWN:
        raise RuntimeError(f"transformers must be {KNOWN[0]} to {KNOWN[-1]} to be enabled, got {version}")
    kernels, fp8, quantizer = (importlib.import_module(name) for name in (_KERNELS, _FP8, _QUANTIZER))
    wanted: list[tuple[Any, str, Any]] = [
        (kernels, "_DEEPGEMM", _functions(kernels)),
        (kernels, "is_deepgemm_loadable", _is_loadable),
        (kernels, "is_sm100", _multiplies_exponents),
        (kernels, "_assert_sm100_requirements", _no_requirements),
        (kernels, "_coerce_sf_for_kernel", _scales),
        (kernels, "_select_fp8_cast_kwargs", _casts(getattr(kernels, "_select_fp8_cast_kwargs", None))),
        (fp8, "is_deepgemm_loadable", _is_loadable),
        (fp8, "is_sm100", _never),  # it asks so that it never rounds FP32 scales, which are not rounded here
        (fp8, "_disable_deepgemm_on_multi_device", _no_requirements),
        (getattr(quantizer, "FineGrainedFP8HfQuantizer", None), "validate_environment", _no_requirements),
    ]
    for owner, name, _ in wanted:
        if not hasattr(owner, name):
            raise RuntimeError(f"transformers {version} must have {name} to be enabled, but it has not")
    for owner, name, value in wanted:
        _replaced.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, value)


def disable() -> None:
    """Give transformers back what `enable()` replaced. Models that were loaded meanwhile are as they were loaded."""
    while _replaced:
        owner, name, value = _replaced.pop()
        setattr(owner, name, value)


def is_enabled() -> bool:
    """Whether `enable()` holds."""
    return bool(_replaced)


def _functions(kernels: Any) -> Any:
    """What transformers would have found in a kernel from its hub."""
    fields = {
        "fp8_fp4_matmul": _linear,
        "grouped_fp8_fp4_matmul_nt": _experts(deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous),
        "grouped_fp8_fp4_matmul_nn": _experts(deep_gemm.m_grouped_fp8_fp4_gemm_nn_contiguous),
        "grouped_bf16_matmul_nt": deep_gemm.m_grouped_bf16_gemm_nt_contiguous,
        "grouped_bf16_matmul_nn": deep_gemm.m_grouped_bf16_gemm_nn_contiguous,
        "per_token_cast_to_fp8": deep_gemm.per_token_cast_to_fp8,
        "transform_sf_into_required_layout": deep_gemm.transform_sf_into_required_layout,
        "transform_weights_for_mega_moe": deep_gemm.transform_weights_for_mega_moe,
        "get_symm_buffer_for_mega_moe": deep_gemm.get_symm_buffer_for_mega_moe,
        "fp8_fp4_mega_moe": deep_gemm.fp8_fp4_mega_moe,
        "m_alignment": deep_gemm.get_mk_alignment_for_contiguous_layout(),
    }
    try:
        return kernels.DeepGEMM(**fields)
    except (AttributeError, TypeError) as error:
        raise RuntimeError(f"transformers' record of DeepGEMM's functions is not the known one: {error}") from error


def _how(a: Any, b: Any, recipe: Any) -> dict[str, Any]:
    """Of scales, by what there is: FP32 ones of any value are multiplied as they are on Blackwell too."""
    (_, of_a), (weights, of_b) = a, b
    if of_a.dtype != torch.float32:
        return {"recipe": recipe}
    if weights.dtype == _FP4:
        return {"recipe_a": (1, 128), "recipe_b": (1, 32)}
    per_row = of_b.shape[-2] == weights.shape[-2] > 1
    return {"recipe": (1, 1, 128) if per_row else None, "disable_ue8m0_cast": True}


def _linear(a: Any, b: Any, d: torch.Tensor, recipe: Any = None) -> None:
    deep_gemm.fp8_fp4_gemm_nt(a, b, d, **_how(a, b, recipe))


def _experts(product: Callable[..., Any]) -> Callable[..., None]:
    def experts(
        a: Any, b: Any, d: torch.Tensor, layout: torch.Tensor, recipe: Any = None, use_psum_layout: bool = False
    ) -> None:
        product(a, b, d, layout, use_psum_layout=use_psum_layout, **_how(a, b, recipe))

    return experts


def _is_loadable(raise_error: bool = False) -> bool:
    return True


def _never() -> bool:
    return False


def _no_requirements(*arguments: Any, **keywords: Any) -> None:
    return None


@constant_when_compiled
def _multiplies_exponents() -> bool:
    """Of the current device, as transformers' function of this place."""
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    return get_target(device) in BLACKWELL_TARGETS


def _scales(sf: torch.Tensor, is_sm100: bool, expected_mn: int | None = None) -> torch.Tensor:
    """As products take them: FP32 and packed words as they are, never rounded; exponents as FP32, or (Blackwell) words.

    sf: of rows, or of blocks of 128 rows, of which `expected_mn` says how many there are.
    """
    if sf.dtype not in E8M0:
        return sf
    if not is_sm100:
        return sf.float()
    exponents = sf.view(torch.uint8)
    if expected_mn is not None and exponents.shape[-2] < expected_mn:
        exponents = exponents.repeat_interleave(_BLOCK, -2)[..., :expected_mn, :]
    return torch.nn.functional.pad(exponents, (0, -exponents.shape[-1] % 4)).contiguous().view(torch.int32)


def _casts(theirs: Any) -> Callable[..., dict[str, Any]]:
    def casts(weight: torch.Tensor, scales: torch.Tensor, block_size: Any, is_sm100: bool) -> dict[str, Any]:
        if weight.dtype == _FP4 and not is_sm100:  # tokens have a scale for 128 of K there
            return {"use_ue8m0": False, "gran_k": 128}
        found: dict[str, Any] = theirs(weight, scales, block_size, is_sm100)
        return found

    return casts
