"""Packed UE8M0 scales (int32, four exponents a word) where kernels multiply FP32 scales: bits are those of FP32 ones.

SM100 multiplies words by themselves (test_exponent_calls.py); here its kernel of FP32 scales takes them too.
"""

from __future__ import annotations

import pytest
import torch
from devices import PACK_PAIRS, on_simulator
from grouped_inputs import alignment_of
from inputs import FP8, ceil_div, random_values
from scale_forms import LYING, WRITTEN, Form, laid_out, words, written

import deep_gemm

DEVICES = [*PACK_PAIRS, *on_simulator("any", arch="sm_120")]  # (sm_120a multiplies exponents)
M, N, K = 42, 136, 656  # six scales a row: the second word has two that mean nothing


def scales(shape: tuple[int, ...], device: torch.device, seed: int) -> torch.Tensor:
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.exp2(torch.randint(-8, 8, shape, device=device, generator=generator).float())


def fp8(shape: tuple[int, ...], device: torch.device, seed: int) -> torch.Tensor:
    return random_values(shape, device, seed).to(FP8)


def in_form(values: torch.Tensor, form: Form) -> torch.Tensor:
    return laid_out(written(values, form), form)


def nothing(*shape: int, device: torch.device) -> torch.Tensor:
    return torch.full(shape, float("nan"), device=device)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
@pytest.mark.parametrize("lying", LYING)
@pytest.mark.parametrize("of_b", ["words", "blocks", "rows"])
def test_dense(device, layout, lying, of_b) -> None:
    a, b, sfa = fp8((M, K), device, 0), fp8((N, K), device, 1), scales((M, 6), device, 2)
    sfb = scales((ceil_div(N, 128) if of_b == "blocks" else N, 6), device, 3)
    recipe = (1, 128, 128) if of_b == "blocks" else (1, 1, 128)

    def call(of_a: torch.Tensor, of_b: torch.Tensor, recipe) -> torch.Tensor:
        d = nothing(M, N, device=device)
        pair_a = (a, of_a) if layout[0] == "n" else (a.T, of_a.T)
        pair_b = (b, of_b) if layout[1] == "t" else (b.T, of_b.T)
        getattr(deep_gemm, f"fp8_gemm_{layout}")(pair_a, pair_b, d, recipe=recipe)
        return d

    form = Form("words", lying)
    # Words of b are per row without a recipe, as on SM100.
    given = (in_form(sfb, form), None) if of_b == "words" else (sfb, recipe)
    assert torch.equal(call(in_form(sfa, form), *given), call(sfa, sfb, recipe))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("of_b", ["words", "blocks of 32", "blocks of 128", "128 of K"])
@pytest.mark.parametrize("grouping", ["dense", "contiguous", "masked"])
def test_32_of_k(device, of_b, grouping) -> None:
    """MXFP8: words, and FP32 scales of rows, are as good as each other, and those of blocks as those of their rows."""
    k, n = 208, 72
    of_experts = grouping != "dense"
    shape_a, shape_b = ((2, 64, k), (2, n, k)) if of_experts else ((M, k), (n, k))
    a, b = fp8(shape_a, device, 0), fp8(shape_b, device, 1)
    sfa = scales((*shape_a[:-1], 7), device, 2)
    rows = {"blocks of 32": 32, "blocks of 128": 128}.get(of_b, 1)
    gran_b = 128 if of_b == "128 of K" else 32
    sfb = scales((*shape_b[:-2], ceil_div(n, rows), ceil_div(k, gran_b)), device, 3)

    def call(of_a: torch.Tensor, of_b: torch.Tensor, rows_b: int) -> torch.Tensor:
        d = torch.zeros((*shape_a[:-1], n), device=device)
        recipes = {"recipe_a": (1, 32), "recipe_b": (rows_b, gran_b)}
        if grouping == "dense":
            deep_gemm.fp8_gemm_nt((a, of_a), (b, of_b), d, **recipes)
        elif grouping == "masked":
            counts = torch.tensor([64, 64], dtype=torch.int32, device=device)
            deep_gemm.m_grouped_fp8_gemm_nt_masked((a, of_a), (b, of_b), d, counts, 64, **recipes)
        else:
            owners = torch.arange(2, dtype=torch.int32, device=device).repeat_interleave(64)
            with alignment_of(64):
                deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
                    (a.view(128, k), of_a.flatten(0, 1)), (b, of_b), d.view(128, n), owners, **recipes
                )
        return d

    every = sfb.repeat_interleave(rows, -2)[..., :n, :]
    result = call(words(sfa), words(sfb) if of_b == "words" else sfb, rows)
    assert torch.equal(result, call(sfa, every, 1))
    exact_a = a.double() * sfa.double().repeat_interleave(32, -1)[..., :k]
    exact_b = b.double() * every.double().repeat_interleave(gran_b, -1)[..., :k]
    wanted = exact_a @ exact_b.mT
    tolerance = 1e-6 if device.type == "cpu" else 1e-3
    assert (result.double() - wanted).norm() <= tolerance * wanted.norm()


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_what_lies_behind_k_means_nothing(device) -> None:
    a, b, sfa, sfb = (
        fp8((8, K), device, 0),
        fp8((N, K), device, 1),
        scales((8, 6), device, 2),
        scales((N, 6), device, 3),
    )
    results = []
    for fill in (0, -1):
        given = []
        for each in (sfa, sfb):
            filled = words(each)
            filled[:, 1] = filled[:, 1] & 0xFFFF | fill << 16
            given.append(filled)
        d = nothing(8, N, device=device)
        deep_gemm.fp8_gemm_nt((a, given[0]), (b, given[1]), d)
        results.append(d)
    assert results[0].isfinite().all()
    assert torch.equal(*results)


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_every_exponent(device) -> None:
    """0 is 2^-127, which is subnormal; 255 is NaN."""
    exponent = torch.tensor([*range(256), 252, 253, 254, 127], dtype=torch.uint8, device=device)
    a = torch.zeros((65, 512), device=device)
    a[:, ::128] = 1
    one = torch.zeros((4, 512), device=device)
    one[torch.arange(4), torch.arange(4) * 128] = 1
    ones = torch.full((4, 1), 0x7F7F7F7F, dtype=torch.int32, device=device)
    d = nothing(65, 4, device=device)
    deep_gemm.fp8_gemm_nt((a.to(FP8), exponent.view(torch.int32)[:, None]), (one.to(FP8), ones), d)
    wanted = torch.exp2(exponent.double() - 127).float().view(65, 4)
    with_nan = 63
    assert d[with_nan].isnan().all()
    d[with_nan] = wanted[with_nan] = 0
    assert torch.equal(d, wanted)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("grouping", ["contiguous", "psum", "masked"])
@pytest.mark.parametrize("lying", LYING)
def test_experts(device, grouping, lying) -> None:
    a, b = fp8((2, 64, K), device, 0), fp8((2, 40, K), device, 1)
    sfa, sfb = scales((2, 64, 6), device, 2), scales((2, 40, 6), device, 3)

    def call(form: Form | None) -> torch.Tensor:
        d = torch.zeros((2, 64, 40), device=device)
        of_a, of_b = (sfa, sfb) if form is None else (in_form(sfa, form), in_form(sfb, form))
        recipe = {"recipe": (1, 1, 128)} if form is None else {}
        if grouping == "masked":
            counts = torch.tensor([64, 7], dtype=torch.int32, device=device)
            deep_gemm.m_grouped_fp8_gemm_nt_masked((a, of_a), (b, of_b), d, counts, 64, **recipe)
            d[1, 7:] = 0
            return d
        psum = grouping == "psum"
        layout = torch.tensor([50, 128] if psum else [0] * 64 + [1] * 64, dtype=torch.int32, device=device)
        flat = sfa.view(128, 6) if form is None else in_form(sfa.view(128, 6), form)
        with alignment_of(64):
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
                (a.view(128, K), flat), (b, of_b), d.view(128, 40), layout, use_psum_layout=psum, **recipe
            )
        return d

    result = call(Form("words", lying))
    assert result.any()
    assert torch.equal(result, call(None))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("layout", ["tn", "tn psum", "nt"])
@pytest.mark.parametrize("rows_first", [False, True])
def test_k_groups(device, layout, rows_first) -> None:
    """No word is of two groups. In the psum layout nobody need say the sizes on the host."""
    ks, m, n = [656, 0, 128, 48], 40, 24
    blocks = [ceil_div(k, 128) for k in ks]
    psum, flat = "psum" in layout, layout == "nt"
    ends, total = [], 0
    for k in ks:
        total = ceil_div(total, 128) * 128 + k if psum else total + k
        ends.append(total)
    a, b = fp8((total, m), device, 0), fp8((total, n), device, 1)
    sfa, sfb = scales((sum(blocks), m), device, 2), scales((sum(blocks), n), device, 3)
    sizes = torch.tensor(ends if psum else ks, dtype=torch.int32, device=device)

    def flattened(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([part.T.flatten() for part in x.split(ks)]) if flat else x

    def packed(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([words(part.T).T for part in x.split(blocks)])

    def call(of_a: torch.Tensor, of_b: torch.Tensor, host: list[int] | None) -> torch.Tensor:
        d = nothing(4, m, n, device=device)
        function = getattr(deep_gemm, f"k_grouped_fp8_gemm_{layout[:2]}_contiguous")
        given = [x.T.contiguous() if rows_first else x for x in (of_a, of_b)]
        pairs = (flattened(a), given[0]), (flattened(b), given[1])
        with alignment_of(128):
            function(*pairs, d, host, sizes, use_psum_layout=psum)
        return d

    wanted = call(sfa, sfb, ks)
    assert wanted.isfinite().all()
    assert torch.equal(call(packed(sfa), packed(sfb), ks), wanted)
    assert torch.equal(call(packed(sfa), sfb, ks), wanted)
    if psum:
        assert torch.equal(call(packed(sfa), packed(sfb), None), wanted)


@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("form", ["bhr,hdr->bhd", "bhd,hdr->bhr", "bhd,bhr->hdr"])
def test_batched(device, form) -> None:
    b, h, r, d = 24, 2, 640, 640
    sizes = {"b": b, "h": h, "r": r, "d": d}
    of_a, of_b, of_d = form[:3], form[4:7], form[9:]
    if form == "bhd,bhr->hdr":
        sizes["b"], sizes["d"], sizes["r"] = 640, 24, 40
    summed = next(letter for letter in of_a if letter in of_b and letter not in of_d)

    def operand(letters: str, seed: int):
        shape = tuple(sizes[letter] for letter in letters)
        data = fp8(shape, device, seed)
        axis = letters.index(summed)
        of_rows = scales(tuple(size // 128 if i == axis else size for i, size in enumerate(shape)), device, seed + 2)
        return data, of_rows, words(of_rows.movedim(axis, -1)).movedim(-1, axis)

    (x, sfx, wx), (y, sfy, wy) = operand(of_a, 0), operand(of_b, 1)
    results = []
    for given in (((x, sfx), (y, sfy)), ((x, wx), (y, wy)), ((x, wx), (y, sfy))):
        out = nothing(*(sizes[letter] for letter in of_d), device=device)
        deep_gemm.fp8_einsum(form, *given, out, recipe=(1, 1, 128))
        results.append(out)
    assert results[0].isfinite().all()
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("k", [128, 640])
@pytest.mark.parametrize("weights", ["int4", "fp4 pair", "fp8 pair beside bf16"])
def test_beside_packed_weights(device, k, weights) -> None:
    a, sfa = fp8((20, k), device, 1), scales((20, ceil_div(k, 128)), device, 2)
    generator = torch.Generator(device).manual_seed(0)
    d, expected = (nothing(20, 72, device=device) for _ in range(2))
    if weights == "int4":
        q = torch.randint(-8, 8, (72, k), dtype=torch.int8, device=device, generator=generator)
        w = deep_gemm.pack_weights(q, torch.ones(72, device=device), element="int4", activations="fp8")
        deep_gemm.fp8_int4_gemm_nt((a, words(sfa)), w, d)
        deep_gemm.fp8_int4_gemm_nt((a, sfa), w, expected)
    elif weights == "fp8 pair beside bf16":
        b, of_blocks = fp8((72, k), device, 2), scales((1, ceil_div(k, 128)), device, 3)
        deep_gemm.bf16_fp8_gemm_nt(a.bfloat16(), (b, words(of_blocks).expand(72, -1)), d)
        deep_gemm.bf16_fp8_gemm_nt(a.bfloat16(), (b, of_blocks), expected)
        assert expected.isfinite().all()
    else:
        codes = torch.randint(-128, 128, (72, k // 2), dtype=torch.int8, device=device, generator=generator)
        sfb = scales((72, k // 32), device, 3)
        recipes = {"recipe_a": (1, 128), "recipe_b": (1, 32)}
        deep_gemm.fp8_fp4_gemm_nt((a, words(sfa)), (codes, words(sfb)), d, **recipes)
        deep_gemm.fp8_fp4_gemm_nt((a, sfa), (codes, sfb), expected, **recipes)
    assert torch.equal(d, expected)


BLACKWELL = on_simulator("any", arch="sm100")


@pytest.mark.parametrize("device", BLACKWELL, indirect=True)
@pytest.mark.parametrize("gran_k", [128, 32])
def test_the_flag_is_about_float32_scales(device, gran_k) -> None:
    """Words with disable_ue8m0_cast=True are multiplied as without it, on Blackwell too."""
    a, b = fp8((M, K), device, 0), fp8((N, K), device, 1)
    pairs = [(x, words(scales((len(x), ceil_div(K, gran_k)), device, seed))) for seed, x in enumerate((a, b))]
    results = []
    for flag in (True, False):
        d = nothing(M, N, device=device)
        deep_gemm.fp8_gemm_nt(*pairs, d, disable_ue8m0_cast=flag, recipe_a=(1, gran_k), recipe_b=(1, gran_k))
        results.append(d)
    assert results[0].isfinite().all()
    assert torch.equal(*results)


@pytest.mark.parametrize("device", BLACKWELL, indirect=True)
@pytest.mark.parametrize("how", ["argument", "setting"])
@pytest.mark.parametrize("kind", WRITTEN)
def test_words_beside_float32_scales_of_any_value(device, how, kind) -> None:
    """Where one operand has FP32 scales that are to be multiplied as they are, the other's words are unpacked."""
    a, b, sfa, sfb = (
        fp8((M, K), device, 0),
        fp8((N, K), device, 1),
        scales((M, 6), device, 2),
        scales((2, 6), device, 3),
    )
    sfb = sfb * 1.25
    before = deep_gemm.get_fp32_scales(device)
    results = []
    try:
        deep_gemm.set_fp32_scales(how == "setting", device)
        for of_a in (sfa, in_form(sfa, Form(kind))):
            d = nothing(M, N, device=device)
            deep_gemm.fp8_gemm_nt((a, of_a), (b, sfb), d, recipe=(1, 128, 128), disable_ue8m0_cast=how == "argument")
            results.append(d)
    finally:
        deep_gemm.set_fp32_scales(before, device)
    assert results[0].isfinite().all()
    assert torch.equal(*results)
