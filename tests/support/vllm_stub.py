"""What deep_gemm.integrations.vllm touches of vLLM 0.33: the shapes of its interfaces, written for tests."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch


class PlatformEnum(Enum):
    CUDA = 0
    ROCM = 1


class MPLinearKernel(ABC):
    def __init__(
        self,
        c: Any,
        w_q_param_name: str,
        w_s_param_name: str,
        w_zp_param_name: str | None = None,
        w_gidx_param_name: str | None = None,
    ) -> None:
        assert self.can_implement(c)[0]
        self.w_gidx_name = w_gidx_param_name
        self.config, self.w_q_name, self.w_s_name, self.w_zp_name = c, w_q_param_name, w_s_param_name, w_zp_param_name

    @classmethod
    @abstractmethod
    def get_min_capability(cls) -> int: ...

    @classmethod
    @abstractmethod
    def can_implement(cls, c: Any) -> tuple[bool, str | None]: ...

    @abstractmethod
    def process_weights_after_loading(self, layer: torch.nn.Module) -> None: ...

    @abstractmethod
    def apply_weights(self, layer: torch.nn.Module, x: Any, bias: Any = None) -> torch.Tensor: ...


class LinearKernel(ABC):
    """What those of a config alone have in common."""

    @classmethod
    @abstractmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]: ...

    @classmethod
    @abstractmethod
    def can_implement(cls, config: Any) -> tuple[bool, str | None]: ...

    @abstractmethod
    def process_weights_after_loading(self, layer: torch.nn.Module) -> None: ...

    @abstractmethod
    def apply_weights(self, layer: torch.nn.Module, x: Any, bias: Any = None) -> torch.Tensor: ...


class MMLinearKernel(LinearKernel):
    """Of FP8 blocks and, with names of parameters, of INT8."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def _get_layer_params(self, layer: torch.nn.Module) -> Any: ...


class Int8ScaledMMLinearKernel(MMLinearKernel):
    def __init__(self, c: Any, layer_param_names: Any) -> None:
        assert self.can_implement(c)[0]
        assert self.is_supported()[0]
        self.config, self.layer_param_names = c, layer_param_names


class MxFp4LinearKernel(LinearKernel):
    def __init__(self, config: Any) -> None:
        assert self.can_implement(config)[0]
        assert self.is_supported()[0]
        self.config = config


@dataclass(frozen=True)
class ScalarType:
    size_bits: int
    bias: int
    signed: bool = False


def parameter(data: torch.Tensor, **dimensions: int) -> torch.nn.Parameter:
    """With the attributes that vLLM's parameters have: output_dim, input_dim, packed_dim."""
    made = torch.nn.Parameter(data, requires_grad=False)
    for name, value in dimensions.items():
        setattr(made, name, value)
    return made


def layer_of(**parameters: Any) -> torch.nn.Module:
    layer = torch.nn.Module()
    for name, value in parameters.items():
        layer.register_parameter(name, value)
    return layer


def scales_in(rows: int, columns: int, static: bool = False) -> SimpleNamespace:
    """A key of quantised numbers."""
    return SimpleNamespace(scale=SimpleNamespace(static=static, group_shape=SimpleNamespace(row=rows, col=columns)))


def installed(monkeypatch: pytest.MonkeyPatch, version: str = "0.33.0") -> dict[tuple[PlatformEnum, str], list[type]]:
    """Puts the stand-ins into sys.modules; what was registered, by platform and kind of layer."""
    registered: dict[tuple[PlatformEnum, str], list[type]] = {}

    def register_linear_kernel(kernel: type, platform: PlatformEnum, kernel_type: str = "mp") -> None:
        registered.setdefault((platform, kernel_type), []).append(kernel)

    vllm, platforms = ModuleType("vllm"), ModuleType("vllm.platforms")
    linear = ModuleType("vllm.model_executor.kernels.linear")
    vllm.__version__ = version  # type: ignore[attr-defined]
    platforms.PlatformEnum = PlatformEnum  # type: ignore[attr-defined]
    platforms.current_platform = SimpleNamespace(get_device_capability=lambda: (8, 6))  # type: ignore[attr-defined]
    for kernel in (MPLinearKernel, MMLinearKernel, Int8ScaledMMLinearKernel, MxFp4LinearKernel):
        setattr(linear, kernel.__name__, kernel)
    linear.register_linear_kernel = register_linear_kernel  # type: ignore[attr-defined]
    linear._LINEAR_BACKEND_KERNEL_MAP = {"deep_gemm": set(), "marlin": set()}  # type: ignore[attr-defined]
    parents = [ModuleType("vllm.model_executor"), ModuleType("vllm.model_executor.kernels")]
    for module in (vllm, platforms, linear, *parents):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return registered
