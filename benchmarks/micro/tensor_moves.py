"""How fast four warps read tensor memory, write it, and read and promote: cycles a column (SM100).

python benchmarks/micro/tensor_moves.py --out results
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from harness import Bench, clocks, constants, kernel_file, num_sms, timed_launch

from deep_gemm._targets import BLACKWELL_TARGET

ALL_COLUMNS = 512
READ = "ptx::load_tensor_memory(address, found); ptx::wait_tensor_loads();"
MOVES = {
    "read": READ,
    "read and promote": READ
    + " for (int i = 0; i < kColumns; ++i) sums[i] = __fmaf_rn(__uint_as_float(found[i]), 0.5f, sums[i]);",
    "write": "ptx::store_tensor_memory(address, words); ptx::wait_tensor_stores();",
}


@dataclass(frozen=True)
class Variant:
    move: str
    columns: int  # by one instruction
    rounds: int = 200


def source(v: Variant) -> str:
    move = f"#define MOVE(address) do {{ {MOVES[v.move]} }} while (false)\n"
    return move.replace("(address, ", "((address), ") + constants(kColumns=v.columns) + kernel_file("tensor_moves.cu")


def measure(v: Variant, device: torch.device) -> dict:
    grid = num_sms(device)
    cycles, _, _ = clocks(grid, device)
    sink = torch.zeros(grid * 128, dtype=torch.int32, device=device)
    timed_launch("tensor_moves", source(v), grid, 128, 1, [cycles, sink], [v.rounds])
    return {"cycles_per_column": cycles.double().median().item() / (v.rounds * ALL_COLUMNS)}


VARIANTS = [
    *(Variant(move, columns) for move in ("read", "read and promote") for columns in (8, 16, 32)),
    Variant("write", 4),
]


def show(row: dict) -> str:
    return f"{row['move']:16s} {row['columns']:2d} columns at once: {row['cycles_per_column']:5.2f} cycles a column"


if __name__ == "__main__":
    bench = Bench(
        "tensor_moves",
        __doc__.splitlines()[0],
        VARIANTS,
        source,
        measure,
        show,
        lambda v: replace(v, rounds=1),
        target=BLACKWELL_TARGET,
    )
    raise SystemExit(bench.main())
