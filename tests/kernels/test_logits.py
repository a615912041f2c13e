"""Index logits against FP64 of the same quantised values: what rows see, of what sizes, and equal bits."""

from __future__ import annotations

import pytest
import torch
from devices import ON_GPU, ON_ONE_OF_EACH_ARCH, SCHEDULES, devices_of, on_simulator
from logits_inputs import Dense, Paged, difference, fp8_dense, fp8_paged, generator_of, ragged

import deep_gemm
from deep_gemm._extension import C

# sm_89 multiplies E4M3 where sm_80, whose kernel it shares, converts it.
DEVICES = [*ON_ONE_OF_EACH_ARCH, *on_simulator("any", arch="sm_89"), *ON_GPU]
EVERY_SCHEDULE = [device for arch in ("sm80", "sm90", "sm100") for device in on_simulator(*SCHEDULES, arch=arch)]
# The sums are FP32; BF16 rounds each of them once.
TOLERANCE = {torch.float32: 1e-12, torch.bfloat16: 1e-5}
HOPPER = 1e-7  # whose tensor cores keep 13 bits of sums of E4M3


def assert_close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    tolerance = TOLERANCE[found.dtype]
    assert difference(found, wanted) < (max(tolerance, HOPPER) if found.is_cuda else tolerance)


def check_dense(x: Dense, logits: torch.Tensor) -> None:
    """Logits whose column j is key j, -inf where a row does not see it."""
    seen = x.seen()
    assert torch.equal(logits == -torch.inf, ~seen)
    assert_close(logits[seen], x.all_logits()[seen])


def check_paged(x: Paged, logits: torch.Tensor) -> None:
    wanted = x.reference()
    wanted = torch.nn.functional.pad(wanted, (0, max(0, logits.shape[1] - wanted.shape[1])))[:, : logits.shape[1]]
    seen = torch.arange(logits.shape[1], device=logits.device) < x.row_lengths()[:, None]
    assert_close(logits[seen], wanted[seen])


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("heads", [4, 8, 12, 16, 20, 32, 64, 72, 128])
@pytest.mark.parametrize("d", [32, 64, 128])
@pytest.mark.parametrize("rows", [1, 3, 9, 70])
def test_each_row_sees_its_run_of_keys(device, heads, d, rows) -> None:
    """Runs that are empty, reversed, or reach over an end are among them."""
    first, end = ragged(rows, 200, seed=rows)
    x = fp8_dense(rows, 200, heads, d, first=first, end=end, device=device)
    check_dense(x, deep_gemm.fp8_mqa_logits(*x.arguments))


@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
def test_dtypes_of_logits_and_weights(device, dtype, weights) -> None:
    x = fp8_dense(5, 100, 32, 64, weights=weights, device=device)
    logits = deep_gemm.fp8_fp4_mqa_logits((x.q, None), *x.arguments[1:], True, 0, logits_dtype=dtype)
    assert logits.dtype == dtype
    check_dense(x, logits)
    newer = deep_gemm.fp8_fp4_mqa_logits((x.q, None), *x.arguments[1:], 100)
    assert newer.dtype == weights
    if dtype == weights:
        assert torch.equal(newer, logits)


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_compressed_columns_begin_at_the_first_key(device) -> None:
    first, end = ragged(20, 150)
    x = fp8_dense(20, 150, 16, 64, first=first, end=end, device=device)
    columns = 90
    logits = deep_gemm.fp8_fp4_mqa_logits((x.q, None), *x.arguments[1:], columns)
    assert logits.shape == (20, columns)
    wanted = x.all_logits()
    for row, (begin, behind) in enumerate(zip(*(keys.tolist() for keys in x.clamped()), strict=True)):
        count = max(0, min(behind - begin, columns))
        assert_close(logits[row, :count], wanted[row, begin : begin + count])


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_rows_of_the_result_start_at_multiples_of_1024_bytes(device) -> None:
    x = fp8_dense(3, 70, 8, 32, device=device)
    for dtype in (torch.float32, torch.bfloat16):
        logits = deep_gemm.fp8_fp4_mqa_logits(x.q, *x.arguments[1:], False, 0, dtype)
        assert logits.stride(0) * dtype.itemsize % 1024 == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", [*EVERY_SCHEDULE, *ON_GPU], indirect=True)
@pytest.mark.parametrize("form", ["fp8", "mxfp8", "mxfp4"])
def test_twenty_calls_give_equal_bits(device, form) -> None:
    first, end = ragged(12, 260)
    dense = fp8_dense(12, 260, 64, 128, first=first, end=end, form=form, device=device)
    paged = fp8_paged(torch.tensor([[130, 131], [7, 64]]), 2, 64, 128, 64, form=form, device=device)

    def calls() -> tuple[torch.Tensor, torch.Tensor]:
        return deep_gemm.fp8_fp4_mqa_logits(*dense.arguments), deep_gemm.fp8_fp4_paged_mqa_logits(
            paged.q, paged.cache, paged.weights, paged.lengths, paged.table, None, 140, True
        )

    wanted = calls()
    for _ in range(20):
        assert all(torch.equal(*pair) for pair in zip(calls(), wanted, strict=True))


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_keys_that_no_row_sees_change_nothing(device) -> None:
    """NaN on both sides of the run, and weights of rows that lie far apart."""
    x = fp8_dense(6, 130, 16, 64, first=torch.full((6,), 30), end=torch.full((6,), 95), device=device)
    logits = deep_gemm.fp8_mqa_logits(*x.arguments)
    k, scales = x.kv[0].clone().view(torch.uint8), x.kv[1].clone()
    k[:30], k[95:], scales[:30], scales[95:] = 0x7F, 0x7F, torch.nan, torch.nan
    spread = torch.full((6, 20), torch.nan, device=device)
    spread[:, :16] = x.weights
    again = deep_gemm.fp8_mqa_logits(x.q, (k.view(torch.float8_e4m3fn), scales), spread[:, :16], x.first, x.end)
    assert torch.equal(again, logits)


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_nan_of_a_key_that_a_row_sees_is_seen(device) -> None:
    x = fp8_dense(2, 64, 8, 32, device=device)
    x.kv[0].view(torch.uint8)[5] = 0x7F
    logits = deep_gemm.fp8_mqa_logits(*x.arguments)
    assert logits[:, 5].isnan().all()
    assert not logits[:, :5].isnan().any()
    assert not logits[:, 6:].isnan().any()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("form", ["mxfp8", "mxfp4"])
@pytest.mark.parametrize(("heads", "d"), [(8, 64), (12, 128), (20, 64), (64, 128), (8, 32)])
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
def test_exponents_of_32_of_d(device, form, heads, d, weights) -> None:
    """Dense and in blocks; of FP4 D is 64 or 128."""
    if form == "mxfp4" and d == 32:
        d = 64
    first, end = ragged(7, 150)
    x = fp8_dense(7, 150, heads, d, first=first, end=end, form=form, weights=weights, device=device)
    check_dense(x, deep_gemm.fp8_fp4_mqa_logits(*x.arguments, logits_dtype=torch.float32))
    newer = deep_gemm.fp8_fp4_mqa_logits(*x.arguments, 150)
    assert newer.dtype == weights
    p = fp8_paged(torch.tensor([[70, 90], [0, 33]]), 2, heads, d, 32, form=form, weights=weights, device=device)
    check_paged(p, deep_gemm.fp8_fp4_paged_mqa_logits(p.q, p.cache, p.weights, p.lengths, p.table, None, 100))


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_extreme_exponents(device) -> None:
    """From 2^-107 on keys are exact in BF16, the least exponents are nearly 0, and 0xff is NaN."""
    x = fp8_dense(2, 8, 8, 32, form="mxfp8", device=device)
    codes, words = x.kv
    first = torch.tensor([0, 20, 60, 200, 254, 255, 127, 100], device=device, dtype=torch.int32)
    words.copy_(first)
    x.q[1].fill_(127)
    with_one = codes.double() * torch.exp2(first.double() - 127)[:, None]
    q_values = x.q[0].double()
    logits = deep_gemm.fp8_fp4_mqa_logits(*x.arguments)
    assert logits[:, 5].isnan().all()
    seen = [1, 2, 3, 6, 7]  # the sum of the largest is infinite
    wanted = torch.einsum(
        "mhn,mh->mn", torch.einsum("mhd,nd->mhn", q_values, with_one[seen]).relu(), x.weights.double()
    )
    assert torch.allclose(logits[:, seen].double() / wanted, torch.ones_like(wanted), rtol=1e-4)
    assert (logits[:, 0].abs() < 1e-30).all()


@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("form", ["fp8", "mxfp8"])
def test_nan_of_a_query_is_its_row_s(device, form) -> None:
    x = fp8_dense(3, 40, 8, 64, form=form, device=device)
    q = x.q if form == "fp8" else x.q[0]
    q.view(torch.uint8)[1, 3, 17] = 0xFF
    logits = deep_gemm.fp8_fp4_mqa_logits(*x.arguments)
    assert logits[1].isnan().all()
    assert not logits[[0, 2]].isnan().any()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("block", [32, 64, 128])
@pytest.mark.parametrize("next_n", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(("heads", "d"), [(64, 128), (32, 128), (32, 64), (12, 32), (128, 64)])
@pytest.mark.parametrize("of_rows", [True, False])
def test_keys_in_blocks(device, block, next_n, heads, d, of_rows) -> None:
    """Of each row its length or of each request; blocks past those in use, and rows of keys not in use, are rubbish."""
    lengths = torch.randint(0, 300, (3, next_n) if of_rows else (3,), generator=generator_of(next_n + block))
    x = fp8_paged(lengths, next_n, heads, d, block, pad_bytes=32, device=device)
    logits = deep_gemm.fp8_fp4_paged_mqa_logits((x.q, None), x.cache, x.weights, x.lengths, x.table, None, 300, True)
    check_paged(x, logits)
    behind = torch.arange(300, device=logits.device) >= x.row_lengths()[:, None]
    assert torch.equal(logits == -torch.inf, behind)


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_rows_of_requests_one_by_one(device) -> None:
    """`indices`: each row brings its request's line of the table, and has a length of its own."""
    x = fp8_paged(torch.tensor([[100, 101, 102], [5, 6, 7]]), 3, 32, 64, 64, device=device)
    together = deep_gemm.fp8_fp4_paged_mqa_logits((x.q, None), x.cache, x.weights, x.lengths, x.table, None, 128, True)
    indices = torch.tensor([0, 0, 0, 1, 1, 1], dtype=torch.int32, device=device)
    lengths, table = x.lengths.view(-1, 1), x.table[indices.long()]
    meta = deep_gemm.get_paged_mqa_logits_metadata(lengths, 64, 4, indices)
    logits = deep_gemm.fp8_fp4_paged_mqa_logits(
        (x.q.view(6, 1, 32, 64), None), x.cache, x.weights, lengths, table, meta, 128, True, indices=indices
    )
    assert torch.equal(logits, together)


@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("sms", [1, 4, 132])
def test_paged_metadata_deals_splits_evenly(device, sms) -> None:
    lengths = torch.tensor([[3, 700], [9, 0], [1, 256], [0, 257]], dtype=torch.int32, device=device)
    starts = deep_gemm.get_paged_mqa_logits_metadata(lengths, 64, sms).tolist()
    splits = [(request, split) for request, count in enumerate([3, 0, 1, 2]) for split in range(count)] + [(4, 0)]
    assert starts == [list(splits[6 * sm // sms]) for sm in range(sms + 1)]
    assert deep_gemm.get_paged_mqa_logits_metadata(lengths[:, 1], 64, sms).tolist() == starts
    empty = deep_gemm.get_paged_mqa_logits_metadata(torch.zeros_like(lengths), 64, sms)
    assert empty.tolist() == [[4, 0]] * (sms + 1)


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_nothing_to_multiply(device) -> None:
    x = fp8_dense(0, 10, 8, 32, device=device)
    assert deep_gemm.fp8_mqa_logits(*x.arguments).shape == (0, 10)
    x = fp8_dense(3, 0, 8, 32, device=device)
    assert deep_gemm.fp8_mqa_logits(*x.arguments).shape == (3, 0)
    x = fp8_dense(3, 40, 8, 32, end=torch.zeros(3), device=device)
    assert torch.equal(deep_gemm.fp8_mqa_logits(*x.arguments), torch.full((3, 40), -torch.inf, device=device))
    p = fp8_paged(torch.zeros(2, 1, dtype=torch.int32), 1, 8, 32, 64, device=device)
    logits = deep_gemm.fp8_paged_mqa_logits(p.q, p.cache, p.weights, p.lengths, p.table, None, 50, True)
    assert torch.equal(logits, torch.full((2, 50), -torch.inf, device=device))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", devices_of("sm90", "any"), indirect=True)
@pytest.mark.kernels_of("sm90")
@pytest.mark.parametrize("rows", [2, 30])
@pytest.mark.parametrize(("products", "groups"), [(1, 2), (2, 2), (1, 3), (1, 4)])
def test_every_plan_gives_the_same_bits(device, rows, products, groups) -> None:
    """Those that tuning may force: products of a tile, and warpgroups."""
    first, end = ragged(rows, 200)
    x = fp8_dense(rows, 200, 64, 64, first=first, end=end, device=device)
    wanted = deep_gemm.fp8_mqa_logits(*x.arguments)
    C.force_logits_plan(products, groups)
    try:
        assert torch.equal(deep_gemm.fp8_mqa_logits(*x.arguments), wanted)
    finally:
        C.force_logits_plan(0, 0)


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_scales_may_start_anywhere(device) -> None:
    """A part of a tensor of scales, which the copy engine cannot read."""
    x = fp8_dense(3, 70, 8, 32, device=device)
    part = torch.cat([torch.zeros(1, device=device), x.kv[1]])[1:]
    q, kv, *others = x.arguments
    check_dense(x, deep_gemm.fp8_mqa_logits(q, (kv[0], part), *others))


@pytest.mark.gpu
def test_lengths_may_change_between_replays_of_a_graph(cuda) -> None:
    """Captured once; ranges, lengths and the table are read on the device."""
    p = fp8_paged(torch.tensor([[300, 301], [64, 128]]), 2, 64, 128, 64, device=cuda)
    x = fp8_dense(40, 500, 64, 128, device=cuda)

    def calls() -> tuple[torch.Tensor, torch.Tensor]:
        meta = deep_gemm.get_paged_mqa_logits_metadata(p.lengths, 64, deep_gemm.get_num_sms())
        paged = deep_gemm.fp8_paged_mqa_logits(p.q, p.cache, p.weights, p.lengths, p.table, meta, 320, True)
        return deep_gemm.fp8_mqa_logits(*x.arguments), paged

    calls()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = calls()
    for seed in range(3):
        first, end = ragged(40, 500, seed)
        x.first.copy_(first), x.end.copy_(end)
        p.lengths.copy_(torch.randint(0, 65, (2, 2), generator=generator_of(seed)))
        graph.replay()
        assert all(torch.equal(*pair) for pair in zip(captured, calls(), strict=True))
