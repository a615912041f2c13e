"""Experts spread over processes: tokens travel to the process that holds their expert, and back.

    python -m examples.expert_parallel [--processes 2]
    torchrun --nproc-per-node 2 -m examples.expert_parallel

One process per GPU with NCCL, or on a machine without one, processes with gloo on the simulator. Each process routes
its own tokens and quantises them (FP8 rows and their scales travel: half the bytes of BF16); `nn.GroupedExperts` with a
group sends each row to its expert's process and results back. With gradients BF16 rows travel, and their gradients.

Seen running with gloo on CPUs, two and three processes, and with NCCL on two H200, started both ways.
"""

from __future__ import annotations

import argparse
import os
import socket

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from deep_gemm import nn
from deep_gemm.utils.dist import init_dist


def weights_of(layer: nn.GroupedExperts) -> list[torch.nn.Parameter]:
    return [layer.get_parameter(f"{part}.weight") for part in ("gate_up", "down")]


def exact(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, whole: nn.GroupedExperts) -> torch.Tensor:
    """In FP32, every expert for every token."""
    out = torch.zeros_like(x)
    for expert, (gate_up, down) in enumerate(zip(*weights_of(whole), strict=True)):
        gate, up = (x @ gate_up.T).chunk(2, dim=1)
        each = (torch.nn.functional.silu(gate) * up) @ down.T
        out = out + each * ((ids == expert) * weights).sum(dim=1, keepdim=True)
    return out


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.detach().float() - wanted.detach()).norm() / wanted.detach().norm())


def run_spawned(rank: int, processes: int) -> None:
    init_dist(rank, processes)
    run()


def run_by_torchrun() -> None:
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if gpu else "gloo")
    run()


def run() -> None:
    rank, processes = dist.get_rank(), dist.get_world_size()
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
    tokens, hidden, inner, local, choices = (4096, 7168, 2048, 8, 8) if gpu else (24, 128, 128, 2, 2)
    experts = processes * local

    torch.manual_seed(0)  # every process draws all weights, to be able to check
    whole = nn.GroupedExperts(experts, hidden, inner, device=device)
    layer = nn.GroupedExperts(experts, hidden, inner, device=device, group=dist.group.WORLD)
    own = slice(rank * local, (rank + 1) * local)
    with torch.no_grad():
        for part, all_of_it in zip(weights_of(layer), weights_of(whole), strict=True):
            part.copy_(all_of_it[own])

    torch.manual_seed(1 + rank)
    x = torch.randn(tokens, hidden, device=device, requires_grad=True)
    weights, ids = torch.rand(tokens, experts, device=device).topk(choices)
    with torch.no_grad():
        served = layer(x, ids, weights)
    y, wanted = layer(x, ids, weights), exact(x, ids, weights, whole)
    dy = torch.randn_like(x)
    y.backward(dy)
    (dx,) = torch.autograd.grad(wanted, x, dy)
    assert x.grad is not None
    errors = {"served": relative(served, wanted), "trained": relative(y, wanted), "dx": relative(x.grad, dx)}
    told = ", ".join(f"{name} {error:.3f}" for name, error in errors.items())
    print(f"process {rank} of {processes}: {tokens} tokens, relative errors against FP32: {told}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    if not max(errors.values()) < 0.1:
        raise SystemExit("an error is larger than quantisation explains")


def main() -> None:
    if "LOCAL_RANK" in os.environ:  # torchrun has started the processes
        run_by_torchrun()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=torch.cuda.device_count() or 2)
    arguments = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.setdefault("MASTER_PORT", str(free.getsockname()[1]))
    spawn(run_spawned, (arguments.processes,), nprocs=arguments.processes)


if __name__ == "__main__":
    main()
