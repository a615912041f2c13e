"""vLLM's linear layers by this library: kernels that its selection finds behind its own.

vLLM loads `register` by the entry point `vllm.general_plugins`. What is registered comes last, so that automatic
selection takes it where nothing else can run (GPUs of compute capability 8.0 to 8.9 first of all), and
`--linear-backend deep_gemm` takes it everywhere. `VLLM_PLUGINS` without `deep_gemm` in it leaves it out, and
`VLLM_DISABLED_KERNELS` a kernel by its name.

Written against vLLM 0.33's interfaces, and tested with stand-ins of them. Not run inside vLLM yet.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from .. import quantize
from .._dtypes import E8M0
from ..fp8 import fp8_gemm_nt
from ..int8 import int8_gemm_nt, int8_row_sums
from ..nn import QuantLinear
from ..utils import unpack_int4
from ..weights import pack_weights

KNOWN = ("0.33",)
BACKEND = "deep_gemm"  # of --linear-backend
_LINEAR = "vllm.model_executor.kernels.linear"
_LEAST = 80  # compute capability
_OWN = "deep_gemm_weights"  # a layer's weights as products take them
_BLOCKS, _TOKENS = (128, 128), (1, 128)  # rows and K that share a scale
# By bits, what is taken off a stored value, and zero points.
_ELEMENTS = {(4, 8, False): "int4", (4, 0, True): "uint4", (8, 128, False): "int8", (8, 0, True): "uint8"}
_SCALES = (torch.float32, torch.bfloat16, torch.float16, *E8M0)  # of FP8 blocks
_SIGN = {4: 0x88, 8: 0x80}  # of each value in a byte: what makes a stored one with an offset a signed one

_logger = logging.getLogger("vllm.plugins.deep_gemm")
Answer = tuple[bool, str | None]


def register() -> None:
    """Add the kernels to vLLM's lists. What vLLM calls; twice does nothing more.

    It never raises, since that would end vLLM: where it cannot register, it logs why.
    """
    try:
        problem = _register()
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    if problem is not None:
        _logger.warning("deep_gemm registers no linear kernels: %s", problem)


def _register() -> str | None:
    version = str(importlib.import_module("vllm").__version__)
    if ".".join(version.split(".")[:2]) not in KNOWN:
        return f"vLLM must be {' or '.join(KNOWN)}, got {version}"
    linear = importlib.import_module(_LINEAR)
    cuda = importlib.import_module("vllm.platforms").PlatformEnum.CUDA
    chosen: set[type] = linear._LINEAR_BACKEND_KERNEL_MAP[BACKEND]
    for kernel_type, name, own, theirs in _KERNELS:
        if any(kernel.__name__ == name for kernel in chosen):
            continue
        kernel = type(name, (own, getattr(linear, theirs)), {"__doc__": own.__doc__, "__module__": __name__})
        linear.register_linear_kernel(kernel, cuda, kernel_type)
        chosen.add(kernel)
    return None


class _Kernel:
    """What vLLM asks of all."""

    config: Any

    @classmethod
    def get_min_capability(cls) -> int:
        return _LEAST

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> Answer:
        capability = _capability() if compute_capability is None else compute_capability
        if capability is None:
            return False, "needs a CUDA GPU"
        enough = capability >= _LEAST
        return enough, None if enough else f"needs compute capability {_LEAST} or higher, got {capability}"


class _Stored(_Kernel):
    """Of weights that QuantLinear multiplies."""

    def apply_weights(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None, **_: Any
    ) -> torch.Tensor:
        """x `[.., K]` of BF16 or FP16 -> `[.., N]`."""
        y: torch.Tensor = getattr(layer, _OWN).multiply(x, bias)
        out = getattr(self.config, "out_dtype", None) or getattr(self.config, "out_type", None)
        return y if out is None else y.to(out)


class Mixed(_Stored):
    """Weights of 4 and 8 bits beside BF16 or FP16: GPTQ, AWQ, compressed-tensors."""

    w_q_name: str
    w_s_name: str
    w_zp_name: str | None
    w_gidx_name: str | None

    @classmethod
    def can_implement(cls, c: Any) -> Answer:
        kind = c.weight_type
        if kind.signed or (kind.size_bits, kind.bias, c.zero_points) not in _ELEMENTS:
            return False, f"weights must be uint4b8 or uint8b128, or uint4 or uint8 with zero points, got {kind}"
        if c.act_type not in (torch.bfloat16, torch.float16):
            return False, f"activations must be bfloat16 or float16, got {c.act_type}"
        if c.group_size != -1 and (c.group_size < 32 or c.group_size % 32):
            return False, f"group_size must be -1 or a multiple of 32, got {c.group_size}"
        if getattr(c, "has_g_idx", False) and c.partition_weight_shape[0] != c.full_weight_shape[0]:
            return False, "K in act order must not be cut, got has_g_idx=True and a part of the input features"
        if c.partition_weight_shape[0] % 2:
            return False, f"input features must be even, got {c.partition_weight_shape[0]}"
        return True, None

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Packs them once. The layer's own tensors are emptied."""
        c = self.config
        kind, (k, n) = c.weight_type, c.partition_weight_shape
        bits, zeros = kind.size_bits, None
        whole = c.group_size in (-1, k)
        scales = _rows_first(getattr(layer, self.w_s_name))
        if c.zero_points:
            words = _as_bytes(getattr(layer, self.w_zp_name or ""), along_output=True)  # [groups, N]
            zeros = (_nibbles(words) if bits == 4 else words)[:, :n].t().contiguous()
        stored = _as_bytes(getattr(layer, self.w_q_name), along_output=False)[:, : k * bits // 8]
        values = stored if c.zero_points else (stored ^ _SIGN[bits]).view(torch.int8)
        order = None if whole or not getattr(c, "has_g_idx", False) else _order_of(self._index(layer), c.group_size)
        if order is not None:  # columns one by one
            values = (
                unpack_int4(values) if bits == 4 and not c.zero_points else _nibbles(values) if bits == 4 else values
            )
            values = values[:, order.to(values.device)].contiguous()
        packed = pack_weights(
            values,
            scales[:, 0] if whole else scales,
            zeros if zeros is None or not whole else zeros[:, 0],
            element=_ELEMENTS[bits, kind.bias, c.zero_points],
            activations="bf16",
            group_size=None if whole else c.group_size,
            packed=bits == 4 and order is None,
        )
        setattr(layer, _OWN, QuantLinear(packed if order is None else replace(packed, input_permutation=order)))
        _empty(layer, (self.w_q_name, self.w_s_name, self.w_zp_name))

    def _index(self, layer: torch.nn.Module) -> torch.Tensor:
        index: torch.Tensor = layer.get_parameter(self.w_gidx_name or "").data
        return index


class MxFp4(_Stored):
    """MXFP4 weights beside BF16 or FP16: activations are not rounded, also where a checkpoint says MXFP4."""

    @classmethod
    def can_implement(cls, config: Any) -> Answer:
        return True, None  # vLLM asks `_supports_quant_scheme` before

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Packs `weight` uint8 `[N, K / 2]` and `weight_scale`, exponents uint8 `[N, K / 32]`, and empties them."""
        weight, scales = (getattr(layer, name).data for name in ("weight", "weight_scale"))
        packed = pack_weights(
            weight.view(torch.uint8),
            scales.view(torch.uint8),
            element="e2m1",
            activations="bf16",
            group_size=32,
            packed=True,
        )
        setattr(layer, _OWN, QuantLinear(packed))
        _empty(layer, ("weight", "weight_scale"))


class Fp8Blocks(_Kernel):
    """FP8 weights with scales of 128 x 128 blocks, beside FP8 tokens, a scale for 128 of K. No scale is rounded."""

    @classmethod
    def can_implement(cls, config: Any) -> Answer:
        tokens, weights = config.activation_quant_key.scale, config.weight_quant_key.scale
        shape = weights.group_shape.row, weights.group_shape.col
        if shape != _BLOCKS:
            return False, f"weights must have a scale for each {_BLOCKS}, got {shape}"
        given = tokens.group_shape.row, tokens.group_shape.col
        if tokens.static or given != _TOKENS:
            return False, f"activations must be quantised in each call, {_TOKENS} a scale, got {tokens}"
        k = config.weight_shape[1]
        return (True, None) if k % 16 == 0 else (False, f"input features must be a multiple of 16, got {k}")

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """`weight` stays; its scales become float32."""
        name = self._scales_of(layer)
        scales = getattr(layer, name).data
        if scales.dtype not in _SCALES:
            raise TypeError(f"{name} must be {' or '.join(map(str, _SCALES))}, got {scales.dtype}")
        _set(layer, name, scales.float())

    def _scales_of(self, layer: torch.nn.Module) -> str:
        return "weight_scale" if getattr(layer, "weight_scale_inv", None) is None else "weight_scale_inv"

    def _get_layer_params(self, layer: torch.nn.Module, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return layer.get_parameter("weight").data, layer.get_parameter(self._scales_of(layer)).data

    def apply_weights(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None, **_: Any
    ) -> torch.Tensor:
        """x `[.., K]` of BF16 or FP16 -> `[.., N]`."""
        weight, scales = self._get_layer_params(layer)
        rows = x.reshape(-1, x.shape[-1])
        y = x.new_empty((rows.shape[0], weight.shape[0]))
        fp8_gemm_nt(quantize.fp8(rows), (weight, scales), y, disable_ue8m0_cast=True)
        y = y if bias is None else y + bias
        return y.to(self.config.out_dtype).view(*x.shape[:-1], weight.shape[0])


class Int8(_Kernel):
    """INT8 weights with a scale for each row, beside INT8 tokens: dynamic, with zero points or not, or static."""

    layer_param_names: Sequence[str]

    @classmethod
    def can_implement(cls, c: Any) -> Answer:
        if c.is_static_input_scheme and not c.input_symmetric:
            return False, "static activations must be symmetric"
        return True, None

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """`weight` int8 `[N, K]` stays; scales become float32 `[N]`, and sums of rows are made for zero points."""
        weight_name, scale_name, input_name, zero_name, sums_name = self.layer_param_names
        weight, scales = getattr(layer, weight_name).data, getattr(layer, scale_name).data.float().flatten()
        if scales.numel() != weight.shape[0]:
            widths = getattr(layer, "logical_widths", None) or [weight.shape[0]]
            scales = scales.expand(len(widths)).repeat_interleave(torch.tensor(widths, device=scales.device))
        getattr(layer, scale_name).data = scales.contiguous()
        static = getattr(layer, input_name, None) if self.config.is_static_input_scheme else None
        _set(layer, input_name, None if static is None else static.data.float().max().reshape(1))
        setattr(layer, zero_name, None)
        _set(layer, sums_name, None if self.config.input_symmetric else int8_row_sums(weight))

    def _get_layer_params(self, layer: torch.nn.Module) -> tuple[Any, ...]:
        return tuple(getattr(layer, name, None) for name in self.layer_param_names)

    def apply_weights(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """x `[.., K]` of BF16, FP16 or FP32 -> `[.., N]`."""
        weight, scales, static, _, sums = self._get_layer_params(layer)
        rows = x.reshape(-1, x.shape[-1])
        y = x.new_empty((rows.shape[0], weight.shape[0]))
        if static is None:
            tokens: Any = quantize.int8(rows, symmetric=self.config.input_symmetric)
        else:
            tokens = ((rows.float() / static).round().clamp(-128, 127).to(torch.int8), static)
        int8_gemm_nt(tokens, (weight, scales), y, bias=bias, b_sums=sums)
        return y.view(*x.shape[:-1], weight.shape[0])


# vLLM's kind of layer, the kernel's name there, and what it is made of.
_KERNELS: tuple[tuple[str, str, type[_Kernel], str], ...] = (
    ("mp", "DeepGemmMixedLinearKernel", Mixed, "MPLinearKernel"),
    ("int8", "DeepGemmInt8LinearKernel", Int8, "Int8ScaledMMLinearKernel"),
    ("fp8_block", "DeepGemmFp8BlocksLinearKernel", Fp8Blocks, "MMLinearKernel"),
    ("mxfp4", "DeepGemmMxFp4LinearKernel", MxFp4, "MxFp4LinearKernel"),
)


def _capability() -> int | None:
    """As vLLM asks for it: of the driver, without a context, which forks need."""
    found = importlib.import_module("vllm.platforms").current_platform.get_device_capability()
    return None if found is None else 10 * int(found[0]) + int(found[1])


def _as_bytes(parameter: Any, along_output: bool) -> torch.Tensor:
    """Words of values as bytes, `[other dimension, ..]`, in the order of the dimension that they are packed along."""
    dimension = parameter.output_dim if along_output else 1 - parameter.output_dim
    if parameter.packed_dim != dimension:
        raise ValueError(f"values must be packed along dimension {dimension}, got {parameter.packed_dim}")
    return _moved_last(parameter.data, dimension).contiguous().view(torch.uint8)


def _moved_last(data: torch.Tensor, dimension: int) -> torch.Tensor:
    return data.t() if dimension == 0 else data


def _rows_first(parameter: Any) -> torch.Tensor:
    data: torch.Tensor = parameter.data
    return (data.t() if parameter.output_dim == 1 else data).contiguous()


def _order_of(index: torch.Tensor, group_size: int) -> torch.Tensor | None:
    """K in the order of its groups, of the group of each K; None where it is in order already."""
    groups = torch.arange(index.numel(), device=index.device) // group_size
    order = torch.argsort(index, stable=True)
    if not torch.equal(index[order].long(), groups):
        raise ValueError(f"g_idx must give each group {group_size} of K={index.numel()}, but gives some more or fewer")
    return None if torch.equal(index.long(), groups) else order


def _nibbles(data: torch.Tensor) -> torch.Tensor:
    return torch.stack((data & 15, data >> 4), -1).flatten(-2)


def _empty(layer: torch.nn.Module, names: Sequence[str | None]) -> None:
    for name in names:
        if name is not None and getattr(layer, name, None) is not None:
            parameter = getattr(layer, name)
            parameter.data = parameter.data.new_empty(0)


def _set(layer: torch.nn.Module, name: str, value: torch.Tensor | None) -> None:
    setattr(layer, name, None if value is None else torch.nn.Parameter(value, requires_grad=False))
