"""Layers of which processes of a group have parts."""

from __future__ import annotations

import pytest
import torch
from test_nn import distance, random, routed

from deep_gemm import nn


def test_a_group_of_one_process_and_processes_without_rows() -> None:
    """The same as without a group, but for gradients' sums of BF16; several processes: examples/expert_parallel.py."""
    torch.manual_seed(0)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        spread = nn.GroupedExperts(3, 128, 128, group=torch.distributed.group.WORLD)
        alone = nn.GroupedExperts(3, 128, 128)
        alone.load_state_dict(spread.state_dict())
        ids, weights = routed(12, 3, "cpu")
        x = random(12, 128)
        for masked_up_to in (0, 128):
            alone.masked_up_to = spread.masked_up_to = masked_up_to
            with torch.no_grad():
                assert distance(spread(x, ids, weights), alone(x, ids, weights)) < 1e-6
        grads = [torch.autograd.grad(layer(x, ids, weights).sum(), layer.down.weight)[0] for layer in (spread, alone)]
        assert distance(*grads) < 1e-2
        nowhere = torch.full_like(ids, -1)
        y = spread(x, nowhere, weights)
        y.sum().backward()
        assert not y.any()
        assert not spread.down.weight.grad.any()
        with torch.no_grad():
            assert not spread(x, nowhere, weights).any()
    finally:
        torch.distributed.destroy_process_group()


def test_parameters_that_are_spread_over_processes() -> None:
    """DTensors, and FSDP2's: the same results, gradients and steps as of the layer by itself."""
    torch.manual_seed(0)
    fully_shard = getattr(pytest.importorskip("torch.distributed.fsdp"), "fully_shard", None)
    if fully_shard is None:
        pytest.skip("torch has no fully_shard yet")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        plain, spread, fully = (nn.FP8Linear(128, 64) for _ in range(3))
        for layer in (spread, fully):
            layer.load_state_dict(plain.state_dict())
        for name in ("weight", "bias"):
            part = distribute_tensor(getattr(spread, name).detach(), mesh, [Shard(0)])
            setattr(spread, name, torch.nn.Parameter(part))
        fully_shard(fully, mesh=mesh)
        x, results = random(16, 128), []
        for layer in (plain, spread, fully):
            optimizer, y = torch.optim.SGD(layer.parameters(), 0.5), layer(x)
            y.square().sum().backward()
            assert isinstance(layer.weight.grad, DTensor) == (layer is not plain)
            optimizer.step()
            results.append((y, layer(x)))
        for y, after in results[1:]:
            assert torch.equal(y, results[0][0])
            assert torch.equal(after, results[0][1])
    finally:
        torch.distributed.destroy_process_group()
