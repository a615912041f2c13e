"""GPUs without wgmma multiply packed weights by a part of a block's 64 rows, where whole blocks leave SMs out."""

from __future__ import annotations

import pytest
import torch
from candidates import can_serve, parse
from devices import on_simulator
from field_calls import explain
from guarded_products import guarded_product
from packed_products import KINDS, Tokens, check, weights

M, N, K = 9, 136, 656  # the last tile is ragged in each extent, and so is the last block of K
NAMES = ["fp8", "fp8-zeros-groups-of-32", "fp8-groups-of-64", "int8-two-levels", "int8-zeros-groups-of-128"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", on_simulator("eager", "lazy", "random", arch="sm80"), indirect=True)
@pytest.mark.parametrize("rows", [16, 32])
@pytest.mark.parametrize("name", NAMES)
def test_rows_of_a_block_are_multiplied_by_themselves(device, name, rows) -> None:
    generator = torch.Generator().manual_seed(rows)
    kind = KINDS[name]
    a = Tokens(kind, (M, K), generator)
    w, exact = weights(kind, (N, K), generator)
    d = guarded_product(kind, a, w, device, tile=(True, rows, 16, (1, 1, 1), 4))
    check(d, a.exact, exact, kind.activations)


@pytest.mark.parametrize(("n", "rows"), [(4096, 32), (24576, 64)])
def test_few_tokens_get_them_where_blocks_of_64_rows_are_few(n, rows) -> None:
    problem = {"m": 16, "n": n, "k": 7168, "num_sms": 132, "bf16": 1, "s4b": 1}
    first = next(filter(can_serve, parse(explain("dense", problem, "sm_80"))))
    assert (first.rows, first.cols) == (rows, 16)
