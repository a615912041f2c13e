"""Packed weights by what kernels convert from, out of the library's own table."""

from __future__ import annotations

from deep_gemm.weights.packings import FOLDED, PACKINGS


def _elements() -> dict[str, str]:
    """From an order of codes to the element that `pack_weights` is told, the signed one where several are stored so."""
    found: dict[str, str] = {}
    for (element, _), packing in PACKINGS.items():
        folded = (FOLDED,) if packing.folds_exponents else ()
        for order in (*packing.orders, *folded):
            found.setdefault(order, element)
    for (element, _), packing in PACKINGS.items():
        if packing.zeros_factor is not None and element.startswith("u"):
            found[packing.zeros_order] = element
    return found


PACKED = _elements()
