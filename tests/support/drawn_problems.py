"""Problems at random over an architecture's rows of the pair table: pairs, scales, groupings, outputs, layouts, sizes,
settings. Equal seeds give equal problems; the longest beginnings of a draw are the same whatever the count."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from matrix import ADDED_TO, FP4, ONE_RECIPE, Pair, Scaling, pairs

Problem = tuple[str, dict[str, int]]  # what field_calls.kernel_of takes

HEADS = [(128, 64, 128), (24, 10, 40), (7, 3, 5)]


def extent(r: random.Random, least: int, most: int, multiple: int = 1) -> int:
    """Between `least` and `most`, every octave as likely as another."""
    return max(least, round(least * (most / least) ** r.random() / multiple) * multiple)


def width(r: random.Random, least: int, most: int) -> int:
    """Of a matrix: mostly as models have them, else any."""
    return extent(r, least, most, r.choice([128, 128, 64, 8, 1]))


def scale_fields(r: random.Random, name: str, scaling: Scaling) -> dict[str, int]:
    fields = {} if scaling.k < 0 else {f"gran_k_{name}": scaling.k}
    if scaling.element in ("ue8m0", "e4m3"):
        return {**fields, f"packs_scales_{name}": r.randrange(2)}
    return {**fields, "per_row_b": 1} if name == "b" and scaling.rows == 1 else fields


def operand_fields(r: random.Random, pair: Pair, grouping: str) -> dict[str, int]:
    fields = {} if pair.a == "e4m3" else {pair.a: 1}
    if pair.is_fp4:
        fields = {"fp4": 1}
        scaling = r.choice(pair.scalings_a)
        fields |= scale_fields(r, "a", scaling) | scale_fields(r, "b", scaling)
        fields["exponent_scales"] = int(pair.arch == "sm120")
        return {**fields, "group_maps": 1} if grouping == "k_contiguous" else fields
    if pair.is_fp8_fp4:
        fields = {FP4 if pair.b == FP4 else "fp4_a": 1}
    if pair.scalings_a:
        scaling_a = r.choice(pair.scalings_a)
        if grouping == "k_contiguous" and scaling_a.element == "fp32":
            scaling_a = pair.scalings_a[0]
        fits = [b for b in pair.scalings_b if grouping not in ONE_RECIPE or b.k == scaling_a.k]
        fields |= scale_fields(r, "a", scaling_a) | scale_fields(r, "b", r.choice(fits))
        if (pair.arch, pair.a, pair.scalings_a[0].element) == ("sm100", "e4m3", "fp32"):
            fields["fp32_scales"] = 1
        if pair.arch == "sm120" and scaling_a.element == "ue8m0":
            fields |= {
                "exponent_scales": 1,
                **({"packs_scales_a": 0, "packs_scales_b": 0} if grouping == "k_contiguous" else {}),
            }
    if pair.mn_major == "transposed":  # they come K-major
        return {**fields, "group_maps": r.randrange(2)} if grouping == "k_contiguous" else fields
    if grouping == "k_contiguous":  # both one way: FP8 has a call for each, 16 bits for MN-major only
        mn_major = 1 if pair.a != "e4m3" else r.randrange(2)
        return {**fields, "mn_major_a": mn_major, "mn_major_b": mn_major, "group_maps": r.randrange(2)}
    mn_major_a = 0 if grouping.startswith("m") or pair.a == FP4 else r.randrange(2)  # of experts there are nt and nn
    return {**fields, "mn_major_a": mn_major_a, "mn_major_b": 0 if pair.b == FP4 else r.randrange(2)}


def sizes(r: random.Random, grouping: str) -> dict[str, int]:
    m, n, k = extent(r, 1, 16384), width(r, 8, 28672), extent(r, 16, 28672, r.choice([128, 128, 16]))
    groups = extent(r, 1, 256)
    if grouping == "dense":
        return {"m": m, "n": n, "k": k}
    if grouping in ("m_contiguous", "m_psum"):
        alignment = r.choice([32, 64, 128, 128, 224, 256])
        rows = {"m": groups * alignment * extent(r, 1, 32), "alignment": alignment, "groups": groups}
        expected = {"expected_m": extent(r, 1, 4096)} if grouping == "m_psum" and r.random() < 0.5 else {}
        return {**rows, **expected, "n": n, "k": k}
    if grouping == "masked":
        return {"m": extent(r, 1, 4096), "expected_m": extent(r, 1, 4096), "n": n, "k": k, "groups": groups}
    if grouping == "k_contiguous":
        groups = extent(r, 1, 90)
        return {
            "m": width(r, 16, 8192),
            "n": width(r, 16, 8192),
            "k": groups * extent(r, 128, 8192, 128),
            "groups": groups,
        }
    if grouping == "batch_sum":
        return {
            "m": width(r, 16, 1024),
            "n": width(r, 16, 1024),
            "k": groups * extent(r, 64, 2048, 64),
            "groups": groups,
        }
    return {"m": extent(r, 1, 4096), "n": width(r, 8, 8192), "k": k, "groups": groups}


def takes_gate(pair: Pair, output: str, fields: dict[str, int]) -> bool:
    """Plain pairs, their weights K-major."""
    plain = pair.a == pair.b and pair.a in ("e4m3", "bf16", "fp16", "s8") and output != "s32"
    return plain and not fields.get("mn_major_b")


def gate_fields(r: random.Random, in_blocks: bool, fields: dict[str, int]) -> dict[str, int]:
    """A gated activation, other steps around it, and perhaps quantised output, beside which there is no C. `in_blocks`:
    rows of B share scales."""
    n = max(fields["n"] // 256, 1) * 256  # in halves also beside scales of 128 rows
    found = {"n": n, "gate": r.choice([1, 2, 3]), "gate_rows": r.randrange(2), "in_place": 0}
    if (found["gate_rows"] or not in_blocks) and r.random() < 0.3:
        found["n"] -= r.choice([2, 6, 8])  # of the last 8 pairs of a gate and an up 1, 3 or 4 are missing
    found |= {"alpha": r.randrange(2), "row_scale": int(r.random() < 0.3)}
    if r.random() < 0.5:
        scales = [{"quantised": 128}, {"quantised_words": 32}, {"quantised_words": 128}]
        found |= {
            "add_c": 0,
            **r.choice(scales[: 1 if n == 256 else 3]),
        }  # a word of 128 columns may be for 32 or for all
    return found


def batched_steps(pair: Pair, output: str, fields: dict[str, int]) -> dict[str, int]:
    """RowScale of any batch, and gates of those whose weights are K-major. By themselves: other draws stay."""
    r = random.Random(repr(sorted(fields.items())))
    found = {"row_scale": 1} if r.random() < 0.3 else {}
    if takes_gate(pair, output, fields) and fields.get("compiled_dims") != 3 and r.random() < 0.3:
        found |= gate_fields(r, pair.b == "e4m3" and not fields.get("per_row_b"), fields)
        found = {name: value for name, value in found.items() if not name.startswith("quantised")}
    return found


def drawn_problem(r: random.Random, of_arch: list[Pair], num_sms: int) -> Problem:
    pair = r.choice(of_arch)
    grouping, output = r.choice(pair.groupings), r.choice(pair.outputs)
    fields = {**operand_fields(r, pair, grouping), **sizes(r, grouping), f"{output}_output": 1}
    if pair.a == "s8" and output != "s32" and r.random() < 0.3:
        fields["bias"] = 1
    if grouping in ADDED_TO and r.random() < 0.5:
        fields |= {"add_c": 1, "in_place": r.randrange(2)}
    one_k = fields.get("gran_k_a") == fields.get("gran_k_b")
    if grouping == "dense" and pair.a == pair.b == "e4m3" and one_k and r.random() < 0.1:
        left, skipped, right = r.choice(HEADS)
        heads = {"head_left": left, "head_skipped": skipped, "head_right": right}
        fields |= {**heads, "n": (left + right) * extent(r, 1, 128), "add_c": 0, "in_place": 0}
    along_m = grouping in ("dense", "m_contiguous", "m_psum", "masked") and not fields.get("head_skipped")
    if along_m and takes_gate(pair, output, fields) and r.random() < 0.25:
        in_blocks = pair.b in ("e4m3", "s8") and not fields.get("per_row_b")
        fields |= gate_fields(r, in_blocks, fields)
    if r.random() < 0.3:
        fields["compiled_dims"] = r.choice([0, 3, 6, 7])
    if grouping == "batched":
        fields |= batched_steps(pair, output, fields)
    fields["batch_invariant"] = int(r.random() < 0.1)
    fields["num_sms"] = num_sms if r.random() < 0.8 else extent(r, 2, num_sms, 2)
    return grouping, fields


def kind_of(problem: Problem) -> tuple[str, str, str, str]:
    """Elements of A and B, grouping, and what D is of."""
    grouping, fields = problem
    (output,) = (name.removesuffix("_output") for name in fields if name.endswith("_output"))
    a = next((name for name in ("bf16", "fp16", "s8") if name in fields), FP4 if "fp4" in fields else "e4m3")
    of_two = (FP4, a) if "fp4_a" in fields else (a, FP4 if FP4 in fields else a)
    return (*of_two, grouping, output)


def drawn_problems(arch: str, count: int, seed: int, num_sms: int, target: str = "sm_100a") -> Iterator[Problem]:
    """`num_sms`: of the GPU; some problems may use fewer. `target`: of those of SM100, which it multiplies."""
    r, of_arch = random.Random(seed), [pair for pair in pairs() if pair.arch == arch]
    if target in ("sm_100f", "sm_103a"):
        of_arch = [pair for pair in of_arch if pair.sum != "s32"]
    return islice(iter(lambda: drawn_problem(r, of_arch, num_sms), None), count)
