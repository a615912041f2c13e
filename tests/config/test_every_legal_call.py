"""Selection alone, over the pair table, groupings, forms of C, settings and targets: each legal call has a kernel."""

from __future__ import annotations

import random

import pytest
from devices import arch_of
from field_calls import kernel_of
from matrix import FP4, Case, cases, every_pair

from deep_gemm._targets import GPUS

EXTENTS = [1, 7, 24, 64, 100, 1000, 4096]
ADDED = {"nothing": {}, "c": {"add_c": 1}, "d": {"add_c": 1, "in_place": 1}}


def operand_fields(case: Case, r: random.Random) -> dict[str, int]:
    a, b = case.pair.a, case.pair.b
    elements = {"fp4" if b == FP4 else "fp4_a"} if a == FP4 else {a, b} - {"e4m3"}
    fields = dict.fromkeys(elements, 1)
    for name, scaling in (("a", case.scaling_a), ("b", case.scaling_b)):
        if scaling is None:
            continue
        if scaling.k > 0:
            fields[f"gran_k_{name}"] = scaling.k
        else:
            fields["token_scales" if name == "a" else "channel_scales"] = 1
        if name == "b" and scaling.rows == 1:
            fields["per_row_b"] = 1
        if scaling.element == "ue5m3":
            fields["conversion_scales"] = 1
    if case.scaling_a is not None and a == b == "e4m3" and case.asks_for_fp32:
        fields["fp32_scales"] = 1
    if case.pair.arch == "sm120" and case.scaling_a is not None and case.scaling_a.element == "ue8m0":
        fields["exponent_scales"] = 1
    if case.pair.mn_major == "as_it_lies":
        k_groups = case.grouping == "k_contiguous"
        a_along_m = 1 if k_groups and a != "e4m3" else r.randrange(2)
        fields["mn_major_a"] = a_along_m if a != FP4 else 0
        fields["mn_major_b"] = (a_along_m if k_groups else r.randrange(2)) if b != FP4 else 0
    return fields


def sizes(case: Case, r: random.Random) -> dict[str, int]:
    m, n, k, groups = r.choice(EXTENTS), 8 * r.choice(EXTENTS[:-2]), 128 * r.choice([1, 2, 8, 56]), r.choice([1, 3, 64])
    found = {"m": m, "n": n, "k": k}
    if case.grouping in ("m_contiguous", "m_psum"):
        alignment = r.choice([8, 16, 24, 32, 40, 64, 128, 192, 224, 256])
        if case.pair.arch == "sm100":
            alignment = max(16, alignment // 16 * 16)
        return {**found, "m": 2 * groups * alignment, "alignment": alignment, "groups": groups}
    if case.grouping == "masked":
        return {**found, "expected_m": r.choice([1, m]), "groups": groups}
    if case.grouping in ("k_contiguous", "batch_sum"):
        return {"m": max(m, 8), "n": n, "k": k * groups, "groups": groups, "group_maps": r.randrange(2)}
    return {**found, "groups": groups} if case.grouping == "batched" else found


def cases_of(target: str) -> list[Case]:
    arch = arch_of(target)
    integers = target not in ("sm_100f", "sm_103a")
    return list(cases([pair for pair in every_pair() if pair.arch == arch and (integers or pair.sum != "s32")]))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("target", GPUS)
def test_every_legal_call_has_a_kernel(target, seed) -> None:
    r = random.Random(f"{target} {seed}")
    without = []
    for case in cases_of(target):
        settings = {"batch_invariant": r.randrange(2), "num_sms": r.choice([GPUS[target].sms] * 2 + [1, 2, 7])}
        form = {f"{case.output}_output": 1, **ADDED[case.added]}
        fields = {**operand_fields(case, r), **sizes(case, r), **form, **settings}
        try:
            kernel_of(case.grouping, fields, target)
        except (ValueError, TypeError, RuntimeError) as error:
            without.append((str(case), fields, str(error)))
    assert not without, f"{len(without)} calls, the first: {without[0]}"
