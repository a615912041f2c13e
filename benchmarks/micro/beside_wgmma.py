"""What ordinary instructions cost beside wgmma (m64n128, without a pause), and wgmma beside them.

python benchmarks/micro/beside_wgmma.py --out results
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from harness import Bench, constants, kernel_file, timed_launch

KINDS = ("none", "FFMA", "FFMA, two scales in turn", "FFMA, a constant", "FMUL", "XOR")
INSTRUCTIONS = 48  # of a round
CTAS = 16  # few: power shall not bind


@dataclass(frozen=True)
class Variant:
    kind: int  # of KINDS
    rounds: int = 3000


def source(v: Variant) -> str:
    return constants(kKind=v.kind) + kernel_file("beside_wgmma.cu")


def measure(v: Variant, device: torch.device) -> dict:
    def cycles(blocks: int, rounds: int) -> list[float]:
        found = [torch.zeros(CTAS, dtype=torch.int64, device=device) for _ in range(2)]
        tensors = [*found, torch.zeros(1, device=device)]
        timed_launch("beside_wgmma", source(v), CTAS, 256, 1, tensors, [blocks, rounds])
        return [each.double().median().item() for each in found]

    loop = v.rounds if v.kind else 0
    return {
        "alone": cycles(0, loop)[1] / max(1, loop) / INSTRUCTIONS,
        # What is measured ends long before the other does.
        "beside": cycles(3 * v.rounds, loop)[1] / max(1, loop) / INSTRUCTIONS,
        "wgmma_cycles": cycles(v.rounds // 8, loop * 2)[0] / (v.rounds // 8),
    }


VARIANTS = [Variant(kind) for kind in range(len(KINDS))]


def show(row: dict) -> str:
    return (
        f"{KINDS[row['kind']]:26} {row['alone']:5.2f} cycles alone, {row['beside']:5.2f} beside wgmma; "
        f"a K block of m64n128 {row['wgmma_cycles']:5.0f} cycles"
    )


if __name__ == "__main__":
    about = __doc__.splitlines()[0]
    bench = Bench("beside_wgmma", about, VARIANTS, source, measure, show, lambda v: replace(v, rounds=16))
    raise SystemExit(bench.main())
