"""A whole MoE layer whose experts are spread over GPUs (`fp8_mega_moe` with a group) beside all-to-all and products.

    torchrun --nproc-per-node 2 benchmarks/bench_mega_moe_ranks.py --out results

First, that it is right: each rank's tokens by one-rank layers of all experts, for uneven and empty routings and ranks
with different numbers of tokens, in each form; and that replays of a graph of an uneven one have equal bits. Then
microseconds of a call, from tokens in the buffer to results, all ranks together: `graph` (replays one behind the other,
in turn with `one launch`: `persistent=True`, and `a ring`: of a quarter of the tokens), `call` (without a graph), and
`apart`: this library's routing, products and combine around NCCL's all-to-all, whose sizes the host must read.
`--late`: rank 1 never calls; rank 0 must say so and trap.

A rank whose device stands still says in which call (watch.py), and ends.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from machine import describe, write_result
from tables import table
from watch import Watch

import deep_gemm
from deep_gemm import quantize, routing
from deep_gemm._layer_calls import RecordedRank
from deep_gemm._recording import placeholder
from deep_gemm._simulated_ranks import SimulatedRanks
from deep_gemm.epilogue import Chain, SwiGLU
from deep_gemm.nn.expert_parallel import exchange

HIDDEN, INNER, CHOICES = 7168, 2048, 8
ROUNDS, REPLAYS = 7, 1000
FORMS: dict[str, dict[str, Any]] = {
    "launches": {"persistent": False},
    "one launch": {"persistent": True},
    "in parts": {"persistent": False, "tokens_at_once": 48},
    "one launch, a ring of rows": {"persistent": True, "tokens_at_once": 48},
}
RING = 4  # part of the tokens whose rows are here at the same time
CHECKED = (200, 200), (1, 200), (0, 64), (37, 5)  # tokens of ranks in turn
CHECKED_SIZES = 1024, 512
TIMEOUT_S = 12.0  # of a wait for another rank
Weights = tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def weights(experts: range, hidden: int, inner: int) -> Weights:
    """Of each expert the same on whatever rank."""
    made = []
    for n, k in ((2 * inner, hidden), (hidden, inner)):
        data = torch.empty(len(experts), n, k, dtype=torch.float8_e4m3fn, device="cuda")
        for at, expert in enumerate(experts):
            torch.manual_seed(expert * 2 + (n == hidden))
            data[at].copy_(torch.randn(n, k, dtype=torch.bfloat16, device="cuda"))
        made.append((data, torch.full((len(experts), n // 128, k // 128), 0.02, device="cuda")))
    l1, l2 = deep_gemm.transform_weights_for_mega_moe_sm90(*made)
    assert isinstance(l1, tuple)
    assert isinstance(l2, tuple)
    return l1, l2


def timed_forms(tokens: int) -> dict[str, dict[str, Any]]:
    ring = {"persistent": True, "tokens_at_once": -(-tokens // RING)}
    return {"graph": {"persistent": False}, "one launch": {"persistent": True}, "a ring": ring}


class Layer:
    def __init__(self, experts: int, tokens: int, hidden: int, inner: int, given: Weights, group: Any, **more: Any):
        sizes = experts, tokens, CHOICES, hidden, inner
        more = {"timeout_s": TIMEOUT_S} | more
        self.buffer = deep_gemm.get_symm_buffer_for_sm90_mega_moe(group, *sizes, device="cuda", **more)
        self.weights, self.bound = given, tokens

    def fill(self, x: torch.Tensor, ids: torch.Tensor, factors: torch.Tensor) -> None:
        b = self.buffer
        views = b.x, b.x_sf, b.topk_idx, b.topk_weights
        deep_gemm.mega_moe_pre_dispatch_sm90(x, ids, factors, *views, num_tokens=len(x))

    def call(self, y: torch.Tensor) -> torch.Tensor:
        deep_gemm.fp8_mega_moe(y, *self.weights, self.buffer, num_tokens_bound=self.bound)
        return y

    def graph(self, y: torch.Tensor) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL has threads of its own
            self.call(y)
        return graph


def replays_equal(graph: torch.cuda.CUDAGraph, y: torch.Tensor, wanted: torch.Tensor) -> bool:
    same = torch.ones((), dtype=torch.bool, device="cuda")
    for _ in range(REPLAYS):
        graph.replay()
        same &= (y == wanted).all()
    return bool(same)


def routings(tokens: int, experts: int, rank: int) -> dict[str, torch.Tensor]:
    at = torch.arange(tokens * CHOICES, device="cuda").view(tokens, CHOICES)
    torch.manual_seed(100 + rank)
    drawn = torch.rand(tokens, experts, device="cuda").topk(CHOICES).indices
    return {
        "random": drawn,
        "uneven": (at * at) % 7 % experts,
        "one expert": at * 0 + experts - 1,
        "some of none": at % (experts + 2) - 2,
        "all of none": at * 0 - 1,
        "own": drawn % (experts // 2) + rank * (experts // 2),
    }


def check(group: Any, rank: int, ranks: int, watch: Watch) -> list[dict[str, Any]]:
    """What was found, for each form, number of tokens and routing."""
    experts, (hidden, inner), most = 8 * ranks, CHECKED_SIZES, max(CHECKED[0])
    whole = Layer(experts, most, hidden, inner, weights(range(experts), hidden, inner), None)
    own = weights(range(rank * 8, rank * 8 + 8), hidden, inner)
    layers = {name: Layer(experts, most, hidden, inner, own, group, **form) for name, form in FORMS.items()}
    rows = []
    for counts in CHECKED:
        tokens = counts[rank % 2]
        torch.manual_seed(rank)
        x = torch.randn(tokens, hidden, dtype=torch.bfloat16, device="cuda")
        factors = torch.rand(tokens, CHOICES, device="cuda")
        y, wanted = (torch.empty(tokens, hidden, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        for name, ids in routings(tokens, experts, rank).items():
            whole.fill(x, ids, factors)
            whole.call(wanted)
            for form, layer in layers.items():
                watch.begin(f"a call of {form}, {counts} tokens, routing {name}", layer.buffer)
                layer.fill(x, ids, factors)
                layer.call(y.fill_(7))
                watch.end()
                scale = float(wanted.float().norm())
                error = float((y.float() - wanted.float()).norm()) / (scale or 1.0)
                row = {"form": form, "tokens": tokens, "routing": name, "equal": torch.equal(y, wanted), "error": error}
                if name == "uneven":
                    watch.begin(f"replays of {form}, {counts} tokens", layer.buffer)
                    row["equal"] &= replays_equal(layer.graph(y), y, wanted)
                    watch.end()
                rows.append(row)
                if not row["equal"]:
                    of_rows = (y != wanted).any(dim=1).nonzero().view(-1).tolist()
                    print(f"rank {rank}: OTHER BITS {row}, {len(of_rows)} rows: {of_rows[:16]}", flush=True)
    return rows


def products(rows: routing.Rows, own: torch.Tensor, given: Weights, local: int) -> torch.Tensor:
    """Of rows that have come, each with its expert here; results in the order in which they came."""
    here = routing.route(own, local, kind="psum")
    gathered = routing.gather(rows, here)
    room = here.source.shape[0]
    padded = deep_gemm.get_tma_aligned_size(room, 4)
    scales = torch.empty(INNER // 128, padded, device=own.device).T[:room]
    inner = torch.empty(room, INNER, dtype=torch.float8_e4m3fn, device=own.device), scales
    deep_gemm.gemm(gathered, given[0], inner, grouping=here.grouping(), epilogue=Chain(SwiGLU(layout="eights")))
    down = torch.empty(room, HIDDEN, dtype=torch.bfloat16, device=own.device)
    deep_gemm.gemm(inner, given[1], down, grouping=here.grouping())
    return routing.combine(down, here)


def apart(
    x: torch.Tensor, ids: torch.Tensor, factors: torch.Tensor, given: Weights, experts: int, group: Any
) -> Callable[[], torch.Tensor]:
    """Routing, all-to-all, products, all-to-all, combine."""
    ranks, local = group.size(), experts // group.size()
    tokens = quantize.fp8(x)
    torch.manual_seed(0)
    numbers = torch.arange(local, dtype=torch.int32, device="cuda").repeat(ranks)

    def call() -> torch.Tensor:
        found = routing.route(ids, experts, kind="psum", alignment=1)
        arriving = torch.empty_like(found.counts)
        dist.all_to_all_single(arriving, found.counts, group=group)
        sent, received = torch.stack([found.counts, arriving]).view(2, ranks, -1).sum(dim=2).tolist()
        total = sum(received)
        own = numbers.repeat_interleave(arriving, output_size=total).unsqueeze(1)
        rows = tuple(exchange(part[: sum(sent)], sent, received, group) for part in routing.gather(tokens, found))
        back = exchange(products(rows, own, given, local), received, sent, group)
        missing = found.source.shape[0] - back.shape[0]
        return routing.combine(torch.nn.functional.pad(back, (0, 0, 0, missing)), found, factors)

    return call


def microseconds(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Of one call of several, on the slowest rank; the calls in turn."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            torch.cuda.synchronize()
            dist.barrier()
            begin.record()
            for _ in range(repeats):
                call()
            end.record()
            end.synchronize()
            slowest = torch.tensor(begin.elapsed_time(end) * 1e3 / repeats, device="cuda")
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            found[name].append(float(slowest))
    return {name: round(statistics.median(each), 1) for name, each in found.items()}


def parts_of(call: Callable[[], Any]) -> dict[str, float]:
    """Microseconds of each kernel, waits for other ranks included."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(5):
            call()
        torch.cuda.synchronize()
    return {each.key[:40]: round(each.device_time_total / 5, 1) for each in profiler.key_averages()}


def measure(experts: int, tokens: int, given: Weights, group: Any, rank: int, watch: Watch) -> dict[str, Any]:
    torch.manual_seed(rank)
    x = torch.randn(tokens, HIDDEN, dtype=torch.bfloat16, device="cuda")
    factors = torch.rand(tokens, CHOICES, device="cuda")
    ids = routings(tokens, experts, rank)["random"]
    y = torch.empty(tokens, HIDDEN, dtype=torch.bfloat16, device="cuda")
    row: dict[str, Any] = {"experts": experts, "tokens": tokens}
    graphs, layers, results = {}, {}, {}
    for name, form in timed_forms(tokens).items():
        layer = Layer(experts, tokens, HIDDEN, INNER, given, group, **form)
        watch.begin(f"the first call of {name}, {tokens} tokens, {experts} experts", layer.buffer)
        layer.fill(x, ids, factors)
        results[name], layers[name] = layer.call(y).clone(), layer
        watch.end()
        dist.barrier()
        graphs[name] = layer.graph(y)
    repeats = 20 if tokens <= 512 else 5
    watch.begin(f"replays or what is beside them, {tokens} tokens, {experts} experts", layers["one launch"].buffer)
    beside = apart(x, ids, factors, given, experts, group)
    other, first = beside(), results["graph"]
    row["equal"] = all(torch.equal(first, each) for each in results.values())
    row["far"] = round(float((other.float() - first.float()).norm() / first.float().norm()), 4)
    row |= microseconds({name: graph.replay for name, graph in graphs.items()}, repeats)
    row |= microseconds({"call": lambda: layers["graph"].call(y), "apart": beside}, repeats)
    if tokens <= 512:
        row[f"{REPLAYS} replays equal"] = all(replays_equal(graph, y, first) for graph in graphs.values())
    row["kernels"] = {name: parts_of(graph.replay) for name, graph in graphs.items()}
    dist.barrier()
    watch.end()
    return row


def record_call(group: Any, experts: int, tokens: int, bound: int, hidden: int, inner: int, **form: Any) -> None:
    sizes = experts, bound, CHOICES, hidden, inner
    buffer = deep_gemm.get_symm_buffer_for_sm90_mega_moe(group, *sizes, device="cpu", **form)
    y = placeholder(tokens, hidden, dtype=torch.bfloat16)
    given = recorded_weights(buffer.local_experts, hidden, inner)
    deep_gemm.fp8_mega_moe(y, *given, buffer, num_tokens_bound=bound)


def recorded_weights(experts: int, hidden: int, inner: int) -> Weights:
    made = []
    for n, k in ((2 * inner, hidden), (hidden, inner)):
        scales = placeholder(experts, n // 128, k // 128, dtype=torch.float32)
        made.append((placeholder(experts, n, k, dtype=torch.float8_e4m3fn), scales))
    return made[0], made[1]


def record_apart(local: int, ranks: int, tokens: int) -> None:
    """With as many rows as come where every expert is chosen alike."""
    count = tokens * CHOICES
    x = placeholder(tokens, HIDDEN, dtype=torch.bfloat16)
    ids, factors = (placeholder(tokens, CHOICES, dtype=dtype) for dtype in (torch.int64, torch.float32))
    found = routing.route(ids, local * ranks, kind="psum", alignment=1)
    routing.gather(quantize.fp8(x), found)
    rows = tuple(
        placeholder(count, n, dtype=d) for n, d in ((HIDDEN, torch.float8_e4m3fn), (HIDDEN // 128, torch.float32))
    )
    own = placeholder(count, 1, dtype=torch.int32)
    products((rows[0], rows[1]), own, recorded_weights(local, HIDDEN, INNER), local)
    routing.combine(placeholder(found.source.shape[0], HIDDEN, dtype=torch.bfloat16), found, factors)


def compile_kernels(ranks: int, experts: Sequence[int], tokens: Sequence[int]) -> None:
    """Of all forms, by as many processes as there are cores."""
    with deep_gemm.jit.record("sm_90a") as recording:
        for count in sorted({count for counts in CHECKED for count in counts} - {0}):
            record_call(None, 8 * ranks, count, max(CHECKED[0]), *CHECKED_SIZES)
        for form in FORMS.values():
            group = RecordedRank(SimulatedRanks(ranks), 0)
            record_call(group, 8 * ranks, 1, max(CHECKED[0]), *CHECKED_SIZES, **form)
        for number, count in itertools.product(experts, tokens):
            for form in timed_forms(count).values():
                group = RecordedRank(SimulatedRanks(ranks), 0)
                record_call(group, number, count, count, HIDDEN, INNER, **form)
        for number, count in itertools.product(experts, tokens):
            record_apart(number // ranks, ranks, count)
    deep_gemm.jit.compile_recorded(recording)


def tables(document: dict[str, Any]) -> str:
    """Microseconds of a call, and where its kernels spend them."""
    header = ["experts", "tokens a rank", "launches in a graph", "one launch in a graph", "gain", "launches in a call"]
    header[5:5] = ["a ring in a graph"]
    header += ["all-to-all and products", "that / a call"]
    lines = []
    for r in document["rows"]:
        gains = [f"{r['graph'] / r['one launch']:.2f}", f"{r['apart'] / r['call']:.2f}"]
        of_launches = r["experts"], r["tokens"], r["graph"], r["one launch"], gains[0]
        lines.append([*of_launches, r["a ring"], r["call"], r["apart"], gains[1]])
    of, machine = document["what"].partition(": ")[2], document["machine"]
    ran = f"{of}; {machine['gpu']}, driver {machine['driver']}, commit {machine['commit']}."
    return table(header, lines) + f"\n{ran}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="directory of the result file")
    parser.add_argument("--experts", type=int, nargs="*", default=[64, 256])
    parser.add_argument("--tokens", type=int, nargs="*", default=[1, 8, 64, 512, 4096], help="of each rank")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--late", action="store_true")
    parser.add_argument("--commit", help="of the library, where this is no clone")
    arguments = parser.parse_args()
    if not torch.cuda.is_available() or "LOCAL_RANK" not in os.environ:
        print("nothing was measured: start it by torchrun, on a machine with GPUs")
        return 1
    start = time.time()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    rank, ranks, group = dist.get_rank(), dist.get_world_size(), dist.group.WORLD
    if not arguments.late and rank == 0:
        compile_kernels(ranks, arguments.experts, arguments.tokens)
        print(f"compiled in {time.time() - start:.0f} s", flush=True)
    dist.barrier()
    if arguments.late:
        own = weights(range(2), 1024, 512)
        layer = Layer(2 * ranks, 64, 1024, 512, own, group, timeout_s=2.0)
        if rank != 1:
            layer.call(torch.empty(4, 1024, dtype=torch.bfloat16, device="cuda"))
            torch.cuda.synchronize()  # raises
        time.sleep(10)
        return 0
    watch = Watch(rank)
    checked = check(group, rank, ranks, watch)
    of_ranks: list[Any] = [None] * ranks
    dist.all_gather_object(of_ranks, [each for each in checked if not each["equal"]])
    wrong = [each for found in of_ranks for each in found]
    if rank == 0:
        print(f"checked {len(checked)} a rank, of other bits: {len(wrong)}; {time.time() - start:.0f} s", flush=True)
    rows: list[dict[str, Any]] = []
    for experts in arguments.experts:
        local = experts // ranks
        given = weights(range(rank * local, rank * local + local), HIDDEN, INNER)
        for tokens in arguments.tokens:
            late = torch.tensor(time.time() - start > arguments.seconds, dtype=torch.int32, device="cuda")
            dist.all_reduce(late)
            if bool(late):
                break
            rows.append(measure(experts, tokens, given, group, rank, watch))
            if rank == 0:
                print({name: each for name, each in rows[-1].items() if name != "kernels"}, flush=True)
                if arguments.out:
                    what = f"bench_mega_moe_ranks: {ranks} GPUs, {HIDDEN} x {INNER}, top-{CHOICES}"
                    rows.sort(key=lambda row: (row["experts"], row["tokens"]))
                    found = {"rows": rows, "checked": len(checked), "of other bits": wrong}
                    result = {"what": what, "machine": describe(arguments.commit), **found}
                    write_result(arguments.out / "mega_moe_ranks.json", result)
        del given
        torch.cuda.empty_cache()
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
