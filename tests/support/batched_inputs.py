"""Products of batches of matrices in the layouts that einsum expressions name, and their comparison with FP64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from bf16_inputs import values
from inputs import GuardedOutput, Operand, random_blocks, random_rows, random_values
from reference import BF16_TOLERANCES, TOLERANCES, Product, assert_matches, product_nt

import deep_gemm

# Of a, b and d: which dimension of [batch, rows, columns] each dimension of the tensor is.
FORMS = {
    "bhr,hdr->bhd": ((1, 0, 2), (0, 1, 2), (1, 0, 2)),
    "bhd,hdr->bhr": ((1, 0, 2), (0, 2, 1), (1, 0, 2)),
    "bhd,bhr->hdr": ((2, 0, 1), (2, 0, 1), (0, 1, 2)),
}


def laid_out(matrices: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """The same values in a tensor whose dimensions are in this order."""
    return matrices.permute(order).contiguous()


def matrices_of(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """`tensor` as [batch, rows, columns]."""
    return tensor.permute([order.index(dimension) for dimension in range(3)])


@dataclass
class Batch:
    """`a` [batch, M, K] and `b` [batch, N, K], plain or quantised, and how a call takes them."""

    expr: str
    a: torch.Tensor | Operand
    b: torch.Tensor | Operand
    device: torch.device

    @property
    def _data(self) -> tuple[torch.Tensor, torch.Tensor]:
        return tuple(x.data if isinstance(x, Operand) else x for x in (self.a, self.b))

    def given(self) -> tuple:
        """The operands as the expression has them."""
        operands = []
        for operand, order in zip((self.a, self.b), FORMS[self.expr], strict=False):
            if isinstance(operand, Operand):
                operands.append(tuple(laid_out(part, order) for part in operand))
            else:
                operands.append(laid_out(operand, order))
        return tuple(operands)

    def output(self, dtype: torch.dtype = torch.bfloat16, row_padding: int = 0) -> GuardedOutput:
        a, b = self._data
        extents = (a.shape[0], a.shape[1], b.shape[1])
        shape = [extents[dimension] for dimension in FORMS[self.expr][2]]
        return GuardedOutput(shape, dtype, self.device, shape[-1] + row_padding)

    def run(self, d: torch.Tensor, **more) -> None:
        function = deep_gemm.fp8_einsum if isinstance(self.a, Operand) else deep_gemm.einsum
        function(self.expr, *self.given(), d, **more)

    def check(self, d: torch.Tensor, c: torch.Tensor | None = None) -> None:
        order, scaled = FORMS[self.expr][2], isinstance(self.a, Operand)
        products = matrices_of(d, order)
        added = None if c is None else matrices_of(c, order)
        for g in range(self._data[0].shape[0]):
            a, b = ((x[0][g], x[1][g]) if scaled else x[g] for x in (self.a, self.b))
            wanted = product_nt(a, b, None if added is None else added[g])
            assert_matches(products[g], wanted, f"{self.expr} {g}", TOLERANCES if scaled else BF16_TOLERANCES)


def bf16_batch(expr: str, batch: int, m: int, n: int, k: int, device: torch.device) -> Batch:
    return Batch(expr, values((batch, m, k), device, 0), values((batch, n, k), device, 1), device)


def fp8_batch(expr: str, batch: int, m: int, n: int, k: int, device: torch.device, per_row_b: bool = False) -> Batch:
    quantise = random_rows if per_row_b else random_blocks
    return Batch(expr, random_rows((batch, m, k), device, 0), quantise((batch, n, k), device, 1), device)


def sum_of_products(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None = None) -> Product:
    """The reference of 'bmk,bnk->mn': one product, along the K of all matrices."""
    rows = (x.permute(1, 0, 2).reshape(x.shape[1], -1) for x in (a, b))
    return product_nt(*rows, c)


def added_to(out: GuardedOutput, seed: int = 2) -> torch.Tensor:
    """Fill an output with values, and return a copy of them."""
    out.tensor.copy_(random_values(out.tensor.shape, out.tensor.device, seed))
    return out.tensor.clone()
