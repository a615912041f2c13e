"""Kernels of DeepGEMM 2.8.2 for foreign_kernels.py: how its host code launches them, on small problems."""

from __future__ import annotations

from functools import partial

import torch
from foreign_launch import Compiled, Kernel, Launch, difference, pack

from deep_gemm import simulator

E4M3 = torch.float8_e4m3fn
FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)
SOURCE = """#include <{header}>
using namespace deep_gemm;
__device__ extern const unsigned smem_bytes = {smem};
static void instantiate() {{ auto kernels = {{{kernels}}}; }}
"""


def source(header: str, smem: str, *kernels: str) -> str:
    listed = ", ".join(f"reinterpret_cast<void*>(&{kernel})" for kernel in kernels)
    return SOURCE.format(header=header, smem=smem, kernels=listed)


def exponents(*shape: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(123, 128, shape, dtype=torch.uint8, generator=generator)


def scaled(values: torch.Tensor, of_32: torch.Tensor) -> torch.Tensor:
    return values.double() * torch.exp2(of_32.double() - 127).repeat_interleave(32, -1)


def unpacked(pairs: torch.Tensor) -> torch.Tensor:
    return torch.stack([FP4[(pairs & 15).long()], FP4[(pairs >> 4).long()]], -1).flatten(-2)


HEADS, DIM, PAGE, SPLIT, SMS = 32, 128, 64, 384, 2
LENGTHS = [695, 696, 697, 698, 699, 130, 384, 1001]  # of each token's context
REQUESTS = [0, 0, 0, 0, 0, 1, 2, 2]


def logits_source(fp4: bool) -> str:
    q_stages, kv_stages, kind = (2, 8, "float_e2m1_t") if fp4 else (3, 3, "float_e4m3_t")
    shape = f"{HEADS}, {DIM}, {PAGE}, 4, 128, {q_stages}, {kv_stages}, 3, {SPLIT}, 8, 128, 384, cutlass::{kind}"
    storage = f"{HEADS}, {DIM}, 4, {SPLIT}, 128, {q_stages}, {kv_stages}, 3, cutlass::{kind}"
    return source(
        "deep_gemm/impls/sm100_mqa_logits.cuh",
        f"sizeof(layout::MQALogitsSharedStorage<{storage}>)",
        f"sm100_paged_mqa_logits<{shape}>",
        f"sched::sm100_paged_mqa_logits_metadata<{SPLIT}, {SMS}, 4, 256>",
    )


def paged_logits(fp4: bool, compiled: Compiled) -> Launch:
    """Index logits over pages: scales of four pages come by one tile::gather4."""
    generator = torch.Generator().manual_seed(11)
    tokens, pages = len(LENGTHS), 40
    lengths, requests = (torch.tensor(values, dtype=torch.int32) for values in (LENGTHS, REQUESTS))
    table = torch.randperm(pages, generator=generator)[: tokens * 4].int()
    table = table.repeat(5)[: tokens * 16].view(tokens, 16)
    table[:] = table[requests.long()]  # tokens of one request have one row
    if fp4:
        q, kv = (
            torch.randint(0, 256, (*shape, DIM // 2), dtype=torch.uint8, generator=generator)
            for shape in ((tokens, HEADS), (pages, PAGE))
        )
        q_values, kv_values = unpacked(q), unpacked(kv)
    else:
        q, kv = (torch.randn(*s, DIM, generator=generator).to(E4M3) for s in ((tokens, HEADS), (pages, PAGE)))
        q_values, kv_values = q, kv
    of_q, of_kv = exponents(tokens, HEADS, 4, generator=generator), exponents(pages, PAGE, 4, generator=generator)
    weights = torch.randn(tokens, HEADS, generator=generator).bfloat16()
    schedule, logits = torch.empty(SMS + 1, 2, dtype=torch.int32), torch.empty(tokens, 1152, dtype=torch.bfloat16)

    simulator.run(
        compiled.ptx,
        entry=compiled.entry("metadata"),
        block=(256,),
        smem_bytes=(2 * tokens + 256 // 32 + 1) * 4,
        params=pack([tokens, lengths, requests, schedule]),
        tensors=[schedule],
        inputs=[lengths, requests],
    )
    keys = scaled(kv_values, of_kv)[table.long()].flatten(1, 2)
    products = torch.einsum("thd,tkd->thk", scaled(q_values, of_q), keys).relu()
    wanted = (products * weights.double()[:, :, None]).sum(1)
    packed, width = ("u4", DIM // 2) if fp4 else ("", DIM)
    sf_q, sf_kv = of_q.view(torch.int32).view(tokens, HEADS), of_kv.view(torch.int32).view(pages, PAGE)
    maps = [
        simulator.tensor_map(q.view(-1, width), (128, DIM), width, packed),
        simulator.tensor_map(sf_q, (4, HEADS)),
        simulator.tensor_map(kv, (1, PAGE, DIM), width, packed),
        simulator.tensor_map(sf_kv, (1, PAGE)),
        simulator.tensor_map(weights, (4, HEADS)),
    ]

    def check() -> float:
        rows = [(logits[t, :length], wanted[t, :length]) for t, length in enumerate(LENGTHS)]
        return difference(*(torch.cat(list(side)) for side in zip(*rows, strict=True)))

    return Launch(
        entry=compiled.entry("sm100_paged_mqa_logitsI"),
        params=pack([tokens, logits.stride(0), 16, lengths, logits, table, requests, schedule, *maps]),
        outputs=[logits],
        inputs=[q, kv, sf_q, sf_kv, weights, lengths, requests, table, schedule],
        difference=check,
        limit=3e-5,
        grid=(SMS,),
        block=(512,),
        smem_bytes=compiled.constant("smem_bytes"),
    )


TOP, EXPERTS, HIDDEN, STAGES, TOKENS_A_BLOCK = 6, 128, 512, 4, 32
GATE = source(
    "deep_gemm/impls/sm100_bf16_mega_gate.cuh",
    "layout::mega_gate::kStageDataOffset",
    f"sm100_bf16_mega_gate_impl<{HIDDEN}, {EXPERTS}, 512, 2, 1, 1, {TOP}, "
    "false, true, false, false, false, false, false, false>",
)


def mega_gate(compiled: Compiled) -> Launch:
    """x times the experts' weights, the best experts of sqrt(softplus) and a bias, by one CTA pair."""
    generator = torch.Generator().manual_seed(5)
    tokens = 77
    x = torch.randn(tokens, HIDDEN, generator=generator).bfloat16()
    weight = (torch.randn(EXPERTS, HIDDEN, generator=generator) * HIDDEN**-0.5).bfloat16()
    bias = torch.randn(EXPERTS, generator=generator)
    blocks = -(-tokens // TOKENS_A_BLOCK)
    scratch = torch.empty(blocks * TOKENS_A_BLOCK, EXPERTS)
    barriers = torch.zeros(blocks, 128, dtype=torch.uint8)
    best, shares = torch.empty(tokens, TOP, dtype=torch.int64), torch.empty(tokens, TOP)
    scores = torch.nn.functional.softplus(x.double() @ weight.double().T).sqrt()
    wanted = (scores + bias.double()).topk(TOP).indices
    wanted_shares = scores.gather(1, wanted)
    wanted_shares *= 2.5 / wanted_shares.sum(1, keepdim=True)
    routing = pack([None, None, best, None, shares, bytes(8), EXPERTS, 0, 0, 0, 2.5, 0])
    maps = [simulator.tensor_map(x, (TOKENS_A_BLOCK // 2, 64), 128), simulator.tensor_map(weight, (64, 64), 128)]

    def check() -> float:
        return difference(shares, wanted_shares) if torch.equal(best, wanted) else 1.0

    numbers = [tokens, TOKENS_A_BLOCK, STAGES, 1, blocks]
    return Launch(
        params=pack([*maps, bias, None, None, None, None, None, routing, scratch, barriers, *numbers]),
        outputs=[best, shares, scratch, barriers],
        zeros=[barriers],
        inputs=[x, weight, bias],
        difference=check,
        limit=1e-11,
        grid=(2,),
        block=(128 + 512,),
        cluster=(2,),
        smem_bytes=compiled.constant("smem_bytes") + STAGES * (TOKENS_A_BLOCK // 2 + 64) * 64 * 2,
    )


MHC_HIDDEN, MHC_SPLITS, ROUTES, OUTPUTS = 1024, 2, 4, 24


def mhc_source(shifted: bool) -> str:
    flags = f"{str(shifted).lower()}, true, false, 0"
    kernel = f"sm100_mega_mhc_impl<{MHC_HIDDEN}, {MHC_SPLITS}, 1, {flags}>"
    return source("deep_gemm/impls/sm100_mega_mhc.cuh", "sizeof(layout::mega_mhc::SharedStorage)", kernel)


def mega_mhc(shifted: bool, compiled: Compiled) -> Launch:
    """Hyperconnections and the norm behind them: TF32 products whose A is written into tensor memory."""
    generator = torch.Generator().manual_seed(13)
    tokens, hidden = 50, MHC_HIDDEN

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    x, residual = random(tokens, hidden).bfloat16(), random(tokens, ROUTES, hidden).bfloat16()
    post, before = random(tokens, ROUTES).sigmoid(), random(tokens, ROUTES).sigmoid()
    combine = torch.rand(tokens, ROUTES, ROUTES, generator=generator).softmax(-1)
    fn = ((random(OUTPUTS, ROUTES * hidden) * 0.01).view(torch.int32) & ~0x1FFF).view(torch.float32)  # TF32
    scales, bases = random(3) * 0.1, random(OUTPUTS) * 0.1
    weight = (random(hidden) * 0.1 + 1).bfloat16()
    rounds, norm_epsilon, pre, post_scale, epsilon, rms_epsilon, rms_scale = 10, 2e-5, 3e-4, 1.25, 2e-6, 7e-6, 1.25

    new_residual, y = torch.empty_like(residual), torch.empty_like(x)
    new_before, new_post, new_combine = (torch.empty_like(t) for t in (before, post, combine))
    blocks = -(-tokens // 64)
    scratch = torch.empty(blocks * MHC_SPLITS * (64 * OUTPUTS + 2 * 64))
    barriers = torch.zeros(2 * (1 << 14) * 128, dtype=torch.uint8)

    # What is rounded to BF16 on the way is rounded here.
    mixed = post.double()[:, :, None] * x.double()[:, None] + combine.double().mT @ residual.double()
    rounded = mixed.bfloat16().double()
    mixes = rounded.flatten(1) @ fn.double().T
    mixes *= (rounded.square().sum((1, 2)) / (ROUTES * hidden) + norm_epsilon).rsqrt()[:, None]
    mixes = mixes * scales.double().repeat_interleave(torch.tensor([4, 4, 16])) + bases.double()
    wanted_before, wanted_post = mixes[:, :4].sigmoid() + pre, mixes[:, 4:8].sigmoid() * post_scale
    wanted_combine = mixes[:, 8:].view(-1, ROUTES, ROUTES).softmax(-1) + epsilon
    wanted_combine /= wanted_combine.sum(-2, keepdim=True) + epsilon
    for _ in range(rounds - 1):
        wanted_combine /= wanted_combine.sum(-1, keepdim=True) + epsilon
        wanted_combine /= wanted_combine.sum(-2, keepdim=True) + epsilon
    with_mix = before.double() if shifted else wanted_before
    normed = (rounded * with_mix[:, :, None]).sum(1).bfloat16().double()
    wanted_y = normed * (normed.square().mean(1, keepdim=True) + rms_epsilon).rsqrt() * weight.double() * rms_scale

    def hidden_map(tensor: torch.Tensor) -> bytes:
        return simulator.tensor_map(tensor, (64, 64), 128)

    def residual_map(tensor: torch.Tensor) -> bytes:
        return simulator.tensor_map(tensor.transpose(0, 1), (ROUTES, 64, 64), 128)

    maps = [
        residual_map(residual),
        hidden_map(x),
        simulator.tensor_map(fn.view(OUTPUTS, ROUTES, hidden).transpose(0, 1), (ROUTES, OUTPUTS, 32), 128),
        simulator.tensor_map(post, (64, ROUTES)),
        simulator.tensor_map(combine.flatten(1), (64, 16), 64),
        simulator.tensor_map(before if shifted else post, (64, ROUTES)),
        residual_map(new_residual),
        hidden_map(y if shifted else x),
    ]
    mix = [scales, bases, new_before if shifted else None, new_post, new_combine]
    mix += [norm_epsilon, pre, post_scale, epsilon, rounds]
    norm = [tokens, weight, new_residual, rms_epsilon, rms_scale, y, None, None, bytes(16), None, bytes(8)]
    wanted = {"residual": rounded, "post": wanted_post, "combine": wanted_combine, "y": wanted_y}
    got = {"residual": new_residual, "post": new_post, "combine": new_combine, "y": y}
    if shifted:
        wanted["before"], got["before"] = wanted_before, new_before
    return Launch(
        params=pack([*maps, pack(mix), pack(norm), scratch, barriers]),
        outputs=[new_residual, new_before, new_post, new_combine, y, scratch, barriers],
        zeros=[barriers],
        inputs=[x, residual, post, before, combine, fn, scales, bases, weight],
        difference=lambda: max(difference(got[name], wanted[name]) for name in wanted),
        limit=5e-5,
        block=(768,),
        smem_bytes=compiled.constant("smem_bytes"),
    )


KERNELS = [
    Kernel(
        "paged index logits, FP8 (gather4)", "deep_gemm", "100a", logits_source(False), partial(paged_logits, False)
    ),
    Kernel("paged index logits, FP4 (gather4)", "deep_gemm", "100a", logits_source(True), partial(paged_logits, True)),
    Kernel("mega gate", "deep_gemm", "100a", GATE, mega_gate),
    Kernel("mega mHC, shifted", "deep_gemm", "100a", mhc_source(True), partial(mega_mhc, True)),
    Kernel("mega mHC, normal", "deep_gemm", "100a", mhc_source(False), partial(mega_mhc, False)),
]
