"""Of batches, sums over a batch and K groups, neither D's dtype nor C decides into how many parts K is cut and who
multiplies scales: D of 16 bits is the FP32 one, rounded."""

from __future__ import annotations

import random
from itertools import chain

import pytest
from candidates import parse
from field_calls import explain, kernel_of

from deep_gemm._targets import GPUS

FORMS = [
    {"bf16_output": 1},
    {"fp16_output": 1},
    {"bf16_output": 1, "add_c": 1},
    {"fp32_output": 1},
    {"fp32_output": 1, "add_c": 1},
    {"fp32_output": 1, "add_c": 1, "in_place": 1},
]
# Of DeepSeek's heads, and others whose D the copy engine cannot store in 16 bits.
BATCHES = [(128, 128, 512), (128, 512, 128), (8, 1024, 4096), (8, 4096, 1024), (3, 100, 7168), (2, 36, 1536)]
KINDS = [{"bf16": 1}, {"bf16": 1, "mn_major_b": 1}, {}, {"per_row_b": 1}]
K_GROUPS = [{"bf16": 1, "mn_major_a": 1, "mn_major_b": 1, "group_maps": 1}, {"per_row_b": 1}]


def order(grouping: str, fields: dict[str, int], target: str) -> tuple:
    best = parse(explain(grouping, fields, target))[0]
    assert best.rejection is None
    text = kernel_of(grouping, fields, target)["text"]
    assert f".tile = {{.rows = {best.rows}, .cols = {best.cols}," in text, "the first of all candidates"
    products = "wgmma_products = true" in text
    return best.cluster_shape[2], best.k_warpgroups, products, products and best.swapped


def problems(r: random.Random):
    batches = r.sample([(batch, kind) for batch in BATCHES for kind in KINDS], 12)
    for ((h, n, k), kind), m in zip(batches, r.choices([4, 16, 33, 64, 129, 1000, 8192], k=12), strict=True):
        yield "batched", {"m": m, "n": n, "k": k, "groups": h, **kind}
    for kind, groups in ((kind, groups) for kind in K_GROUPS for groups in (1, 8, 64)):
        m, n, k = (128 * r.choice([1, 2, 5, 16, 56]) for _ in range(3))
        yield "k_contiguous", {"m": m, "n": n, "k": k * groups, "groups": groups, **kind}
    yield "batch_sum", {"m": 128 * r.randrange(1, 9), "n": 384, "k": 65536, "groups": r.randrange(1, 4), "bf16": 1}


@pytest.mark.parametrize("target", ["sm_80", "sm_120", "sm_90a", "sm_100a"])
def test_forms_of_d_have_one_order_of_sums(target) -> None:
    r = random.Random(target)
    found = {}
    for grouping, fields in chain(problems(r), problems(r)):
        settings = {"num_sms": GPUS[target].sms, "batch_invariant": int(r.random() < 0.2)}
        orders = {order(grouping, {**fields, **settings, **form}, target) for form in FORMS}
        found[grouping, str(fields), str(settings)] = orders
    differing = {problem: orders for problem, orders in found.items() if len(orders) > 1}
    assert not differing
    split = {parts[:2] for orders in found.values() for parts in orders}
    assert len(split) > 1, "some of them split K"
