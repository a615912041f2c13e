"""What is compared between the simulator and a GPU, and how it is written down (tests/data/h200_agreement.jsonl)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import torch
from candidates import Candidate, candidates
from inputs import Operand, random_blocks, random_rows
from reference import Product, difference

import deep_gemm
from deep_gemm._targets import HOPPER_SMS

PROBLEMS = [(1, 136, 272), (33, 100, 400), (64, 256, 512), (129, 264, 640), (200, 512, 1024), (256, 384, 784)]
CONFIGS_OF_EACH = 5
SEEDS = (0, 1)

# What a comparison should have met; each kind comes up once for every problem that allows it.
KINDS: dict[str, Callable[[Candidate], bool]] = {
    "straight": lambda config: not config.swapped,
    "swapped": lambda config: config.swapped,
    "split K": lambda config: config.cluster_shape[2] > 1,
    "multicast along columns": lambda config: config.cluster_shape[1] > 1,
    "multicast along rows": lambda config: config.cluster_shape[0] > 1,
    "256 rows": lambda config: config.rows == 256,
    "64 rows": lambda config: config.rows == 64,
    "most columns": lambda config: config.cols >= 128,
}


def operands(m: int, n: int, k: int) -> tuple[Operand, Operand]:
    return random_rows((m, k), "cpu", SEEDS[0]), random_blocks((n, k), "cpu", SEEDS[1])


def configs(m: int, n: int, k: int) -> list[Candidate]:
    """Some that are legal: the first of each kind, and others at even distances."""
    legal = [candidate for candidate in candidates(m, n, k, HOPPER_SMS) if candidate.rejection is None]
    places = set(range(0, len(legal), max(1, len(legal) // CONFIGS_OF_EACH)))
    for is_of_kind in KINDS.values():
        places.update([place for place, candidate in enumerate(legal) if is_of_kind(candidate)][:1])
    return [legal[place] for place in sorted(places)]


def multiply(a: Operand, b: Operand, device: torch.device) -> torch.Tensor:
    a, b = (Operand(operand.data.to(device), operand.scales.to(device)) for operand in (a, b))
    d = torch.full((a.data.shape[0], b.data.shape[0]), float("nan"), dtype=torch.bfloat16, device=device)
    deep_gemm.fp8_gemm_nt(a, b, d)
    return d.cpu()


def digest(*tensors: torch.Tensor) -> str:
    """SHA-256 of the bytes of all."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def simulated_part(a: Operand, b: Operand, simulated: torch.Tensor, expected: Product) -> dict:
    """What a machine without a GPU can find out again."""
    return {
        "inputs_sha256": digest(*a, *b),
        "simulator_sha256": digest(simulated),
        "simulator_error": difference(simulated, expected).largest,
    }


def config_part(m: int, n: int, k: int, config: Candidate) -> dict:
    frame = "swapped" if config.swapped else "straight"
    return {"m": m, "n": n, "k": k, "frame": frame, "tile": [config.rows, config.cols], "cluster": config.cluster_shape}


def read(path: Path) -> tuple[list[dict], list[dict]]:
    """Headers, which say what was compared on which card, and the pairs of problem and config."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if "gpu" in line], [line for line in lines if "m" in line]


def config_of(pair: dict) -> Candidate:
    """The config of a recorded pair, as far as it takes to force it: stages and cost may have changed since."""
    (rows, cols), swapped = pair["tile"], pair["frame"] == "swapped"
    unknown = dict.fromkeys(("threads", "stages", "smem", "ctas", "strip"), 0)
    return Candidate(swapped, rows, cols, tuple(pair["cluster"]), k_warpgroups=1, cost=None, rejection=None, **unknown)
