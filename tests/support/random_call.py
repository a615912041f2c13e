"""One random legal call: everything about it is drawn from a seed and a target, and what must hold of it is checked."""

from __future__ import annotations

import random

import torch
from batch_checks import check_batched
from call_checks import SCHEDULES, check_dense, check_experts, described, settings
from drawn_operands import NAMES, Operands, Tensors, Wide, described_call, drawn_case, drawn_pair, packed_names
from drawn_steps import GATED_N, PARTIAL_N, QUANTISED_N, Steps, drawn_gate, drawn_steps
from grouped_inputs import alignment_of
from matrix import FP4, drawn_call

import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C

TARGETS = ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a"]
# Few of each, and most kernels have neither compiled in: calls share kernels.
ROWS = [1, 7, 8, 64, 65, 129, 200]
COUNTS = [0, 0, 1, 7, 64, 65, 129]
N = [1, 7, 24, 64, 100, 136, 264]
K = [16, 64, 128, 144, 272, 384, 640, 1040]
ANY_K = [8, 72, 100]  # of 16 bits
EXPERTS = [1, 1, 2, 3, 5]
MOST_PRODUCTS = 40e6  # of a call: seconds on the simulator
HEADS = [(128, 64, 128), (24, 10, 40), (7, 3, 5)]


def drawn_settings(r: random.Random) -> dict[str, int]:
    chosen = {
        "batch_invariant": int(r.random() < 0.4),
        "ignore_compile_dims": int(r.random() < 0.2),
        "num_sms": r.choice([0, 0, 0, 1, 7]),
        "pdl": r.randrange(2),
    }
    return chosen | r.choice([{}, {}, {}, {}, {"block_n_multiple_of": 32}])


def drawn_operands(
    r: random.Random, arch: str, target: str, grouped: bool, rows: int, n: int, experts: int, gate_up: str | None
) -> tuple[Operands, bool]:
    """And whether FP32 scales must be multiplied as they are. gate_up: where weights are packed."""
    seed = torch.Generator().manual_seed(r.randrange(1 << 30))
    small = [k for k in K if rows * n * k <= MOST_PRODUCTS]
    kind, k = r.random(), r.choice(small)
    if kind < 0.35:
        make, name = r.choice(packed_names(target))
        k = r.choice([*small, *ANY_K]) if make is Wide else k
        n = n if gate_up is None else n // 16 * 16  # packed by whole groups of gates and ups
        return make(r, name, rows, n, k, experts, seed, gate_up), False
    if kind < 0.45:
        call = drawn_pair(r, arch, seed)
    else:
        while (case := drawn_case(r, arch, target)).grouping not in NAMES or (case.grouping == "dense") == grouped:
            pass
        call = drawn_call(case, seed)
    pair = call.case.pair
    if pair.a == pair.b and pair.a in ("bf16", "fp16"):
        k = r.choice([*small, *ANY_K])
    if FP4 in (pair.a, pair.b):
        n += n % 2
    return Tensors(r, call, rows, n, k, experts, seed), call.sets_fp32_scales


def drawn_alignment(r: random.Random, arch: str) -> int:
    return r.choice([64, 128, 128, 256, 32, 224, 16 if arch == "sm100" else 8])


def check_along_m(r: random.Random, arch: str, target: str, device: torch.device) -> str:
    """A dense call, or one of experts. Returns what it was, the function's name first."""
    grouped, heads = r.random() < 0.65, None
    experts = r.choice(EXPERTS) if grouped else 1
    counts = [r.choice([*COUNTS, r.randint(0, 200)]) for _ in range(experts)] if grouped else [r.choice(ROWS)]
    gate = drawn_gate(r) if r.random() < 0.2 else None
    n = r.choice(N) if gate is None else r.choice([*GATED_N, *QUANTISED_N, *PARTIAL_N])
    if gate is None and not grouped and r.random() < 0.1:
        heads = r.choice(HEADS)
        n = (heads[0] + heads[2]) * r.choice([1, 3])
    gate_up = None if gate is None else gate.layout
    operands, fp32 = drawn_operands(r, arch, target, grouped, sum(counts), n, experts, gate_up)
    if gate is not None and not operands.takes_gate(gate.layout):
        gate = None
    steps = drawn_steps(r, gate, operands.exact_b.shape[1] // 2, not isinstance(operands, Tensors))
    if operands.output == "s32":
        steps = Steps()  # integers take none
    if heads:
        steps = Steps()
    if heads and not is_for_heads(operands):
        heads = None
    rows = list(torch.arange(sum(counts)).split(counts))
    # A quantised D wants tiles of more rows on SM100, and clusters of two CTAs on SM90: else it is refused by name.
    rows_of_experts = drawn_alignment(r, arch) if steps.scales is None else r.choice([128, 256])
    kind = f"heads {heads}" if heads else f"experts, alignment {rows_of_experts}" if grouped else "dense"
    what = f"{operands}, N {n}, K {operands.exact_a.shape[1]}, rows {counts}, {kind}, {steps}"
    more = {"num_sms": 2} if steps.scales is not None and deep_gemm.get_num_sms() == 1 else {}
    with described(what), settings(device, fp32_scales=int(fp32), **more), alignment_of(rows_of_experts):
        if grouped:
            return check_experts(r, operands, rows, steps, device) + f": {what}"
        return check_dense(r, operands, heads, steps, device) + f": {what}"


def is_for_heads(operands: Operands) -> bool:
    if not isinstance(operands, Tensors):
        return False
    call = operands.call
    takes_recipe = "recipe_a" not in call.recipe  # one for both operands is all that it takes
    return takes_recipe and (call.case.pair.a, call.case.pair.b, call.layout) == ("e4m3", "e4m3", "nt")


def check_other(r: random.Random, arch: str, target: str, device: torch.device) -> str:
    """A batch, a sum over one, or groups along K, likewise."""
    while (case := drawn_case(r, arch, target)).grouping in NAMES:
        pass
    call = drawn_call(case, torch.Generator().manual_seed(r.randrange(1 << 30)))
    of_16_bits = case.pair.a in ("bf16", "fp16")
    m, n, k = r.choice(ROWS), r.choice(N), r.choice([*K, *ANY_K] if of_16_bits else K)
    batch = r.choice([1, 2, 3, 4])
    what = f"{described_call(call)}, {call.case.grouping}, M {m}, N {n}, K {k}, {batch} of them"
    with described(what), alignment_of(r.choice([64, 128, 160])):
        return check_batched(r, call, device, m, n, k, batch) + f": {what}"


def random_call(seed: str, device: torch.device, target: str | None = None) -> str:
    """Draws a call for the target (of the simulator, if None, any), makes it, checks it, and says what it was.

    Raises:
        AssertionError: something that must hold does not. Any other error: a legal call was refused, or failed.
    """
    r = random.Random(f"{seed} {target}")
    on_simulator = device.type == "cpu"
    options = {}
    if on_simulator:
        chosen = target or r.choice(TARGETS)
        options = {"schedule": r.choice(SCHEDULES), "seed": r.randrange(1 << 30), "num_sms": r.choice([4, 4, 7, 132])}
        options |= {"target": chosen, "hazards": "error"}
    with simulator.options(**options):
        arch = str(C.device_facts(on_simulator, device.index or 0)["arch"])
        check, target = check_along_m if r.random() < 0.8 else check_other, deep_gemm.get_target(device)
        chosen = drawn_settings(r)
        with described(f"{target} {chosen}"), settings(device, **chosen):
            return check(r, arch, target, device)
