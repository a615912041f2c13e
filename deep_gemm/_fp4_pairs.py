"""What the calls under `fp8_fp4` names say of their operands, dense or of experts."""

from __future__ import annotations

from typing import Any

import torch

from ._call import FP32_SCALES, OperandRecipe, Recipe, operand_recipes
from ._packed import AcceptedWeights, OperandOptions, UnpackedFp4
from .epilogue import Epilogue, step_arguments
from .fp8 import Scaled

ACCEPTED = AcceptedWeights("fp8", ("e2m1",))
_MXFP4_GROUP, _ACTIVATION_GROUP = 32, 128
Recipes = tuple[Recipe, OperandRecipe, OperandRecipe]  # recipe, recipe_a, recipe_b


def is_fp4(operand: Any) -> bool:
    """Of a pair, or of what is none, which products refuse."""
    return isinstance(operand, (tuple, list)) and len(operand) == 2 and getattr(operand[0], "dtype", None) == torch.int8


def require_no_bias(bias: torch.Tensor | None) -> None:
    if bias is not None:
        raise ValueError("bias goes with FP4 weights only")


def require_fp4_only(bias: torch.Tensor | None) -> None:
    if bias is not None:
        raise ValueError("FP4 by FP4 takes no bias")


def options_of_packed(
    recipes: Recipes, disable_ue8m0_cast: bool, alpha: float | None, epilogue: Epilogue | None
) -> OperandOptions:
    """What a call with PackedWeights says of its operands."""
    recipe, recipe_a, recipe_b = recipes
    for name, given in (("recipe", recipe), ("recipe_b", recipe_b)):
        if given is not None:
            raise ValueError(f"{name} must be None with PackedWeights, which know their groups, got {given}")
    if recipe_a is not None and recipe_a[0] != 1:
        raise ValueError(f"with PackedWeights scales of a must be for one row, but recipe_a says {recipe_a}")
    layout = FP32_SCALES if disable_ue8m0_cast else 0
    return OperandOptions(0 if recipe_a is None else recipe_a[1], layout, step_arguments(alpha, epilogue))


def unpacked_pair(
    b: Scaled,
    recipes: Recipes,
    disable_ue8m0_cast: bool,
    alpha: float | None,
    epilogue: Epilogue | None,
    transposed: int = 0,
) -> tuple[UnpackedFp4, OperandOptions]:
    """A pair of FP4 weights, and what a call says of its operands."""
    of_a, of_b = _groups(recipes)
    layout = transposed | (FP32_SCALES if disable_ue8m0_cast else 0)
    return UnpackedFp4(*b, of_b), OperandOptions(of_a, layout, step_arguments(alpha, epilogue))


def _groups(recipes: Recipes) -> tuple[int, int]:
    """The K that a scale of a, and of b, is for."""
    given = operand_recipes(*recipes)
    if given is None:
        return _ACTIVATION_GROUP, _MXFP4_GROUP
    of_a, of_b = given
    if of_a[0] != 1 or of_b[0] != 1:
        raise ValueError(
            f"with FP4 weights scales of a and those of b must be for one row (recipe_a=(1, {_ACTIVATION_GROUP}), "
            f"recipe_b=(1, {_MXFP4_GROUP})), but the recipe says {of_a} and {of_b}"
        )
    return of_a[1], of_b[1]
