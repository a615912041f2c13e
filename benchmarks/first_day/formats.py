"""Times a dense product of every format that the GPU multiplies, beside each other, from few tokens to many; on RTX 50
and its like both ways to copy operands, in turn: by the copy engine, as selection has it, and by threads.

    python benchmarks/first_day/formats.py --out results      # results/formats.json

Random codes and scales: whether results are right is what the tests say.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from machine import describe
from timing import Timer

import deep_gemm
from deep_gemm._extension import C

WEIGHTS = [(4096, 7168), (7168, 16384)]
TOKENS = [1, 16, 64, 256, 4096]
SMALL_WEIGHTS, SMALL_TOKENS = [(256, 512)], [16]


@dataclass
class Sizes:
    m: int
    n: int
    k: int
    device: torch.device

    def codes(self, *shape: int) -> torch.Tensor:
        return torch.randint(-128, 128, shape, dtype=torch.int8, device=self.device)

    def fp8(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, device=self.device).to(torch.float8_e4m3fn)

    def powers(self, *shape: int) -> torch.Tensor:
        return torch.exp2(torch.randint(-6, 1, shape, device=self.device).float())

    def words(self, rows: int, group: int) -> torch.Tensor:
        """Scales of powers of two as kernels read them."""
        return deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(self.powers(rows, -(-self.k // group)))

    def fp32(self, rows: int) -> torch.Tensor:
        return deep_gemm.get_mn_major_tma_aligned_tensor(torch.rand(rows, self.k // 128, device=self.device) + 0.5)

    @property
    def d(self) -> torch.Tensor:
        return torch.empty((self.m, self.n), dtype=torch.bfloat16, device=self.device)


Call = Callable[[], None]


def sixteen_bits(s: Sizes, dtype: torch.dtype) -> Call:
    a, b = (torch.randn((rows, s.k), device=s.device).to(dtype) for rows in (s.m, s.n))
    return partial(deep_gemm.bf16_gemm_nt, a, b, s.d.to(dtype))


def fp8_exponents(s: Sizes, group: int) -> Call:
    a, b = ((s.fp8(rows, s.k), s.words(rows, group)) for rows in (s.m, s.n))
    return partial(deep_gemm.fp8_gemm_nt, a, b, s.d, recipe=(1, 1, group))


def fp8_fp32_scales(s: Sizes) -> Call:
    b = s.fp8(s.n, s.k), torch.rand(-(-s.n // 128), s.k // 128, device=s.device) + 0.5
    return partial(deep_gemm.fp8_gemm_nt, (s.fp8(s.m, s.k), s.fp32(s.m)), b, s.d, disable_ue8m0_cast=True)


def fp8_fp4(s: Sizes) -> Call:
    a, b = (s.fp8(s.m, s.k), s.words(s.m, 128)), (s.codes(s.n, s.k // 2), s.words(s.n, 32))
    return partial(deep_gemm.fp8_fp4_gemm_nt, a, b, s.d, recipe_a=(1, 128), recipe_b=(1, 32))


def fp4(s: Sizes, group: int) -> Call:
    def scales(rows: int) -> torch.Tensor:
        if group == 32:
            return s.words(rows, 32)
        return (torch.rand(rows, s.k // 16, device=s.device) + 0.5).to(torch.float8_e4m3fn)

    a, b = ((s.codes(rows, s.k // 2), scales(rows)) for rows in (s.m, s.n))
    return partial(deep_gemm.fp4_gemm_nt, a, b, s.d)


def int8(s: Sizes) -> Call:
    a, b = ((s.codes(rows, s.k), torch.rand(rows, device=s.device)) for rows in (s.m, s.n))
    return partial(deep_gemm.int8_gemm_nt, a, b, s.d)


def int4_weights(s: Sizes, activations: str, group: int | None) -> Call:
    values = torch.randint(-7, 8, (s.n, s.k), dtype=torch.int8, device=s.device)
    scales = torch.rand((s.n, s.k // group) if group else (s.n,), device=s.device)
    w = deep_gemm.pack_weights(values, scales, element="int4", activations=activations, group_size=group)
    if activations == "bf16":
        a = torch.randn((s.m, s.k), device=s.device).bfloat16()
        return partial(deep_gemm.bf16_int4_gemm_nt, a, w, s.d)
    tokens = torch.rand(s.m, device=s.device)
    if activations == "fp8":
        return partial(deep_gemm.fp8_int4_gemm_nt, (s.fp8(s.m, s.k), tokens), w, s.d)
    return partial(deep_gemm.int8_int4_gemm_nt, (s.codes(s.m, s.k), tokens), w, s.d)


def torch_bf16(s: Sizes) -> Call:
    a, b = (torch.randn((rows, s.k), device=s.device).bfloat16() for rows in (s.m, s.n))
    return partial(torch.matmul, a, b.T, out=s.d)


FORMATS: dict[str, Callable[[Sizes], Call]] = {
    "BF16": partial(sixteen_bits, dtype=torch.bfloat16),
    "BF16, torch.matmul": torch_bf16,
    "FP16": partial(sixteen_bits, dtype=torch.float16),
    "FP8, UE8M0 per 128": partial(fp8_exponents, group=128),
    "FP8, UE8M0 per 32": partial(fp8_exponents, group=32),
    "FP8, FP32 scales": fp8_fp32_scales,
    "FP8 x FP4": fp8_fp4,
    "MXFP4": partial(fp4, group=32),
    "NVFP4": partial(fp4, group=16),
    "INT8": int8,
    "FP8 x INT4, groups of 128": partial(int4_weights, activations="fp8", group=128),
    "INT8 x INT4": partial(int4_weights, activations="int8", group=None),
    "BF16 x INT4, groups of 128": partial(int4_weights, activations="bf16", group=128),
}


# Which the copy engine brings on sm_120 and sm_121.
BY_ENGINE = (
    "BF16",
    "FP16",
    "FP8, UE8M0 per 128",
    "FP8, UE8M0 per 32",
    "FP8, FP32 scales",
    "FP8 x FP4",
    "MXFP4",
    "NVFP4",
)
BY_THREADS = ", copied by threads"


def names_of(device: torch.device) -> list[str]:
    """The formats, each way to copy by itself."""
    if not deep_gemm.get_target(device).startswith("sm_12"):
        return list(FORMATS)
    return [each for name in FORMATS for each in ([name, name + BY_THREADS] if name in BY_ENGINE else [name])]


def copied(call: Call, device: torch.device, by_threads: bool) -> None:
    where = device.type == "cpu", device.index or 0
    C.set_call_setting(*where, "threads_copy", int(by_threads))
    try:
        call()
    finally:
        C.set_call_setting(*where, "threads_copy", 0)


def measure(sizes: Sizes, timer: Timer) -> dict[str, float | str]:
    """Microseconds of each format, or why there are none."""
    found: dict[str, float | str] = {}
    names = names_of(sizes.device)
    for name, build in FORMATS.items():
        of_both = [each for each in names if each in (name, name + BY_THREADS)]
        try:
            call = build(sizes)
            call()
            calls = [partial(copied, call, sizes.device, each != name) for each in of_both] if of_both[1:] else [call]
            calls[-1]()  # compiles
            for each, timing in zip(of_both, timer.time(*calls), strict=True):
                found[each] = round(timing.median * 1e6, 2)
        except Exception as error:
            found |= dict.fromkeys(of_both, f"{type(error).__name__}: {str(error).splitlines()[0][:200]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=800, help="sizes behind that are not measured, and said so")
    parser.add_argument("--commit")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    small = device.type == "cpu"
    timer = Timer(device, 0 if small else 4_000_000_000, 1 if small else 10)
    document: dict = {"what": "formats", "machine": describe(arguments.commit), "rows": []}
    begin = time.monotonic()
    for n, k in SMALL_WEIGHTS if small else WEIGHTS:
        for m in SMALL_TOKENS if small else TOKENS:
            late = time.monotonic() - begin > arguments.seconds
            times = {name: "not measured: out of time" for name in names_of(device)}
            row = {"m": m, "n": n, "k": k, "us": times if late else measure(Sizes(m, n, k, device), timer)}
            document["rows"].append(row | {"method": timer.method})
            print(json.dumps(document["rows"][-1]), flush=True)
            arguments.out.mkdir(parents=True, exist_ok=True)
            (arguments.out / "formats.json").write_text(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
