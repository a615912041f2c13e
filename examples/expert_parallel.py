"""Experts spread over processes: tokens travel to the process that holds their expert, and back.

    python -m examples.expert_parallel [--processes 2]

One process per GPU with NCCL, or on a machine without one, processes with gloo on the simulator. Each process routes
its own tokens, quantises them (FP8 rows and their scales travel: half the bytes of BF16), sends each row to its
expert's process, computes all rows that arrive in one grouped call, and sends results back.

Seen running with gloo on CPUs, two and three processes. NOT RUN YET on several GPUs.
"""

from __future__ import annotations

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

import deep_gemm
from deep_gemm.testing import get_arch_major
from deep_gemm.utils import align, per_block_cast_to_fp8, per_token_cast_to_fp8
from deep_gemm.utils.dist import init_dist


def exchange(rows: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
    """The first `sent[0]` rows go to process 0, the next `sent[1]` to process 1 ...; what came, in that order."""
    data = rows.contiguous().view(torch.uint8)  # collectives know neither FP8 nor, everywhere, BF16
    out = data.new_empty(sum(received), data.shape[1])
    dist.all_to_all_single(out, data, received, sent)
    return out.view(rows.dtype)


class ExpertParallel:
    """One linear layer for each expert, `local` of them in this process."""

    def __init__(self, weights: torch.Tensor, first: int, local: int) -> None:
        """`weights` [experts, out, in] of all experts; the process keeps its own."""
        self.use_ue8m0 = get_arch_major(weights.device) == 10  # B200 and B300 scale by powers of two
        own = [per_block_cast_to_fp8(weight, self.use_ue8m0) for weight in weights[first : first + local]]
        self.weights = torch.stack([data for data, _ in own]), torch.stack([scales for _, scales in own])
        self.local, self.features_out = local, weights.shape[1]

    def __call__(self, x: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
        """x [tokens, in], expert [tokens] -> [tokens, out]."""
        order = expert.argsort(stable=True)  # by expert, so by process too
        processes = dist.get_world_size()
        counts = torch.bincount(expert, minlength=processes * self.local)
        arriving = torch.empty_like(counts)  # [process, own expert]
        dist.all_to_all_single(arriving, counts)
        sent, received = (table.view(processes, self.local).sum(dim=1).tolist() for table in (counts, arriving))
        data, scales = per_token_cast_to_fp8(x[order], self.use_ue8m0)
        data, scales = exchange(data, sent, received), exchange(scales, sent, received)

        y = self.compute(data, scales, arriving.view(processes, self.local))
        back = exchange(y, received, sent)
        result = torch.empty_like(back)
        result[order] = back
        return result

    def compute(self, data: torch.Tensor, scales: torch.Tensor, arriving: torch.Tensor) -> torch.Tensor:
        """Rows lie by process, then by expert; the grouped call wants them by expert, each expert aligned."""
        alignment = deep_gemm.get_mk_alignment_for_contiguous_layout()
        experts = torch.arange(self.local, device=data.device).repeat(len(arriving))
        expert = experts.repeat_interleave(arriving.flatten())
        totals = arriving.sum(dim=0)
        starts = torch.tensor([0] + [align(int(total), alignment) for total in totals], device=data.device).cumsum(0)
        order = expert.argsort(stable=True)
        before = totals.cumsum(0) - totals
        place = torch.empty_like(expert)
        place[order] = torch.arange(len(expert), device=data.device) - before[expert[order]] + starts[expert[order]]

        m = int(starts[-1])
        rows = data.view(torch.uint8).new_empty(m, data.shape[1])
        rows[place] = data.view(torch.uint8)
        row_scales = scales.new_empty(m, scales.shape[1])
        row_scales[place] = scales
        layout = torch.full((m,), -1, dtype=torch.int32, device=data.device)
        layout[place] = expert.int()
        y = torch.empty((m, self.features_out), dtype=torch.bfloat16, device=data.device)
        a = rows.view(torch.float8_e4m3fn), row_scales
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, self.weights, y, layout)
        return y[place]


def run(rank: int, processes: int) -> None:
    rank, processes, _ = init_dist(rank, processes)
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
    tokens, features_in, features_out, local = (4096, 7168, 4096, 8) if gpu else (24, 128, 128, 2)

    torch.manual_seed(0)  # every process draws all weights, to be able to check
    weights = torch.randn(processes * local, features_out, features_in, device=device) / features_in**0.5
    torch.manual_seed(1 + rank)
    x = torch.randn(tokens, features_in, device=device)
    expert = torch.randint(processes * local, (tokens,), device=device)

    y = ExpertParallel(weights, rank * local, local)(x, expert)
    exact = torch.empty_like(y, dtype=torch.float32)
    for index, weight in enumerate(weights):
        exact[expert == index] = x[expert == index] @ weight.T
    relative = ((y.float() - exact).norm() / exact.norm()).item()
    print(f"process {rank} of {processes}: {tokens} tokens, relative error against FP32 {relative:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    if not relative < 0.05:
        raise SystemExit("the error is larger than quantisation explains")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=torch.cuda.device_count() or 2)
    arguments = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.setdefault("MASTER_PORT", str(free.getsockname()[1]))
    multiprocessing.spawn(run, (arguments.processes,), nprocs=arguments.processes)


if __name__ == "__main__":
    main()
