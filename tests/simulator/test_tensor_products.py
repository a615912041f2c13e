"""tcgen05.mma against products in FP64: every kind and type, heights, widths, layouts of operands, pairs of blocks."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import pytest
import torch
from ptx_tools import SCHEDULES, compile_cuda
from test_wgmma import place

from deep_gemm import simulator

TARGET = "sm_100a"
STEP_BYTES = 32
IMAGE_BYTES, SCALE_BYTES = 32768, 1024
TYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "tf32": torch.float32,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "s8": torch.int8,
    "u8": torch.uint8,
}
CODES = {  # of the types, in an instruction descriptor
    "f16": {"f16": 0, "bf16": 1},
    "tf32": {"tf32": 2},
    "i8": {"u8": 0, "s8": 1},
    "f8f6f4": {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5},
    "mxf4": {"e2m1": 1},
}
CODES["mxf8f6f4"], CODES["nvf4"] = CODES["f8f6f4"], CODES["mxf4"]
SUMS = {"f16": 0, "f32": 1, "s32": 2}
SWIZZLES = {0: 0, 128: 2, 64: 4, 32: 6}
SMALL = {"e2m1": (2, 1, 1), "e2m3": (2, 3, 1), "e3m2": (3, 2, 3)}  # bits of exponent and mantissa, bias
BLOCK = {"mxf8f6f4": 32, "mxf4": 32, "nvf4": 16}  # of K that share a scale
SMEM_BYTES = 2 * IMAGE_BYTES + 2 * SCALE_BYTES + 64


@dataclass(frozen=True)
class Case:
    kind: str
    a: str
    b: str
    m: int = 128
    n: int = 64
    ctas: int = 1
    d: str = "f32"
    major_a: int = 0  # 1: MN-major
    major_b: int = 0
    span_a: int = 128
    span_b: int = 128
    scale_ids: tuple[int, int] = (0, 0)
    negate: tuple[int, int] = (0, 0)
    rounds: int = 1
    a_in_tensor: bool = False
    disabled: tuple[int, ...] = (0, 0, 0, 0)  # lanes of D that products behind the first do not write, a bit each

    def __str__(self) -> str:
        extra = f"-majors{self.major_a}{self.major_b}-spans{self.span_a},{self.span_b}-ids{self.scale_ids}"
        tensor = "-A in tensor memory" if self.a_in_tensor else ""
        return f"{self.kind}-{self.a}-{self.b}-{self.m}x{self.n}-ctas{self.ctas}-{self.d}{extra}{tensor}"

    @property
    def scaled(self) -> bool:
        return self.kind in BLOCK

    @property
    def packed(self) -> bool:
        """Whether 4-bit elements stand two a byte; else each has a byte of its own, or a gap follows 16 of them."""
        return self.kind in ("mxf4", "nvf4")

    @property
    def k(self) -> int:
        return 64 if self.packed else STEP_BYTES // (TYPES[self.a].itemsize if self.a in TYPES else 1)

    def descriptor(self) -> int:
        codes = CODES[self.kind]
        value = codes[self.a] << 7 | codes[self.b] << 10 | self.negate[0] << 13 | self.negate[1] << 14
        value |= self.major_a << 15 | self.major_b << 16 | self.n >> 3 << 17 | self.m >> 4 << 24
        if not self.scaled:
            return value | SUMS[self.d] << 4
        exponents = self.kind != "nvf4"
        return value | self.scale_ids[1] << 4 | exponents << 23 | self.scale_ids[0] << 29


def small_values(kind: str) -> torch.Tensor:
    """What each code of a 4- or 6-bit type stands for."""
    exponent_bits, mantissa_bits, bias = SMALL[kind]
    code = torch.arange(1 << (1 + exponent_bits + mantissa_bits))
    mantissa = code & ((1 << mantissa_bits) - 1)
    exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1)
    normal = (1 + mantissa / 2**mantissa_bits) * torch.exp2(exponent.double() - bias)
    value = torch.where(exponent > 0, normal, mantissa / 2**mantissa_bits * 2.0 ** (1 - bias))
    return torch.where(code >> (exponent_bits + mantissa_bits) == 1, -value, value).double()


def six_bit_chunks(codes: torch.Tensor) -> torch.Tensor:
    """[rows, 32] 6-bit codes: 16 of them in the first 12 of each 16 bytes, lowest bits first."""
    quads = codes.view(codes.shape[0], 2, 4, 4).long()
    words = (quads << torch.tensor([0, 6, 12, 18])).sum(-1)
    chunks = torch.stack([words & 255, words >> 8 & 255, words >> 16], -1).to(torch.uint8)
    return torch.nn.functional.pad(chunks.reshape(codes.shape[0], 2, 12), (0, 4)).reshape(-1, STEP_BYTES)


def random_operand(case: Case, kind: str, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The matrix as it is stored, and its values in FP64; all sums of products are exact in FP32."""
    if kind in SMALL:
        values = small_values(kind)
        codes = torch.randint(0, len(values), (rows, case.k)).to(torch.uint8)
        pairs = codes.view(rows, -1, 2)
        nibbles = pairs[..., 0] | pairs[..., 1] << 4
        if case.packed:
            stored = nibbles
        elif kind == "e2m1":
            stored = torch.nn.functional.pad(nibbles.view(rows, 2, 8), (0, 8)).reshape(rows, STEP_BYTES)
        else:
            stored = six_bit_chunks(codes)
        return stored, values[codes.long()]
    if kind in ("s8", "u8"):
        limits = torch.iinfo(TYPES[kind])
        stored = torch.randint(limits.min, limits.max + 1, (rows, case.k), dtype=torch.int32).to(TYPES[kind])
    else:
        stored = torch.randint(-8, 9, (rows, case.k)).float().div(4).to(TYPES[kind])
    return stored, stored.double()


def image(stored: torch.Tensor, span: int, major: int) -> tuple[torch.Tensor, int]:
    """An operand in shared memory, and its descriptor without the address."""
    data, leading, stride = place(stored if major else stored.contiguous().view(torch.uint8), span, bool(major))
    return data, leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | SWIZZLES[span] << 61


def random_scales(case: Case, rows: int, scale_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales [256, 4] as bytes, of which the other ids are wrong ones; what they stand for, spread along K."""
    blocks = case.k // BLOCK[case.kind]
    if case.kind == "nvf4":
        chosen = torch.tensor([0.5, 1.0, 1.5, 2.0])[torch.randint(0, 4, (256, 4))].to(torch.float8_e4m3fn)
        stored, values = chosen.view(torch.uint8), chosen.double()
    else:
        stored = torch.randint(125, 130, (256, 4), dtype=torch.uint8)
        values = torch.exp2(stored.double() - 127)
    return stored, values[:rows, (scale_id + torch.arange(blocks)) % 4].repeat_interleave(BLOCK[case.kind], 1)


def atoms(stored: torch.Tensor) -> torch.Tensor:
    """[256, 4] bytes as two atoms of 128 rows: row r at 16 (r % 32) + 4 (r / 32)."""
    return stored.view(2, 4, 32, 4).transpose(1, 2).reshape(-1)


def gather_d(case: Case, out: torch.Tensor) -> torch.Tensor:
    """D from the lanes and columns where the manual's figures have it; `out` is [CTA, lane, column]."""
    if case.d == "f16":
        values = out.view(torch.float16)[..., ::2].double()
    else:
        values = (out if case.d == "s32" else out.view(torch.float32)).double()
    half = case.n // 2
    if case.ctas == 2 and case.m == 256:
        return values[:, :, : case.n].reshape(256, case.n)
    if case.ctas == 2:
        return torch.cat([values[:, :64, :half], values[:, 64:, :half]], 2).reshape(128, case.n)
    if case.m == 64:
        return values[0].view(4, 32, 256)[:, :16, : case.n].reshape(64, case.n)
    return values[0, :, : case.n]


def a_rows(case: Case, stored: torch.Tensor) -> torch.Tensor:
    """A for tensor memory: 32 bytes a lane, in the lanes where D has these rows."""
    raw = stored.contiguous().view(torch.uint8)
    if case.m == 64:
        raw = torch.nn.functional.pad(raw.view(4, 16, STEP_BYTES), (0, 0, 0, 16)).reshape(128, STEP_BYTES)
    return raw.reshape(-1)


def run(
    case: Case, schedule: str = "eager", seed: int = 0, rules: str = "manual", **handed_over: int
) -> tuple[set[str], bool]:
    """What hazards there were, and whether the product is right. `handed_over`: see tensor_product.cu."""
    torch.manual_seed(case.n)
    a, a_values = random_operand(case, case.a, case.m)
    b, b_values = random_operand(case, case.b, case.n)
    sign = -1 if case.negate[0] != case.negate[1] else 1
    scales_a = scales_b = torch.zeros(256, 4, dtype=torch.uint8)
    expected_a, expected_b = a_values, b_values
    if case.scaled:
        scales_a, spread_a = random_scales(case, case.m, case.scale_ids[0])
        scales_b, spread_b = random_scales(case, case.n, case.scale_ids[1])
        expected_a, expected_b = a_values * spread_a, b_values * spread_b
    parts_a = [image(part, case.span_a, case.major_a) for part in a.chunk(case.ctas)]
    parts_b = [image(part, case.span_b, case.major_b) for part in b.chunk(case.ctas)]
    given_a = a_rows(case, a) if case.a_in_tensor else torch.cat([data for data, _ in parts_a])
    given_a = torch.nn.functional.pad(given_a, (0, case.ctas * IMAGE_BYTES - given_a.numel()))
    rows_of_cta = [scales_a[128 * i :] if case.ctas == 2 else scales_a for i in range(case.ctas)]
    tensors = [
        given_a,
        torch.cat([data for data, _ in parts_b]),
        torch.cat([atoms(torch.nn.functional.pad(rows, (0, 0, 0, 256 - len(rows)))) for rows in rows_of_cta]),
        atoms(scales_b).repeat(case.ctas),
    ]
    out = torch.zeros(case.ctas, 128, 256, dtype=torch.int32)
    columns = case.n // 2 if case.ctas == 2 and case.m == 128 else case.n
    params = struct.pack("5Q", *(t.data_ptr() for t in (*tensors, out)))
    used_lanes = 16 if case.m == 64 else 32
    numbers = (parts_a[0][1], parts_b[0][1], case.descriptor(), columns, used_lanes, case.rounds)
    params += struct.pack("QQIiii", *numbers)
    macros = (
        {"A_IN_TENSOR": f'"{case.kind}"', "DISABLED": ", ".join(map(str, case.disabled))} if case.a_in_tensor else {}
    )
    text = compile_cuda(
        "tensor_product.cu",
        TARGET,
        CTAS=case.ctas,
        MULTIPLY=f"tensor_mma_{case.kind}",
        SCALED=int(case.scaled),
        **{"HANDED_OVER": 0, "FENCE_BEFORE": 1, "WAITS": 1, "FENCE_AFTER": 1, **handed_over},
        **macros,
    )
    report = simulator.run(
        text,
        grid=[case.ctas],
        block=[128],
        cluster=[case.ctas],
        smem_bytes=SMEM_BYTES,
        params=params,
        tensors=[out],
        inputs=tensors,
        schedule=schedule,
        seed=seed,
        rules=rules,
        hazards="report",
    )
    product = sign * (expected_a @ expected_b.T)
    written = torch.tensor([not case.disabled[lane // 32] >> lane % 32 & 1 for lane in range(128)])
    added = product * written[:, None] if any(case.disabled) else product
    right = torch.equal(gather_d(case, out), product + (case.rounds - 1) * added)
    return {hazard.message for hazard in report.hazards}, right


RIGHT = (set(), True)


FLOAT_8 = ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"]
CASES = [
    # types
    *[Case("f16", kind, kind, d=d) for kind, d in (("f16", "f16"), ("f16", "f32"), ("bf16", "f32"))],
    Case("tf32", "tf32", "tf32"),
    *[Case("i8", a, b, d="s32") for a in ("s8", "u8") for b in ("s8", "u8")],
    *[Case("f8f6f4", a, "e4m3") for a in FLOAT_8],
    *[Case("f8f6f4", "e5m2", b) for b in FLOAT_8],
    Case("f8f6f4", "e4m3", "e4m3", d="f16"),
    *[Case("mxf8f6f4", a, "e4m3") for a in FLOAT_8],
    *[Case("mxf8f6f4", "e4m3", b) for b in FLOAT_8],
    Case("mxf4", "e2m1", "e2m1"),
    Case("nvf4", "e2m1", "e2m1"),
    # heights and widths
    *[Case("f16", "bf16", "bf16", m=64, n=n) for n in (8, 24, 256)],
    *[Case("f16", "bf16", "bf16", n=n) for n in (8, 24, 48, 256)],
    *[Case("f16", "bf16", "bf16", m=m, n=n, ctas=2) for m in (128, 256) for n in (16, 48, 256)],
    *[Case("mxf8f6f4", "e4m3", "e4m3", n=n) for n in (8, 136, 256)],
    *[Case("mxf8f6f4", "e4m3", "e4m3", m=256, n=n, ctas=2) for n in (16, 144, 256)],
    Case("mxf4", "e2m1", "e2m1", m=256, n=256, ctas=2),
    # layouts of operands
    *[Case("f8f6f4", "e4m3", "e4m3", span_a=span, span_b=span) for span in (0, 32, 64)],
    *[Case("f16", "f16", "f16", major_a=a, major_b=b) for a, b in ((1, 0), (0, 1), (1, 1))],
    *[Case("f8f6f4", "e4m3", "e4m3", major_a=a, major_b=b) for a, b in ((1, 0), (0, 1))],
    Case("f16", "f16", "f16", m=256, n=128, ctas=2, major_a=1, major_b=1),
    Case("f16", "bf16", "bf16", a_in_tensor=True),
    Case("f16", "bf16", "bf16", m=64, a_in_tensor=True),
    Case("f8f6f4", "e4m3", "e4m3", a_in_tensor=True),
    # scales
    *[Case("mxf8f6f4", "e4m3", "e4m3", scale_ids=ids) for ids in ((1, 0), (0, 2), (3, 1))],
    *[Case("mxf4", "e2m1", "e2m1", scale_ids=ids) for ids in ((2, 0), (0, 2))],
    # the rest
    *[Case("f16", "f16", "f16", negate=negate) for negate in ((1, 0), (0, 1), (1, 1))],
    Case("f8f6f4", "e4m3", "e4m3", rounds=3),
    Case("f16", "bf16", "bf16", a_in_tensor=True, rounds=2, disabled=(1, 0, 1 << 31, 0xFFFF0)),
]


@pytest.mark.sampled(36)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_product(case: Case) -> None:
    assert run(case) == RIGHT


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize("ctas", [1, 2])
def test_product_under_every_schedule(ctas: int, schedule: str, seed: int) -> None:
    assert run(Case("mxf8f6f4", "e4m3", "e4m3", m=128 * ctas, ctas=ctas, rounds=2), schedule, seed) == RIGHT


# Pairs that the tensor core executes in their order of issue (PTX ISA 9.7.16.6.2): what one thread issues, and then
# another. Nobody waits until the first is complete.
PIPELINES = {
    "copies, products": Case("mxf8f6f4", "e4m3", "e4m3"),
    "product, product": Case("f16", "bf16", "bf16", rounds=2),
}


@pytest.mark.sampled(16)
@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize("rules", ["manual", "hardware"])
@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize("pair", PIPELINES)
def test_a_pipeline_of_two_threads_needs_no_wait(pair: str, ctas: int, rules: str, schedule: str, seed: int) -> None:
    case = replace(PIPELINES[pair], m=128 * ctas, ctas=ctas)
    assert run(case, schedule, seed, rules, HANDED_OVER=1) == RIGHT


@pytest.mark.sampled(18)
@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize("missing", ["FENCE_BEFORE", "FENCE_AFTER", "WAITS"])
@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize("pair", PIPELINES)
def test_a_pipeline_of_two_threads_needs_its_order(
    pair: str, ctas: int, missing: str, schedule: str, seed: int
) -> None:
    case = replace(PIPELINES[pair], m=128 * ctas, ctas=ctas)
    said, _ = run(case, schedule, seed, **{"HANDED_OVER": 1, missing: 0})
    assert said
    passed, right = run(case, schedule, seed, "hardware", **{"HANDED_OVER": 1, missing: 0})
    assert bool(passed) == (missing == "WAITS")
    assert right or missing == "WAITS"


@pytest.mark.parametrize(
    ("case", "what"),
    [
        (Case("i8", "s8", "s8", d="s32", n=24), "has N = 24"),
        (Case("f16", "bf16", "bf16", m=256, n=40, ctas=2), "has N = 40"),
        (Case("f16", "bf16", "bf16", m=192), "has M = 192"),
        (Case("mxf8f6f4", "e4m3", "e4m3", m=64), "has M = 64"),
        (Case("f16", "bf16", "f16"), "mixes FP16 and BF16"),
        (Case("f16", "bf16", "bf16", d="f16"), "gives BF16 a D of FP16"),
        (Case("mxf4", "e2m1", "e2m1", scale_ids=(1, 0)), "scale ids 1 and 0"),
        (Case("nvf4", "e2m1", "e2m1", scale_ids=(2, 0)), "scale ids 2 and 0"),
    ],
    ids=str,
)
def test_what_the_manual_does_not_have_is_reported(case: Case, what: str) -> None:
    said, _ = run(case)
    assert any(what in text for text in said), said
