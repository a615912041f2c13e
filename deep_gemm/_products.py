"""Products by what their functions' names begin with, and their groupings: the one list of them, from which commands,
recorded calls, cases to time and tests take what there is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Product:
    """What is multiplied."""

    activations: str
    weights: str | None = None  # the element of packed ones, as `pack_weights` has it
    group_size: int | None = None  # by default, the K that shares a scale of packed weights, or of FP4; None: all of it


PRODUCTS = {
    "fp8": Product("fp8"),
    "bf16": Product("bf16"),
    "fp16": Product("fp16"),
    "int8": Product("int8"),
    "fp4": Product("fp4", group_size=32),
    "fp8_int4": Product("fp8", "int4", 128),
    "int8_int4": Product("int8", "int4"),
    "int4": Product("int4", "int4"),
    "fp8_fp4": Product("fp8", "e2m1", 32),
    "bf16_int4": Product("bf16", "int4", 128),
    "bf16_fp4": Product("bf16", "e2m1", 32),
    "bf16_fp8": Product("bf16", "e4m3", 128),
    "bf16_int8": Product("bf16", "int8", 128),
}
DEFAULT_PRODUCT = "fp8"
PACKED = tuple(name for name, product in PRODUCTS.items() if product.weights is not None)
GROUPINGS = ("dense", "contiguous", "psum", "masked")


def function_name(product: str, grouping: str, layout: str = "nt") -> str:
    """`grouping` by its name here or in the runtime ("m_psum"). Functions of BF16 take FP16 too."""
    family = "bf16" if product == "fp16" else product
    if grouping == "dense":
        return f"{family}_gemm_{layout}"
    rows = "masked" if grouping == "masked" else "contiguous"
    return f"m_grouped_{family}_gemm_{layout}_{rows}"
