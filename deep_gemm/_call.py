"""The way of all products to the runtime: `run`, which takes a call's record by named fields.

Python makes a call's record by naming fields: operands, grouping, steps of the epilogue, what is written, and how
operands lie. The functions here do it for operands whose dtypes say all that they are. They return False, as `run`
does, where nothing was launched because the product is empty, so that D is C or zero: the functions `write_*` then make
it that.
"""

from __future__ import annotations

import itertools
from typing import Any, NoReturn

import torch

from ._extension import C
from ._numbers import integer
from ._output import Output, data_of, write_empty_rows
from .epilogue import StepFields
from .settings import get_mk_alignment_for_contiguous_layout
from .weights.packings import ELEMENT_NUMBERS

Recipe = tuple[int, int, int] | None
OperandRecipe = tuple[int, int] | None
AnyRecipe = tuple[int, int, int] | tuple[int, int, int, int] | None

run = C.product


class Layouts(dict[str, int]):
    """From `compiled_dims` to the number that stands for it and for how the operands lie."""

    def __missing__(self, compiled_dims: str) -> NoReturn:
        raise ValueError(f"compiled_dims must name some of 'm', 'n', 'k', each once, got {compiled_dims!r}")


# Bits of the extents to compile in; csrc/api/check/checks.hpp reads them.
NT = Layouts(
    (dims, sum({"m": 1, "n": 2, "k": 4}[d] for d in dims))
    for count in range(4)
    for dims in map("".join, itertools.permutations("mnk", count))
)
# With a bit for each operand that lies the other way round: one number costs a call less than three.
A_TRANSPOSED, B_TRANSPOSED = 8, 16
FP32_SCALES = 32  # and another bit where disable_ue8m0_cast is set
NN, TN, TT = (
    Layouts((dims, bits | transposed) for dims, bits in NT.items())
    for transposed in (B_TRANSPOSED, A_TRANSPOSED | B_TRANSPOSED, A_TRANSPOSED)
)

# What int8 data are, where a record must say it.
INTEGERS, INT4_PAIRS, FP4_PAIRS = (ELEMENT_NUMBERS[name] for name in ("s8", "s4", "e2m1r"))


def dense(
    a: torch.Tensor,
    a_scales: torch.Tensor | None,
    b: torch.Tensor,
    b_scales: torch.Tensor | None,
    d: Output,
    c: torch.Tensor | None,
    layout: int,
    steps: StepFields,
    recipe: AnyRecipe = None,
) -> bool:
    """False, too, where b is of FP4, which the record does not say here."""
    alpha_bits, row_scale, gate = steps
    return run(
        a=a,
        a_scales=a_scales,
        b=b,
        b_scales=b_scales,
        d=d,
        c=c,
        layout=layout,
        recipe=recipe,
        alpha_bits=alpha_bits,
        row_scale=row_scale,
        gate=gate,
    )


def contiguous(
    a: torch.Tensor,
    a_scales: torch.Tensor | None,
    b: torch.Tensor,
    b_scales: torch.Tensor | None,
    d: Output,
    grouped_layout: torch.Tensor,
    psum: bool,
    zero_padding: bool,
    expected_m: int | None,
    layout: int,
    steps: StepFields,
    recipe: AnyRecipe = None,
) -> bool:
    alpha_bits, row_scale, gate = steps
    return run(
        a=a,
        a_scales=a_scales,
        b=b,
        b_scales=b_scales,
        d=d,
        grouped_layout=grouped_layout,
        psum=psum,
        zero_padding=zero_padding,
        expected_m=hint(expected_m),
        layout=layout,
        recipe=recipe,
        alpha_bits=alpha_bits,
        row_scale=row_scale,
        gate=gate,
    )


def masked(
    a: torch.Tensor,
    a_scales: torch.Tensor | None,
    b: torch.Tensor,
    b_scales: torch.Tensor | None,
    d: Output,
    masked_m: torch.Tensor,
    expected_m: int,
    layout: int,
    steps: StepFields,
    recipe: AnyRecipe = None,
) -> bool:
    alpha_bits, row_scale, gate = steps
    return run(
        a=a,
        a_scales=a_scales,
        b=b,
        b_scales=b_scales,
        d=d,
        masked_m=masked_m,
        expected_m=integer("expected_m", expected_m),
        layout=layout,
        recipe=recipe,
        alpha_bits=alpha_bits,
        row_scale=row_scale,
        gate=gate,
    )


def one_recipe(recipe: Recipe, recipe_a: OperandRecipe, recipe_b: OperandRecipe) -> AnyRecipe:
    """As a record has it: three numbers, or two of each operand."""
    if recipe_a is None and recipe_b is None:
        return recipe
    of_a, of_b = operand_recipes(recipe, recipe_a, recipe_b) or ((), ())
    if len(of_a) != 2 or len(of_b) != 2:
        raise ValueError(f"recipe_a and recipe_b must have 2 numbers each, got {recipe_a} and {recipe_b}")
    return *of_a, *of_b


def operand_recipes(
    recipe: Recipe, recipe_a: OperandRecipe, recipe_b: OperandRecipe
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """The rows and the K that share a scale of a, and of b, where a call says so."""
    if recipe is not None:
        if recipe_a is not None or recipe_b is not None:
            raise ValueError("give either recipe or recipe_a and recipe_b, not both")
        return (recipe[0], recipe[2]), (recipe[1], recipe[2])
    if recipe_a is None and recipe_b is None:
        return None
    if recipe_a is None or recipe_b is None:
        raise ValueError("recipe_a and recipe_b go together: give both or none")
    return (recipe_a[0], recipe_a[1]), (recipe_b[0], recipe_b[1])


def step_fields(steps: StepFields) -> dict[str, Any]:
    return dict(zip(("alpha_bits", "row_scale", "gate"), steps, strict=True))


Rows = tuple[bool, bool, int | None]  # use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout


def contiguous_fields(grouped_layout: torch.Tensor, rows: Rows) -> dict[str, Any]:
    psum, zero_padding, expected_m = rows
    return {
        "grouped_layout": grouped_layout,
        "psum": psum,
        "zero_padding": zero_padding,
        "expected_m": hint(expected_m),
    }


def one_layout(grouped_layout: torch.Tensor | None, m_indices: torch.Tensor | None) -> torch.Tensor:
    """`m_indices` is the older name of `grouped_layout`."""
    if m_indices is not None and grouped_layout is not None:
        raise TypeError("m_indices is the older name of grouped_layout: give one of them, not both")
    layout = grouped_layout if m_indices is None else m_indices
    if layout is None:
        raise TypeError(
            "grouped_layout is missing: int32 [M], the expert of each row, or int32 [experts] with use_psum_layout"
        )
    return layout


def hint(expected_m_for_psum_layout: int | None) -> int | None:
    """None where the caller expects nothing."""
    if expected_m_for_psum_layout is None:
        return None
    return integer("expected_m_for_psum_layout", expected_m_for_psum_layout)


def write_empty_experts(d: Output, layout: torch.Tensor, psum: bool, experts: int) -> None:
    """K = 0: all rows become zero, padding too; in the psum layout none past the last expert's padding."""
    if isinstance(d, torch.Tensor):
        return _write_empty_rows(d, layout if psum else None)
    rows = torch.arange(d[0].shape[0], device=d[0].device)[:, None]
    if not psum or experts == 0:
        padding = (layout < 0) | (layout >= experts) if not psum else torch.ones_like(rows[:, 0], dtype=torch.bool)
        return write_empty_rows(d, torch.ones_like(padding), padding)
    alignment = get_mk_alignment_for_contiguous_layout()
    behind = (layout + alignment - 1) // alignment * alignment
    starts = torch.cat([torch.zeros_like(behind[:1]), behind[:-1]])
    return write_empty_rows(d, rows[:, 0] < behind[-1], ~((rows >= starts) & (rows < layout)).any(1))


def _write_empty_rows(d: torch.Tensor, ends: torch.Tensor | None) -> None:
    """K = 0: all rows become zero, padding too; in the psum layout none past the last expert's padding."""
    if ends is None or ends.numel() == 0:
        d.zero_()
        return
    alignment = get_mk_alignment_for_contiguous_layout()
    rows = torch.arange(d.shape[0], device=d.device)
    d.masked_fill_((rows < (ends[-1] + alignment - 1) // alignment * alignment)[:, None], 0)


def write_empty_masked(d: Output, masked_m: torch.Tensor) -> None:
    """K = 0: the rows that count become zero, the others stay as they are. Reads nothing on the host."""
    data = data_of(d)
    write_empty_rows(d, torch.arange(data.shape[1], device=data.device) < masked_m[:, None])
