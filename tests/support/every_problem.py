"""The problems whose kernels test_every_kernel.py compiles: those of the benchmarks, and what else decides a kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path

from candidates import parse
from cases import PUBLIC_WEIGHTS
from field_calls import explain

from deep_gemm._targets import HOPPER_SMS

TOKENS = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096]
OTHER_WEIGHTS = [(129, 128), (1000, 1024), (5120, 272)]  # rows of D that TMA cannot store, K tails, few K blocks
# In place or not is the same where D is BF16.
K_GROUPED_OUTPUTS = [
    {},
    {"add_c": 1},
    {"fp32_output": 1},
    {"fp32_output": 1, "add_c": 1},
    {"fp32_output": 1, "add_c": 1, "in_place": 1},
]
CASES = Path(__file__).resolve().parents[2] / "benchmarks" / "cases.json"

Problem = tuple[str, dict[str, int]]  # what kernel_of takes


def public_problems() -> Iterator[Problem]:
    """What the benchmarks measure: every kernel of these is compiled."""
    for what, *case in (row["case"] for row in json.loads(CASES.read_text())["rows"]):
        if what == "dense":
            m, n, k = case
            yield "dense", {"m": m, "n": n, "k": k}
        elif what == "bf16":
            m, n, k = case
            yield "dense", {"m": m, "n": n, "k": k, "bf16": 1}
        elif what == "wgrad":
            m, k, n = case
            yield "dense", {"m": m, "n": n, "k": k, "per_row_b": 1, "fp32_output": 1, "add_c": 1, "in_place": 1}
        elif what == "contiguous":
            groups, tokens, n, k = case
            yield "m_contiguous", {"m": groups * tokens, "n": n, "k": k, "groups": groups}
        elif what == "masked":
            groups, tokens, n, k = case
            yield "masked", {"m": 4096, "expected_m": tokens, "n": n, "k": k, "groups": groups}


def dense_problems() -> Iterator[Problem]:
    outputs = [
        {},
        {"fp32_output": 1},
        {"add_c": 1},
        {"fp32_output": 1, "add_c": 1},
        {"fp32_output": 1, "add_c": 1, "in_place": 1},
    ]
    weights = [*PUBLIC_WEIGHTS, *OTHER_WEIGHTS]
    # As fp8_gemm_nt and fp8_gemm_nn compile it, with scales of B per block and per row.
    for (n, k), m, output, per_row_b in product(weights, TOKENS, outputs, (0, 1)):
        yield "dense", {"m": m, "n": n, "k": k, "per_row_b": per_row_b, **output}
    # fp8_gemm_tn and fp8_gemm_tt compile M and N in.
    for n, k in weights:
        yield "dense", {"m": 4096, "n": n, "k": k, "per_row_b": 1, "fp32_output": 1, "compiled_dims": 3}


def grouped_problems() -> Iterator[Problem]:
    rows = [row["case"] for row in json.loads(CASES.read_text())["rows"]]
    shapes = {tuple(case[3:]) for case in rows if case[0] in ("contiguous", "masked")} | {(7168, 2048), (576, 512)}
    outputs = ({}, {"fp32_output": 1}, {"per_row_b": 1})
    for (n, k), (groups, tokens), output in product(
        sorted(shapes), [(4, 8192), (8, 1024), (32, 512), (32, 192), (64, 128), (6, 20), (128, 8)], outputs
    ):
        shape = {"n": n, "k": k, "groups": groups, **output}
        for alignment in (64, 128):
            m = groups * max(tokens, alignment)
            yield "m_contiguous", {"m": m, "alignment": alignment, **shape}
            yield "m_psum", {"m": m, "alignment": alignment, "expected_m": tokens, **shape}
        yield "masked", {"m": 4096, "expected_m": tokens, **shape}


def bf16_problems() -> Iterator[Problem]:
    outputs = [{}, {"add_c": 1}, {"fp32_output": 1}, {"fp32_output": 1, "add_c": 1, "in_place": 1}]
    for (n, k), m, output, layout in product([*PUBLIC_WEIGHTS, *OTHER_WEIGHTS], TOKENS, outputs, range(4)):
        yield (
            "dense",
            {"m": m, "n": n, "k": k, "bf16": 1, "mn_major_a": layout & 1, "mn_major_b": layout >> 1, **output},
        )
    for (groups, tokens), mn_major in product([(8, 4096), (32, 192), (64, 128), (32, 8)], (0, 1)):
        shape = {"n": 4096, "k": 2048, "groups": groups, "bf16": 1, "mn_major_b": mn_major}
        for grouping in ("m_contiguous", "m_psum"):
            yield grouping, {"m": groups * max(tokens, 128), "alignment": 128, "expected_m": tokens, **shape}
        yield "masked", {"m": 4096, "expected_m": tokens, **shape}
    k_groups = {"bf16": 1, "mn_major_a": 1, "mn_major_b": 1, "group_maps": 1}
    for (m, n), output in product([(4096, 7168), (576, 1024), (600, 1030)], K_GROUPED_OUTPUTS):
        yield "k_contiguous", {"m": m, "n": n, "k": 32768, "groups": 8, **k_groups, **output}


def fp16_problems() -> Iterator[Problem]:
    """Kernels that differ from BF16's in the instructions that multiply and convert: fewer of them do."""
    kinds = [{"fp16": 1}, {"fp16": 1, "fp32_output": 1}, {"bf16": 1, "fp16_output": 1}, {"fp16_output": 1}]
    weights = [(7168, 2048), (4096, 7168), (1000, 1024)]
    for (n, k), m, kind, add_c in product(weights, (1, 64, 256, 4096), kinds, (0, 1)):
        yield "dense", {"m": m, "n": n, "k": k, "add_c": add_c, **kind}
    for (n, k), mn_major in product(weights, (1, 2, 3)):
        yield "dense", {"m": 512, "n": n, "k": k, "fp16": 1, "mn_major_a": mn_major & 1, "mn_major_b": mn_major >> 1}
    for (groups, tokens), n, kind in product([(8, 4096), (32, 192), (32, 8)], (4096, 4100), kinds):
        shape = {"n": n, "k": 2048, "groups": groups, "expected_m": tokens, **kind}
        for grouping in ("m_contiguous", "m_psum"):
            yield grouping, {"m": groups * max(tokens, 128), "alignment": 128, **shape}
        yield "masked", {"m": 4096, **shape}
    mn_major = {"mn_major_a": 1, "mn_major_b": 1}
    for (m, n), kind, add_c in product([(4096, 7168), (600, 1030)], kinds, (0, 1)):
        operands = {"per_row_b": 1} if kind == {"fp16_output": 1} else mn_major
        yield (
            "k_contiguous",
            {"m": m, "n": n, "k": 32768, "groups": 8, "group_maps": 1, "add_c": add_c, **operands, **kind},
        )


def int8_problems() -> Iterator[Problem]:
    outputs = [
        {},
        {"bias": 1},
        {"fp32_bias": 1, "add_c": 1},
        {"fp32_output": 1, "fp32_bias": 1},
        {"fp32_output": 1, "add_c": 1},
        {"fp32_output": 1, "add_c": 1, "in_place": 1},
        {"s32_output": 1},
        {"s32_output": 1, "add_c": 1},
    ]
    for (n, k), m, output in product([*PUBLIC_WEIGHTS, *OTHER_WEIGHTS], TOKENS, outputs):
        yield "dense", {"m": m, "n": n, "k": k, "s8": 1, **output}
    kinds = [{}, {"bias": 1}, {"fp16_output": 1}, {"fp32_output": 1}, {"s32_output": 1}]
    for m, kind, output in product(TOKENS, ({}, {"gran_k_b": 128}), ({}, {"fp32_output": 1}, {"bias": 1, "add_c": 1})):
        yield "dense", {"m": m, "n": 4096, "k": 7168, "s8": 1, "asymmetric_a": 1, **kind, **output}
    kinds += [{"asymmetric_a": 1}, {"asymmetric_a": 1, "gran_k_b": 128, "per_row_b": 1}]
    for (groups, tokens), n, kind in product([(32, 20), (32, 192), (8, 2048), (64, 4)], (4096, 4100), kinds):
        shape = {"n": n, "k": 7168, "groups": groups, "expected_m": tokens, "s8": 1, **kind}
        for grouping in ("m_contiguous", "m_psum"):
            yield grouping, {"m": groups * max(tokens, 128), "alignment": 128, **shape}
        yield "masked", {"m": 4096, **shape}


def int8_block_problems() -> Iterator[Problem]:
    """Scales of groups along K: of tokens, of weights, of both."""
    of_weights = [{}, {"gran_k_b": 128}, {"gran_k_b": 128, "per_row_b": 1}]
    kinds = [{**b, **a} for b, a in product(of_weights, ({}, {"gran_k_a": 128})) if b or a]
    outputs = [{}, {"fp32_output": 1}, {"add_c": 1}, {"fp32_bias": 1}]
    for (n, k), m, kind, output in product([(4096, 7168), (1000, 1024)], (1, 64, 256, 4096), kinds, outputs):
        yield "dense", {"m": m, "n": n, "k": k, "s8": 1, **kind, **output}
    for (groups, tokens), kind, output in product(
        [(32, 20), (32, 192), (8, 2048)], kinds, ({}, {"fp32_output": 1}, {"bias": 1})
    ):
        shape = {"n": 4096, "k": 7168, "groups": groups, "expected_m": tokens, "s8": 1, **kind, **output}
        for grouping in ("m_contiguous", "m_psum"):
            yield grouping, {"m": groups * max(tokens, 128), "alignment": 128, **shape}
        yield "masked", {"m": 4096, **shape}


def packed_problems() -> Iterator[Problem]:
    """Packed weights: of each element, with scales of tokens and of groups of K."""
    wide = [
        *({"s4b": 1, "gran_k_b": group} for group in (32, 64, 128)),
        {"s4b": 1, "channel_scales": 1},
        *({"u4": 1, "gran_k_b": group} for group in (32, 64, 128)),
        {"u4": 1, "channel_scales": 1},
        *({"e2m1": 1, "conversion_scales": 1, "gran_k_b": group} for group in (32, 16)),
        {"e2m1": 1, "gran_k_b": 32},
        {"e4m3p": 1},
        {"e4m3p": 1, "channel_scales": 1},
        {"s8b": 1},
        {"s8b": 1, "channel_scales": 1},
        {"u8": 1, "gran_k_b": 64},
    ]
    kinds = [
        {"s8": 1, "s4": 1},
        *({"s8": 1, "s4": 1, "gran_k_b": group} for group in (32, 64, 128)),
        *({"s8": 1, "s4": 1, "asymmetric_a": 1, **group} for group in ({}, {"gran_k_b": 128})),
        *({"s8": 1, "s4": 1, "gran_k_a": 128, **group} for group in ({}, {"gran_k_b": 32}, {"gran_k_b": 128})),
        *({"s4m": 1, "gran_k_b": group, "token_scales": tokens} for group in (32, 64, 128) for tokens in (0, 1)),
        {"s4": 1, "token_scales": 1},
        *({element: 1, "token_scales": 1, "fast_accumulation": 1} for element in ("s4m", "e2m1x")),
        {"u4": 1, "channel_scales": 1, "token_scales": 1, "fast_accumulation": 1},
        *({element: 1, "token_scales": tokens} for element in ("e2m1", "e2m1x") for tokens in (0, 1)),
        *({"u4": 1, "gran_k_b": group, "token_scales": tokens} for group in (32, 64, 128) for tokens in (0, 1)),
        *({"s8": 1, "u4": 1, "zeros_k": group} for group in (-1, 32, 64, 128)),
        *({"s8": 1, "u4": 1, "zeros_k": group, "gran_k_b": group} for group in (32, 64, 128)),
        *({"bf16": 1, **kind} for kind in wide),
        *({"fp16": 1, **kind} for kind in wide[1::2]),
    ]
    outputs = [{}, {"fp32_output": 1}, {"add_c": 1}]
    for (n, k), m, kind, output in product(
        [(4096, 7168), (7168, 16384), (1000, 1024)], (1, 16, 64, 256, 4096), kinds, outputs
    ):
        yield "dense", {"m": m, "n": n, "k": k, **kind, **output}
    for (groups, tokens), kind, bias in product([(32, 20), (32, 192), (8, 2048)], kinds, (0, 1)):
        shape = {"n": 4096, "k": 7168, "groups": groups, "expected_m": tokens, "bias": bias, **kind}
        for grouping in ("m_contiguous", "m_psum"):
            yield grouping, {"m": groups * max(tokens, 128), "alignment": 128, **shape}
        yield "masked", {"m": 4096, **shape}


def k_grouped_problems() -> Iterator[Problem]:
    sides = [(4096, 7168), (7168, 2048), (576, 1024), (600, 1030)]
    for (m, n), groups, k, output, maps in product(sides, (4, 16, 64), (256, 8192), K_GROUPED_OUTPUTS, (0, 1)):
        fields = {"m": m, "n": n, "k": k * groups, "groups": groups, "group_maps": maps, **output}
        yield "k_contiguous", {"per_row_b": 1, **fields}


def shared_problems() -> Iterator[Problem]:
    """Every tile whose last ones pairs share, whatever selection makes of it: a problem of two waves, and 16 tiles."""
    outputs = [{}, {"fp32_output": 1}, {"add_c": 1}, {"fp32_output": 1, "add_c": 1, "in_place": 1}]
    for bf16, output, per_row_b, (m, n) in product((0, 1), outputs, (0, 1), [(2048, 2112), (2112, 7168), (700, 4000)]):
        if bf16 and per_row_b:
            continue
        sizes = {"m": m, "n": n, "k": 7168, "bf16": bf16, "per_row_b": per_row_b, **output}
        for c in parse(explain("dense", {"num_sms": HOPPER_SMS, **sizes})):
            if c.cluster_shape == (1, 1, 2) and c.rejection is None and c.k_warpgroups == 1 and c.ctas == HOPPER_SMS:
                tile = {"swap_ab": int(c.swapped), "tile_rows": c.rows, "tile_cols": c.cols, "cluster_k": 2}
                yield "dense", sizes | tile


def direct_problems() -> Iterator[Problem]:
    """Every tile of experts whose D goes out from registers, in pairs or not. (FP8's swapped tiles of 256 rows move
    descriptors, whatever D is. Selection does not pick them.)"""
    kinds = [{}, {"per_row_b": 1}, {"bf16": 1}]
    for grouping, kind, fp32 in product(("masked", "m_contiguous", "m_psum"), kinds, (0, 1)):
        sizes = {"m": 2048, "n": 4100, "k": 2048, "groups": 4, "expected_m": 500, "fp32_output": fp32, **kind}
        for c in parse(explain(grouping, {"num_sms": HOPPER_SMS, **sizes})):
            if c.cluster == 1 and c.rejection is None and (kind.get("bf16") or not (c.swapped and c.rows == 256)):
                yield grouping, sizes | {"swap_ab": int(c.swapped), "tile_rows": c.rows, "tile_cols": c.cols}


def batched_problems() -> Iterator[Problem]:
    """DeepSeek's up and down projections of heads, other sizes, gradients of both, and sums over a batch."""
    outputs = [{}, {"fp32_output": 1}, {"add_c": 1}, {"fp32_output": 1, "add_c": 1, "in_place": 1}]
    sizes = [(128, 128, 512, 0), (128, 512, 128, 1), (8, 1024, 4096, 0), (8, 4096, 1024, 1), (3, 100, 72, 0)]
    for (groups, n, k, mn_major), m, output in product(sizes, TOKENS, outputs):
        shape = {"m": m, "n": n, "k": k, "groups": groups, **output}
        yield "batched", {**shape, "bf16": 1, "mn_major_b": mn_major}
        if k % 16 == 0:
            yield "batched", shape
    for bf16, tokens, output in product((0, 1), (64, 4096), outputs[1:]):
        kind = {"bf16": 1, "mn_major_a": 1, "mn_major_b": 1} if bf16 else {"per_row_b": 1}
        yield "batched", {"m": 1024, "n": 4096, "k": tokens, "groups": 8, "compiled_dims": 3, **kind, **output}
    for (m, n), parts, k in product(
        [(128, 384), (256, 256), (384, 128), (100, 72), (1024, 1024)], (1, 2, 44), (512, 65536)
    ):
        sizes = {"m": m, "n": n, "k": k * parts, "groups": parts, "bf16": 1}
        yield from (("batch_sum", {**sizes, **output}) for output in (outputs if parts == 1 else outputs[1:2]))


def head_problems() -> Iterator[Problem]:
    """D in heads, through the copy engine and from registers."""
    for (left, skipped, right), m, fp32, per_row_b in product(
        [(128, 64, 128), (24, 10, 40), (7, 3, 5)], (1, 64, 128, 512, 4096), (0, 1), (0, 1)
    ):
        heads = {"head_left": left, "head_skipped": skipped, "head_right": right}
        yield (
            "dense",
            {"m": m, "n": 64 * (left + right), "k": 512, "fp32_output": fp32, "per_row_b": per_row_b, **heads},
        )


def every_problem() -> Iterator[Problem]:
    experts = grouped_problems(), k_grouped_problems(), direct_problems(), batched_problems(), head_problems()
    some = (
        dense_problems(),
        *experts,
        bf16_problems(),
        fp16_problems(),
        int8_problems(),
        int8_block_problems(),
        packed_problems(),
        shared_problems(),
    )
    return chain(public_problems(), *some)
