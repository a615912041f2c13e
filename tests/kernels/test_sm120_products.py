"""sm_120a and sm_121a: scales that are bytes enter the instruction; with FP32 scales FP8 is multiplied by the same one,
of ones, to the bits of the plain one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from call_checks import settings
from candidates import Candidate, can_serve, forced, parse
from devices import SCHEDULES, on_simulator
from field_calls import explain, kernel_of
from inputs import GuardedOutput, random_blocks, random_rows
from matrix import Quantised, Scaling, packed, quantised
from scale_forms import Form, laid_out, written

import deep_gemm
from deep_gemm import jit, simulator
from deep_gemm._extension import C
from deep_gemm.utils import per_block_cast_to_fp8, per_token_cast_to_fp8

OWN = ["sm_120a", "sm_121a"]
BYTES = "kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.{}.{}.f32.ue8m0"
BLOCKS = BYTES.format("e4m3", "e4m3")
M, N, K = 259, 287, 656  # K ends inside a block of 128 as of 256, and inside a word of scales for 32 and 128 of K


def products(text: str, target: str) -> set[str]:
    ptx = bytes(C.jit_compile("sm120_products", text, target, "ptx")).decode()
    return set(re.findall(r"mma\.sync\.aligned\.([\w.:]+)", ptx))


@pytest.mark.parametrize("target", [*OWN, "sm_120"])
def test_the_instruction(target: str) -> None:
    device = torch.device("cpu")
    with jit.record(target) as recorded:
        a, b = random_rows((64, 512), device, 1), random_blocks((128, 512), device, 2)
        deep_gemm.fp8_gemm_nt(a, b, torch.empty(64, 128, dtype=torch.bfloat16))
    (kernel,) = [kernel for kernel in recorded.kernels if "mma" in kernel.text or "gemm" in kernel.name]
    wanted = BLOCKS if target in OWN else "m16n8k32.row.col.f32.e4m3.e4m3.f32"
    assert products(kernel.text, target) == {wanted}


def on(target: str, draw: int) -> list[torch.Tensor]:
    """A dense product, masked experts, index logits."""
    device = torch.device("cpu")
    with simulator.options(target=target):
        a, b = random_rows((33, 384), device, draw), random_blocks((136, 384), device, draw + 1)
        dense = torch.empty(33, 136)
        deep_gemm.fp8_gemm_nt(a, b, dense)
        a, b = random_rows((2, 40, 256), device, draw + 2), random_blocks((2, 72, 256), device, draw + 3)
        masked = torch.zeros(2, 40, 72)
        deep_gemm.m_grouped_fp8_gemm_nt_masked(a, b, masked, torch.tensor([40, 7], dtype=torch.int32), 24)
        masked[1, 7:] = 0
        q, k = torch.randn(5, 16, 64).to(torch.float8_e4m3fn), torch.randn(70, 64).to(torch.float8_e4m3fn)
        starts, ends = torch.zeros(5, dtype=torch.int32), torch.arange(66, 71, dtype=torch.int32)
        logits = deep_gemm.fp8_mqa_logits(q, (k, torch.rand(70)), torch.randn(5, 16), starts, ends)
    return [dense, masked, logits]


@pytest.mark.parametrize("target", OWN)
def test_the_same_bits(target: str) -> None:
    torch.manual_seed(3)
    found = on(target, 3)
    torch.manual_seed(3)
    for mine, plain in zip(found, on("sm_120", 3), strict=True):
        assert torch.equal(mine, plain)
        assert mine.abs().max() > 0


@dataclass(frozen=True)
class Kind:
    """Elements and scales of both operands, how calls are told, and the instruction, of operands not swapped."""

    a: str
    scaling_a: Scaling
    b: str
    scaling_b: Scaling
    fields: dict[str, int]
    instruction: str


EXPONENTS_32, EXPONENTS_128 = Scaling("ue8m0", 1, 32), Scaling("ue8m0", 1, 128)
E4M3_16 = Scaling("e4m3", 1, 16)
OF_128, OF_32 = {"exponent_scales": 1}, {"exponent_scales": 1, "gran_k_a": 32, "gran_k_b": 32}
KINDS = {
    "fp8-128": Kind("e4m3", EXPONENTS_128, "e4m3", EXPONENTS_128, OF_128, BLOCKS),
    "fp8-32": Kind("e4m3", EXPONENTS_32, "e4m3", EXPONENTS_32, OF_32, BLOCKS),
    "fp8-mxfp4": Kind(
        "e4m3", EXPONENTS_128, "e2m1r", EXPONENTS_32, {"exponent_scales": 1, "e2m1r": 1}, BYTES.format("e4m3", "e2m1")
    ),
    "mxfp4-fp8": Kind(
        "e2m1r",
        EXPONENTS_32,
        "e4m3",
        EXPONENTS_128,
        {"exponent_scales": 1, "fp4_a": 1, "gran_k_a": 32},
        BYTES.format("e2m1", "e4m3"),
    ),
    "mxfp4": Kind(
        "e2m1r",
        EXPONENTS_32,
        "e2m1r",
        EXPONENTS_32,
        {"fp4": 1, "gran_k_a": 32, "gran_k_b": 32},
        "kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0",
    ),
    "nvfp4": Kind(
        "e2m1r",
        E4M3_16,
        "e2m1r",
        E4M3_16,
        {"fp4": 1, "gran_k_a": 16, "gran_k_b": 16},
        "kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3",
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_enter_the_instruction(kind) -> None:
    """Nothing is promoted: sums are of the tensor cores alone."""
    sizes = {"m": 256, "n": 256, "k": 1024, "num_sms": 48, "swap_ab": 0, "tile_rows": 128, "tile_cols": 64}
    kernel = kernel_of("dense", {**sizes, **KINDS[kind].fields}, "sm_121a")
    assert products(str(kernel["text"]), "sm_121a") == {KINDS[kind].instruction}


def operand(
    element: str, scaling: Scaling, rows: int, seed: int, k: int = K
) -> tuple[Quantised, tuple[torch.Tensor, torch.Tensor]]:
    """And as a call takes it, scales in words."""
    found = quantised(element, scaling, rows, k, torch.Generator().manual_seed(seed))
    form = Form("e4m3 words" if scaling.element == "e4m3" else "words", "mn_major")
    assert found.scales is not None
    data = packed(found.data) if element == "e2m1r" else found.data
    return found, (data, laid_out(written(found.scales, form), form))


def tiles() -> list:
    sets = []
    for name, kind in KINDS.items():
        found = parse(explain("dense", {"m": M, "n": N, "k": K, "num_sms": 3, **kind.fields}, "sm_120a"))
        for number, tile in enumerate(filter(can_serve, found)):
            (device,) = on_simulator(SCHEDULES[number % len(SCHEDULES)], arch="sm120")
            frame = "swapped" if tile.swapped else "straight"
            where = f"{name}-{frame}-{tile.rows}x{tile.cols}x{tile.k_warpgroups}"
            sets.append(pytest.param(device.values[0], tile, kind, id=where))
    return sets


def check(device: torch.device, kind: Kind, m: int, n: int, k: int) -> torch.Tensor:
    """A product, compared with FP64."""
    (a, given_a), (b, given_b) = operand(kind.a, kind.scaling_a, m, 1, k), operand(kind.b, kind.scaling_b, n, 2, k)
    d = GuardedOutput((m, n), torch.float32, device)
    told = {"recipe_a": (1, kind.scaling_a.k), "recipe_b": (1, kind.scaling_b.k)}
    if "fp4" in kind.fields:
        told = {"recipe": (1, 1, kind.scaling_a.k)}
    name = "fp4" if "fp4" in kind.fields else "fp8_fp4" if "e2m1r" in (kind.a, kind.b) else "fp8"
    getattr(deep_gemm, f"{name}_gemm_nt")(given_a, given_b, d.tensor, **told)
    d.check()
    assert (d.tensor - a.exact @ b.exact.T).abs().le(1e-6 * (a.exact.abs() @ b.exact.abs().T)).all()
    return d.tensor


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("device", "tile", "kind"), tiles(), indirect=["device"])
def test_every_tile_is_right(device, tile: Candidate, kind: Kind) -> None:
    with simulator.options(num_sms=3), forced(device, M, N, K, tile):
        check(device, kind, M, N, K)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [1, 2, 7, 13, 16])
@pytest.mark.parametrize("device", on_simulator(*SCHEDULES, arch="sm120"), indirect=True)
def test_few_tokens(device, m, kind) -> None:
    """By the tile that they get: K ends inside a stage, of warps that divide it some have none of the last."""
    with simulator.options(num_sms=170):
        check(device, KINDS[kind], m, 139, 1360)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [16, 259])
@pytest.mark.parametrize("device", on_simulator(*SCHEDULES, arch="sm120"), indirect=True)
def test_both_ways_to_copy(device, m, kind) -> None:
    """The copy engine and threads bring the same; FP4 beside FP8 comes by the engine where K is whole boxes of it."""
    sums = []
    for by_threads in (0, 1):
        with simulator.options(num_sms=3), settings(device, threads_copy=by_threads):
            sums.append(check(device, KINDS[kind], m, 139, 640))
    assert torch.equal(*sums)


@pytest.mark.parametrize(
    ("kind", "k", "boxes"), [("fp8-mxfp4", 640, True), ("fp8-mxfp4", 656, False), ("fp8-32", 656, True)]
)
def test_who_copies(kind, k, boxes) -> None:
    sizes = {"m": 259, "n": 139, "k": k, "num_sms": 170, **KINDS[kind].fields}
    assert ("copy_engine = true" in str(kernel_of("dense", sizes, "sm_120a")["text"])) == boxes


def pick(kind: str, sms: int, m: int, n: int, k: int, **more: int) -> Candidate:
    fields = {"m": m, "n": n, "k": k, "num_sms": sms, **KINDS[kind].fields, **more}
    return parse(explain("dense", fields, "sm_121a" if sms == 48 else "sm_120a"))[0]


@pytest.mark.parametrize("sms", [48, 170, 188])
def test_few_tokens_have_all_sms_read_weights(sms) -> None:
    """Or 128 of them, with 16 weights and more under way each."""
    problems = product(("fp8-32", "fp8-mxfp4", "mxfp4", "nvfp4"), (1, 16), (2048, 4096, 7168), (2048, 16384))
    ctas = [pick(kind, sms, m, n, k).ctas for kind, m, n, k in problems]
    assert min(ctas) >= min(sms, 128)
    assert sum(count >= sms for count in ctas) >= 0.8 * len(ctas)


@pytest.mark.parametrize("kind", ["fp8-32", "nvfp4"])
def test_few_tokens_whose_k_nothing_may_divide(kind) -> None:
    for m, n in product((1, 16), (2048, 4096, 7168)):
        tile = pick(kind, 170, m, n, 7168, batch_invariant=1)
        assert tile.k_warpgroups == 1
        assert tile.ctas >= min(170, n // 16), (m, n, tile)


@pytest.mark.parametrize("exponents", [True, False])
def test_scales_that_layouts_made(exponents) -> None:
    """As vLLM and SGLang call it: scales brought into their layout become words of exponents; or, where they say so,
    stay FP32 of any value."""
    generator = torch.Generator().manual_seed(4)
    a, b = torch.randn(40, 384, generator=generator), torch.randn(136, 384, generator=generator)
    (a, of_a), (b, of_b) = per_token_cast_to_fp8(a, exponents), per_block_cast_to_fp8(b, exponents)
    exact_a = a.double() * of_a.double().repeat_interleave(128, 1)
    exact_b = b.double() * of_b.double().repeat_interleave(128, 0)[:136].repeat_interleave(128, 1)
    d = torch.empty(40, 136)
    with simulator.options(target="sm_120a"):
        laid_a, laid_b = (
            deep_gemm.transform_sf_into_required_layout(
                scales, rows, 384, (1, 128, 128), is_sfa=is_a, disable_ue8m0_cast=not exponents
            )
            for scales, rows, is_a in ((of_a, 40, True), (of_b, 136, False))
        )
        deep_gemm.fp8_gemm_nt((a, laid_a), (b, laid_b), d, disable_ue8m0_cast=not exponents)
        if not exponents:
            with pytest.raises(ValueError, match="must be powers of two"):
                deep_gemm.transform_sf_into_required_layout(of_a, 40, 384, (1, 128, 128), is_sfa=True)
    assert laid_a.dtype == laid_b.dtype == (torch.int32 if exponents else torch.float32)
    assert (d - exact_a @ exact_b.T).abs().le(1e-6 * (exact_a.abs() @ exact_b.abs().T)).all()
