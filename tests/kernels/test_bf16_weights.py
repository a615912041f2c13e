"""Products of BF16 and FP16 activations with packed weights, against FP64 products of what those stand for."""

from __future__ import annotations

import checkpoints
import pytest
import torch
from bf16_weight_inputs import KINDS, activations, check, weights
from candidates import forced_tile, parse, target_of
from devices import TAKE_PACKED, on_simulator
from field_calls import explain
from guarded_products import guarded_product
from inputs import GuardedOutput
from kind_marks import ACTIVATIONS, EVERY_WIDE_KIND, OUTPUTS

import deep_gemm
from deep_gemm import simulator
from deep_gemm._targets import HOPPER_SMS

SIZES = [(1, 136, 272), (7, 24, 640), (129, 280, 144)]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@OUTPUTS
@ACTIVATIONS
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("added", ["nothing", "c", "d"])
@EVERY_WIDE_KIND
def test_dense(device, kind, added, size, dtype, output) -> None:
    m, n, k = size
    generator = torch.Generator().manual_seed(m)
    a = activations((m, k), dtype, generator)
    w, exact = weights(kind, (n, k), generator)
    d = GuardedOutput((m, n), output, device)
    c = None if added == "nothing" else torch.randn((m, n), generator=generator).to(output).to(device)
    if added == "d":
        d.tensor.copy_(c)
    kind.function("{}_gemm_nt")(a.to(device), w.to(device), d.tensor, d.tensor if added == "d" else c)
    d.check()
    check(d.tensor, a, exact, 0 if c is None else c.double().cpu())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@ACTIVATIONS
@EVERY_WIDE_KIND
def test_k_of_2880(device, kind, dtype) -> None:
    generator = torch.Generator().manual_seed(5)
    a = activations((3, 2880), dtype, generator)
    w, exact = weights(kind, (72, 2880), generator)
    d = guarded_product(kind, a, w, device)
    check(d, a, exact)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@OUTPUTS
@ACTIVATIONS
@EVERY_WIDE_KIND
def test_bias(device, kind, dtype, output) -> None:
    generator = torch.Generator().manual_seed(1)
    a = activations((20, 256), dtype, generator)
    w, exact = weights(kind, (72, 256), generator)
    bias = torch.randn(72, generator=generator).to(output)
    d = guarded_product(kind, a, w, device, bias=bias.to(device))
    check(d, a, exact, bias.double())


@pytest.mark.sampled(5)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@ACTIVATIONS
@pytest.mark.parametrize("seed", range(4))
@EVERY_WIDE_KIND
def test_every_tile_is_right_and_has_the_same_bits(device, kind, seed, dtype, batch_invariant) -> None:
    """Of each problem the first, the last and some other legal tiles, clusters among them."""
    m, n, k = [(24, 256, 384), (40, 192, 640), (136, 256, 512), (264, 300, 256)][seed]
    generator = torch.Generator().manual_seed(seed)
    a = activations((m, k), dtype, generator)
    w, exact = weights(kind, (n, k), generator)
    name = "bf16" if dtype == torch.bfloat16 else "fp16"
    fields = {"m": m, "n": n, "k": k, "num_sms": HOPPER_SMS, "fp32_output": 1, "batch_invariant": 1, name: 1}
    legal = [c for c in parse(explain("dense", {**fields, **kind.fields()}, target_of(device))) if c.rejection is None]
    assert len(legal) > 2
    expected = None
    with simulator.options(num_sms=HOPPER_SMS):
        for c in [legal[0], *legal[1 + seed :: len(legal) // 3], legal[-1]]:
            d = torch.zeros((m, n), device=device)
            with forced_tile(device, (m, n, k), c.swapped, c.rows, c.cols, c.cluster_shape, c.k_warpgroups):
                kind.function("{}_gemm_nt")(a.to(device), w.to(device), d)
            check(d, a, exact)
            expected = d if expected is None else expected
            assert torch.equal(d, expected), f"other bits from {c.rows}x{c.cols}"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("device", on_simulator("any", arch="sm80"), indirect=True)
@ACTIVATIONS
@pytest.mark.parametrize("size", [(5, 128, 272), (40, 72, 1152)], ids=str)
@EVERY_WIDE_KIND
def test_warps_that_divide_k_add_up(device, kind, size, dtype) -> None:
    """Past the end of K, and of all weights, some of them have no block any more."""
    m, n, k = size
    generator = torch.Generator().manual_seed(9)
    a = activations((m, k), dtype, generator)
    w, exact = weights(kind, (n, k), generator)
    fields = {"m": m, "n": n, "k": k, "num_sms": HOPPER_SMS, "fp32_output": 1, **kind.fields()}
    name = "bf16" if dtype == torch.bfloat16 else "fp16"
    found = parse(explain("dense", {name: 1, **fields}, target_of(device)))
    dividing = [c for c in found if c.k_warpgroups > 1 and c.rejection is None]
    assert dividing
    for c in dividing:
        d = torch.zeros((m, n))
        with forced_tile(device, size, c.swapped, c.rows, c.cols, k_warpgroups=c.k_warpgroups):
            kind.function("{}_gemm_nt")(a, w, d)
        check(d, a, exact)


@ACTIVATIONS
def test_every_code_less_every_zero_point_is_exact(dtype) -> None:
    zeros = torch.arange(-128, 241, dtype=torch.int32)
    codes = torch.arange(16, dtype=torch.int8).repeat(len(zeros), 2)
    w = deep_gemm.pack_weights(codes, torch.ones(len(zeros)), zeros, element="uint4", activations="bf16")
    d = torch.zeros(32, len(zeros))
    deep_gemm.bf16_int4_gemm_nt(torch.eye(32, dtype=dtype), w, d)
    assert torch.equal(d.T, codes.float() - zeros.float().unsqueeze(1))
    assert torch.equal(w.dequantize(), d.T)


@ACTIVATIONS
@pytest.mark.parametrize("form", ["awq", "gptq", "gptq_v2"])
def test_checkpoints_with_zero_points_are_multiplied_as_they_were_meant(form, dtype) -> None:
    n, k, group = 96, 256, 64
    generator = torch.Generator().manual_seed(6)
    codes = torch.randint(0, 16, (n, k), generator=generator, dtype=torch.int32)
    zeros = torch.randint(1, 16, (n, k // group), generator=generator, dtype=torch.int32)
    scales = (torch.rand((n, k // group), generator=generator) / 16).half()
    made = {
        "awq": lambda: checkpoints.awq(codes, scales, zeros),
        "gptq": lambda: checkpoints.gptq(codes, scales, zeros),
        "gptq_v2": lambda: checkpoints.gptq(codes, scales, zeros, "v2"),
    }
    config = {"checkpoint_format": form} if form == "gptq_v2" else {}
    w = deep_gemm.weights_from_checkpoint(form.partition("_")[0], made[form](), activations="bf16", config=config)
    assert w.needs_zeros
    exact = (codes - zeros.repeat_interleave(group, 1)).double() * scales.double().repeat_interleave(group, 1)
    a = activations((7, k), dtype, generator)
    d = GuardedOutput((7, n), torch.float32, "cpu")
    deep_gemm.bf16_int4_gemm_nt(a, w, d.tensor)
    d.check()
    check(d.tensor, a, exact)


@ACTIVATIONS
def test_zero_points_that_are_written_are_those_of_the_next_call(dtype) -> None:
    """The same tensors, so the call is a remembered one; an expert without zero points among them."""
    generator = torch.Generator().manual_seed(7)
    kind = KINDS["int4-zeros"]
    a = activations((5, 256), dtype, generator)
    w, _ = weights(kind, (1, 128, 256), generator)
    mine, d = w[0], GuardedOutput((5, 128), torch.float32, "cpu")
    values = torch.randint(0, 16, (128, 256), generator=generator, dtype=torch.int8)
    symmetric = deep_gemm.pack_weights(
        values, torch.ones(128, 2), torch.full((128, 2), 8).int(), element="uint4", activations="bf16", group_size=128
    )
    assert not symmetric.needs_zeros
    for one, exact in (weights(kind, (128, 256), generator), (symmetric, values.double() - 8)):
        for _ in range(3):
            kind.function("{}_gemm_nt")(a, mine, d.tensor)
        w[0] = one
        kind.function("{}_gemm_nt")(a, mine, d.tensor)
        check(d.tensor, a, exact)


@ACTIVATIONS
def test_rows_that_do_not_start_at_multiples_of_16_bytes(dtype) -> None:
    generator = torch.Generator().manual_seed(6)
    kind = KINDS["int4-channels"]
    a = activations((9, 131), dtype, generator)[:, :129]
    w, exact = weights(kind, (24, 129), generator)
    d = guarded_product(kind, a, w, torch.device("cpu"))
    check(d, a, exact)


@pytest.mark.sampled(8)
@ACTIVATIONS
@EVERY_WIDE_KIND
def test_operators_do_what_functions_do(kind, dtype) -> None:
    generator = torch.Generator().manual_seed(7)
    a = activations((5, 256), dtype, generator)
    w, _ = weights(kind, (24, 256), generator)

    def step(x: torch.Tensor) -> torch.Tensor:
        d = torch.empty((5, 24), dtype=dtype)
        kind.function("{}_gemm_nt")(x, w, d)
        return d

    traced = torch.fx.experimental.proxy_tensor.make_fx(step)(a)
    assert f"{kind.weights}_gemm_nt" in traced.code
    assert torch.equal(traced(a), step(a))
