"""One small case of each function and of each kind of kernel, for compute-sanitizer:

    for tool in memcheck racecheck initcheck synccheck; do
        PYTHONPATH=. compute-sanitizer --tool $tool python tests/support/sanitizer_cases.py [names of cases]
    done

racecheck reports one race that is none wherever the ring of stages comes round more than once: a math warp's read of a
block scale against the scale warp's next write. One lane arrives at the stage's barrier for its warp, behind a
__syncwarp() of which the machine code, where the warp cannot have diverged, keeps nothing that the tool could see. With
all 32 lanes arriving (and 32 times as many arrivals awaited) it reports nothing.

memcheck takes the columns' scales of the products of scales, of which the descriptor has wgmma read the same 16 bytes
a column twice, for an operand of 32 bytes a column. The launch has room for that (plan_smem); without it, memcheck
reports reads past shared memory.

On an H100 (NVRTC 13.0), all of these cases but packed_weights, which has not run there: memcheck, initcheck and
synccheck reported nothing, racecheck the race above in expert_tiles and nothing else; of shared_tiles, whose CTAs wait
for each other, it did not end within 260 s.

Prints what ran and exits 1 where a result is wrong. No pytest file: a sanitizer makes each launch many times slower.
"""

from __future__ import annotations

import sys

import torch
from candidates import candidates, forced, forced_tile, grouped_candidates, straight
from grouped_inputs import contiguous, masked
from inputs import Operand, random_blocks, random_rows, random_values, with_row_padding
from products import PRODUCTS, make
from reference import assert_matches, product_nt

import deep_gemm
from deep_gemm._targets import HOPPER_SMS
from deep_gemm.utils import pack_int4

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def dense() -> None:
    """The cheapest config of each frame and cluster."""
    m, n, k = 40, 136, 1040
    a, b = random_rows((m, k), DEVICE, 0), random_blocks((n, k), DEVICE, 1)
    expected = product_nt(a, b)
    seen = set()
    for candidate in candidates(m, n, k, HOPPER_SMS if DEVICE.type == "cuda" else 4):
        kind = (candidate.swapped, candidate.rows, candidate.cluster_shape)
        if candidate.rejection is None and kind not in seen:
            seen.add(kind)
            with forced(DEVICE, m, n, k, candidate):
                for dtype in (torch.bfloat16, torch.float32):
                    d = torch.full((m, n), float("nan"), dtype=dtype, device=DEVICE)
                    deep_gemm.fp8_gemm_nt(a, b, d)
                    assert_matches(d, expected, f"{candidate}")
    print(f"dense: {len(seen)} kinds of config")


def layouts() -> None:
    m, n, k = 40, 72, 272
    a, b = random_rows((m, k), DEVICE, 0), random_blocks((n, k), DEVICE, 1)
    flipped_a, flipped_b = (Operand(x.data.T.contiguous(), x.scales.T.contiguous()) for x in (a, b))
    for name in ("nt", "nn", "tn", "tt"):
        d = torch.ones((m, n), device=DEVICE)
        function = getattr(deep_gemm, f"fp8_gemm_{name}")
        function(flipped_a if name[0] == "t" else a, flipped_b if name[1] == "n" else b, d)
        assert_matches(d, product_nt(a, b), name)
    print("dense: nt, nn, tn, tt")


def weight_gradient() -> None:
    a, b = random_rows((200, 400), DEVICE, 0), random_rows((136, 400), DEVICE, 1)
    d = torch.ones((200, 136), device=DEVICE)
    deep_gemm.fp8_gemm_nt(a, b, d, c=d, recipe=(1, 1, 128))
    assert_matches(d - 1, product_nt(a, b), "wgrad")
    print("dense: scales per row, C in place")


def grouped() -> None:
    case = contiguous([1, 0, 130, 64], 136, 272, DEVICE)
    for psum in (False, True):
        d = torch.full((case.m, case.n), float("nan"), dtype=torch.bfloat16, device=DEVICE)
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, d, case.layout(psum), use_psum_layout=psum)
        case.check(d)
    few = masked([3, 0, 64, 17], 64, 136, 272, DEVICE)
    for hint in (4, 64):
        d = torch.full((4, 64, 136), float("nan"), dtype=torch.bfloat16, device=DEVICE)
        deep_gemm.m_grouped_fp8_gemm_nt_masked(few.a, few.b, d, few.counts, hint)
        few.check(d)
    print("m-grouped: contiguous, psum, masked")


def expert_tiles() -> None:
    """Tiles that begin where experts do, several a CTA: those of 256 rows leave out padding and are stored under the
    next one's first wgmma, as those of 192 columns are, and both let stages go early; one of 64 rows has no padding."""
    n, k = 264, 400
    case = contiguous([5, 130, 300], n, k, DEVICE)
    before = deep_gemm.get_num_sms()
    deep_gemm.set_num_sms(2)
    try:
        for rows, cols in ((256, 128), (128, 192), (64, 128)):
            candidate = straight(grouped_candidates("m_contiguous", 3, case.m, n, k, num_sms=2), rows, cols)
            d = torch.full((case.m, n), float("nan"), dtype=torch.bfloat16, device=DEVICE)
            with forced(DEVICE, case.m, n, k, candidate):
                deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, d, case.layout(False))
            case.check(d)
    finally:
        deep_gemm.set_num_sms(before)
    print("m-grouped: contiguous, tiles of 256, 128 and 64 rows")


def shared_tiles() -> None:
    """The last tiles shared by pairs of CTAs: stored at once, late, and 128 rows a warpgroup."""
    k = 9 * 128
    before = deep_gemm.get_num_sms()
    deep_gemm.set_num_sms(4)
    try:
        for rows, cols, m, n in ((128, 128, 520, 104), (128, 192, 380, 384), (256, 128, 1200, 128)):
            a, b = random_rows((m, k), DEVICE, 0), random_blocks((n, k), DEVICE, 1)
            d = torch.full((m, n), float("nan"), dtype=torch.bfloat16, device=DEVICE)
            with forced_tile(DEVICE, (m, n, k), False, rows, cols, (1, 1, 2)):
                deep_gemm.fp8_gemm_nt(a, b, d)
            assert_matches(d, product_nt(a, b), f"{rows}x{cols}")
    finally:
        deep_gemm.set_num_sms(before)
    print("dense: last tiles shared by pairs")


def products() -> None:
    """Scales per row on both sides, multiplied by the tensor cores, and several tiles a CTA."""
    m, n, k = 300, 264, 1040
    a, b = random_rows((m, k), DEVICE, 2), random_rows((n, k), DEVICE, 3)
    d = torch.full((m, n), float("nan"), device=DEVICE)
    before = deep_gemm.get_num_sms()
    deep_gemm.set_num_sms(2)
    try:
        with forced_tile(DEVICE, (m, n, k), False, 128, 128):
            deep_gemm.fp8_gemm_nt(a, b, d, recipe=(1, 1, 128))
    finally:
        deep_gemm.set_num_sms(before)
    assert_matches(d, product_nt(a, b), "products of scales")
    print("weight gradient: products of scales by wgmma")


def k_grouped() -> None:
    ks = [128, 0, 272]
    parts = [(random_rows((72, k), DEVICE, k), random_rows((40, k), DEVICE, k + 1)) for k in ks]
    layout = torch.tensor(ks, dtype=torch.int32, device=DEVICE)
    for name in ("nt", "tn"):
        operands = []
        for side in (0, 1):
            data = [p[side].data.view(torch.uint8) for p in parts]
            joined = torch.cat([x.flatten() for x in data]) if name == "nt" else torch.cat([x.T for x in data])
            scales = torch.cat([p[side].scales.T for p in parts]).contiguous()
            operands.append(Operand(joined.contiguous().view(torch.float8_e4m3fn), scales))
        d = torch.zeros((len(ks), 72, 40), device=DEVICE)
        getattr(deep_gemm, f"k_grouped_fp8_gemm_{name}_contiguous")(*operands, d, ks, layout, c=d)
        for group, (a, b) in enumerate(parts):
            if ks[group]:
                assert_matches(d[group], product_nt(a, b), f"{name}, group {group}")
    print("k-grouped: nt, tn")


def bf16() -> None:
    """Every layout, C, several tiles a CTA; experts; K groups."""
    m, n, k = 300, 264, 200
    a, b = (random_values((rows, k), DEVICE, seed).bfloat16() for seed, rows in enumerate((m, n)))
    pad = with_row_padding(a.T, -m % 8)
    for rows, cols, sms in ((128, 128, 2), (64, 64, HOPPER_SMS)):
        before = deep_gemm.get_num_sms()
        deep_gemm.set_num_sms(min(sms, before))
        try:
            for name in ("nt", "nn", "tn", "tt"):
                d = torch.ones((m, n), device=DEVICE)
                with forced_tile(DEVICE, (m, n, k), False, rows, cols):
                    function = getattr(deep_gemm, f"bf16_gemm_{name}")
                    function(pad if name[0] == "t" else a, b.T.contiguous() if name[1] == "n" else b, d, c=d)
                assert_matches(d - 1, product_nt(a, b), name)
        finally:
            deep_gemm.set_num_sms(before)
    layout = torch.full((256,), -1, dtype=torch.int32, device=DEVICE)
    layout[:100], layout[128:200] = 0, 1
    d = torch.full((256, 132), float("nan"), dtype=torch.bfloat16, device=DEVICE)
    deep_gemm.m_grouped_bf16_gemm_nt_contiguous(a[:256], b.view(2, 132, k), d, layout)
    assert_matches(d[128:200], product_nt(a[128:200], b[132:]), "contiguous")
    few = torch.tensor([3, 70], dtype=torch.int32, device=DEVICE)
    d = torch.full((2, 100, 132), float("nan"), dtype=torch.bfloat16, device=DEVICE)
    deep_gemm.m_grouped_bf16_gemm_nt_masked(a[:200].view(2, 100, k), b.view(2, 132, k), d, few, 50)
    assert_matches(d[1, :70], product_nt(a[100:170], b[132:]), "masked")
    ks = torch.tensor([100, 0, 200], dtype=torch.int32, device=DEVICE)
    d = torch.zeros((3, 200, 200), device=DEVICE)
    deep_gemm.k_grouped_bf16_gemm_tn_contiguous(a[:, :200], a[:, :200], d, ks.tolist(), ks, c=d)
    assert_matches(d[2], product_nt(a[100:].T, a[100:].T), "k groups")
    print("bf16: nt, nn, tn, tt, contiguous, masked, k-grouped")


def copies() -> None:
    """Operands in lines that start anywhere, and E8M0 scales."""
    m, n, k = 70, 75, 70
    a, b = (random_values((rows, k), DEVICE, seed).bfloat16() for seed, rows in enumerate((m, n)))
    for offset in (0, 1, 4):
        room = torch.empty(offset + m * k, dtype=torch.bfloat16, device=DEVICE)
        moved = room[offset:].view(m, k)
        moved.copy_(a)
        d = torch.empty((m, n), device=DEVICE)
        deep_gemm.bf16_gemm_nn(moved, b.T.contiguous(), d)
        assert_matches(d, product_nt(a, b), f"{offset} elements off")
    x, w = random_rows((40, 272), DEVICE, 0), random_blocks((136, 272), DEVICE, 1)
    one = torch.full((40, 3), 127, dtype=torch.uint8, device=DEVICE)
    d = torch.empty((40, 136), device=DEVICE)
    deep_gemm.fp8_gemm_nt((x.data, one.view(torch.float8_e8m0fnu)), w, d)
    assert_matches(d, product_nt(Operand(x.data, one - 126.0), w), "E8M0")
    print("copied operands, E8M0 scales")


def wrong_counts() -> None:
    """K groups of which the device says what the host does not; the CPU refuses them."""
    if DEVICE.type != "cuda":
        return
    x, flat = random_rows((72, 256), DEVICE, 0), random_values((300, 72), DEVICE, 1).bfloat16()
    columns = Operand(x.data.view(torch.uint8).T.contiguous().view(torch.float8_e4m3fn), x.scales.T.contiguous())
    d = torch.zeros((2, 72, 72), device=DEVICE)
    for wrong in ((2**31 - 1, 2**31 - 1), (-5, 2**31 - 1), (1000, -(2**31))):
        sizes = torch.tensor(wrong, dtype=torch.int32, device=DEVICE)
        for psum in (False, True):
            deep_gemm.k_grouped_fp8_gemm_tn_contiguous(columns, columns, d, [128, 128], sizes, use_psum_layout=psum)
        deep_gemm.k_grouped_fp8_gemm_nt_contiguous(
            Operand(x.data.flatten(), x.scales), Operand(x.data.flatten(), x.scales), d, [128, 128], sizes
        )
        deep_gemm.k_grouped_bf16_gemm_tn_contiguous(flat, flat, d, [100, 200], sizes)
    print("k-grouped: counts that contradict the host")


def scale_layouts() -> None:
    scales = torch.exp2(torch.randint(-9, 9, (2, 37, 5), device=DEVICE).float())
    assert torch.equal(deep_gemm.get_mn_major_tma_aligned_tensor(scales), scales)
    assert deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(scales).shape == (2, 37, 2)
    print("scale layouts")


def packed_weights() -> None:
    """Packing on the device, in every order and form, and products with the results."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(-7, 8, (136, 288), generator=generator, dtype=torch.int8).to(DEVICE)
    x = random_rows((40, 288), DEVICE, 0)
    d = torch.empty((40, 136), device=DEVICE)
    for smallest in (-7, -8):
        values[135, 287] = smallest
        wanted = x.data.double() * x.scales.double().repeat_interleave(128, 1)[:, :288] @ values.double().T
        for pairs in (False, True):
            given = pack_int4(values) if pairs else values
            w = deep_gemm.pack_weights(
                given, torch.ones(136, device=DEVICE), element="int4", activations="fp8", packed=pairs
            )
            deep_gemm.fp8_int4_gemm_nt(tuple(x), w, d)
            assert (d.double() - wanted).abs().max() <= 1e-3 * wanted.abs().max()
    codes = pack_int4(values)
    deep_gemm.fp8_fp4_gemm_nt(tuple(x), (codes, torch.ones((136, 9), device=DEVICE)), d)
    print("weights packed on the device, and by each call")


def every_call() -> None:
    """A small call of every public product."""
    for name in PRODUCTS:
        call = make(name)
        arguments = {
            key: tuple(part.to(DEVICE) for part in value)
            if isinstance(value, tuple) and isinstance(value[0], torch.Tensor)
            else value.to(DEVICE)
            if isinstance(value, torch.Tensor)
            else value
            for key, value in call.arguments.items()
        }
        call.function(**arguments)
        print(name)


if __name__ == "__main__":
    every = (
        every_call,
        dense,
        layouts,
        weight_gradient,
        grouped,
        expert_tiles,
        shared_tiles,
        products,
        k_grouped,
        bf16,
        copies,
        wrong_counts,
        scale_layouts,
        packed_weights,
    )
    cases = {case.__name__: case for case in every}
    for name in sys.argv[1:] or cases:
        cases[name]()
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    print("all right")
