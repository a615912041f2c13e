"""Products of batches of matrices (`einsum`, `fp8_einsum`), on every device against FP64."""

from __future__ import annotations

import pytest
import torch
from batched_inputs import FORMS, Batch, added_to, bf16_batch, fp8_batch, sum_of_products
from bf16_inputs import values
from candidates import forced_tile
from devices import EACH_ARCH, FEW
from inputs import GuardedOutput, with_row_padding
from reference import BF16_TOLERANCES, assert_matches

import deep_gemm

DTYPES = [torch.bfloat16, torch.float32]
# batch, M, N, K: single rows, ends of tiles and of K blocks, lines that the copy engine cannot read or store.
SIZES = [(3, 1, 8, 16), (2, 7, 136, 192), (1, 129, 72, 272), (3, 64, 100, 48)]
few = pytest.mark.parametrize("device", FEW, indirect=True)
each_arch = pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
each_form = pytest.mark.parametrize("expr", FORMS)


class TestBf16:
    @each_arch
    @pytest.mark.sampled(6)
    @each_form
    @pytest.mark.parametrize("sizes", [*SIZES, (2, 5, 9, 7)], ids=str)
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_each_product(self, device, expr, sizes, dtype) -> None:
        batch = bf16_batch(expr, *sizes, device)
        out = batch.output(dtype)
        batch.run(out.tensor)
        out.check()
        batch.check(out.tensor)

    @each_arch
    @each_form
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("in_place", [False, True])
    def test_c_is_added(self, device, expr, dtype, in_place) -> None:
        batch = bf16_batch(expr, 3, 20, 40, 72, device)
        out = batch.output(dtype)
        c = added_to(out)
        if not in_place:
            out.tensor.fill_(float("nan"))
        batch.run(out.tensor, c=out.tensor if in_place else c)
        out.check()
        batch.check(out.tensor, c)

    @each_arch
    @pytest.mark.parametrize("tokens", [1, 130])
    def test_many_matrices(self, device, tokens) -> None:
        """As many as there are heads: more than CTAs, each of which takes several."""
        batch = bf16_batch("bhr,hdr->bhd", 131, tokens, 16, 64, device)
        out = batch.output()
        with deep_gemm.simulator.options(num_sms=8):
            batch.run(out.tensor)
        out.check()
        batch.check(out.tensor)

    @each_arch
    @each_form
    def test_views_with_gaps(self, device, expr) -> None:
        """Operands as slices of wider tensors, and a D with gaps between its rows; what lies between is not touched."""
        batch = bf16_batch(expr, 2, 24, 40, 64, device)
        out = batch.output(row_padding=24)
        a, b = (with_row_padding(x, 128) for x in batch.given())
        deep_gemm.einsum(expr, a, b, out.tensor)
        out.check()
        batch.check(out.tensor)

    @few
    @pytest.mark.parametrize(
        "tile",
        [
            (True, 64, 8, (1, 1, 1), 2),
            (True, 128, 16, (1, 1, 2), 1),
            (False, 128, 64, (2, 1, 1), 1),
            (False, 64, 64, (1, 2, 1), 1),
            (False, 128, 128, (1, 1, 1), 1),
        ],
        ids=str,
    )
    def test_tiles_clusters_and_splits_of_k(self, device, tile) -> None:
        swapped, rows, cols, cluster, k_warpgroups = tile
        m, n, k = 16 if swapped else 256, 128, 832
        batch = bf16_batch("bhr,hdr->bhd", 3, m, n, k, device)
        out = batch.output()
        some = deep_gemm.simulator.options(num_sms=16)  # a split K wants all tiles at once
        with some, forced_tile(device, (m, n, k), swapped, rows, cols, cluster, k_warpgroups):
            batch.run(out.tensor)
        out.check()
        batch.check(out.tensor)


class TestFp8:
    @each_arch
    @pytest.mark.sampled(6)
    @each_form
    @pytest.mark.parametrize("sizes", SIZES, ids=str)
    @pytest.mark.parametrize("per_row_b", [False, True], ids=["blocks", "rows"])
    def test_each_product(self, device, expr, sizes, per_row_b) -> None:
        batch = fp8_batch(expr, *sizes, device, per_row_b)
        out = batch.output()
        batch.run(out.tensor, recipe=(1, 1 if per_row_b else 128, 128))
        out.check()
        batch.check(out.tensor)

    @each_arch
    @pytest.mark.parametrize("in_place", [False, True])
    def test_gradients_of_weights_are_added(self, device, in_place) -> None:
        batch = fp8_batch("bhd,bhr->hdr", 2, 136, 72, 320, device, per_row_b=True)
        out = batch.output(torch.float32)
        c = added_to(out)
        batch.run(out.tensor, c=out.tensor if in_place else c, recipe=(1, 1, 128))
        out.check()
        batch.check(out.tensor, c)

    @each_arch
    def test_e8m0_scales(self, device) -> None:
        batch = fp8_batch("bhr,hdr->bhd", 2, 10, 24, 256, device)
        out = batch.output()
        exponents = [operand.scales.to(torch.float8_e8m0fnu) for operand in (batch.a, batch.b)]
        batch.a, batch.b = (x._replace(scales=e.float()) for x, e in zip((batch.a, batch.b), exponents, strict=True))
        (a, a_scales), (b, b_scales) = batch.given()
        as_e8m0 = [(x, s.to(torch.float8_e8m0fnu)) for x, s in ((a, a_scales), (b, b_scales))]
        deep_gemm.fp8_einsum(batch.expr, *as_e8m0, out.tensor)
        out.check()
        batch.check(out.tensor)


class TestSum:
    """'bmk,bnk->mn', in parts that are added up where it is long enough."""

    EXPR = "bmk,bnk->mn"

    def check(self, d, a, b, c=None) -> None:
        assert_matches(d, sum_of_products(a, b, c), tolerances=BF16_TOLERANCES)

    @each_arch
    @pytest.mark.sampled(6)
    @pytest.mark.parametrize("sizes", [(1, 1, 8, 16), (3, 7, 24, 40), (129, 16, 24, 64), (20, 129, 100, 72)], ids=str)
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("added", [None, "apart", "in place"])
    def test_against_fp64(self, device, sizes, dtype, added) -> None:
        batch, m, n, k = sizes
        a, b = values((batch, m, k), device, 0), values((batch, n, k), device, 1)
        out = GuardedOutput((m, n), dtype, device, n + 12)
        c = None if added is None else added_to(out)
        if added != "in place":
            out.tensor.fill_(float("nan"))
        deep_gemm.einsum(self.EXPR, a, b, out.tensor, c=out.tensor if added == "in place" else c)
        out.check()
        self.check(out.tensor, a, b, c)

    @each_arch
    @pytest.mark.parametrize("k", [40, 7])
    @pytest.mark.parametrize("other_way", [False, True])
    def test_views_with_gaps(self, device, k, other_way) -> None:
        """Lines along K or along M and N, in slices of wider tensors or where the copy engine cannot read them."""
        a, b = (values((12, rows, k), device, rows) for rows in (24, 40))
        given = (with_row_padding(x.mT.contiguous(), 8).mT if other_way else with_row_padding(x, 9) for x in (a, b))
        out = GuardedOutput((24, 40), torch.float32, device)
        deep_gemm.einsum(self.EXPR, *given, out.tensor)
        out.check()
        self.check(out.tensor, a, b)

    @each_arch
    def test_equal_bits_from_run_to_run(self, device) -> None:
        a, b = values((64, 32, 64), device, 0), values((64, 48, 64), device, 1)
        results = [torch.empty((32, 48), device=device) for _ in range(3)]
        for d in results:
            deep_gemm.einsum(self.EXPR, a, b, d)
        self.check(results[0], a, b)
        assert all(torch.equal(d, results[0]) for d in results)

    @each_arch
    def test_batch_invariance(self, device, batch_invariant) -> None:
        """A row's bits do not depend on how many others there are."""
        a, b = values((40, 300, 64), device, 0), values((40, 48, 64), device, 1)
        whole, some = (torch.empty((rows, 48), device=device) for rows in (300, 16))
        deep_gemm.einsum(self.EXPR, a, b, whole)
        deep_gemm.einsum(self.EXPR, a[:, :16].contiguous(), b, some)
        assert torch.equal(some, whole[:16])

    @each_arch
    @pytest.mark.parametrize(("batch", "k"), [(0, 64), (3, 0)])
    def test_without_summands_d_becomes_c_or_zero(self, device, batch, k) -> None:
        a, b = values((batch, 5, k), device, 0), values((batch, 8, k), device, 1)
        out = GuardedOutput((5, 8), torch.float32, device)
        deep_gemm.einsum(self.EXPR, a, b, out.tensor)
        assert (out.tensor == 0).all()
        c = added_to(out)
        out.tensor.fill_(float("nan"))
        deep_gemm.einsum(self.EXPR, a, b, out.tensor, c=c)
        assert torch.equal(out.tensor, c)

    @each_arch
    def test_without_rows_there_is_nothing_to_do(self, device) -> None:
        out = GuardedOutput((5, 8), torch.float32, device)
        a, b = values((3, 5, 64), device, 0), values((3, 8, 64), device, 1)
        deep_gemm.einsum(self.EXPR, a[:, :0], b, out.tensor[:0])
        deep_gemm.einsum(self.EXPR, a, b[:, :0], out.tensor[:, :0])
        out.assert_untouched()

    @each_arch
    def test_rejections(self, device) -> None:
        a, b = values((3, 16, 64), device, 0), values((3, 24, 64), device, 1)
        out = GuardedOutput((16, 24), torch.float32, device)
        for wrong, message in [
            ({"a": a[0]}, r"a must be \[b, m, k\], got shape \[16, 64\]"),
            ({"b": b[:2]}, "bmk,bnk->mn: b has b=2 but a has b=3"),
            ({"b": b[..., :56]}, "bmk,bnk->mn: b has k=56 but a has k=64"),
            ({"d": out.tensor[:, :16]}, r"d must be \[m, n\] = \[16, 24\], got shape \[16, 16\]"),
            ({"c": out.tensor[:8]}, "c must have d's shape"),
        ]:
            with pytest.raises(ValueError, match=message):
                deep_gemm.einsum(self.EXPR, **{"a": a, "b": b, "d": out.tensor} | wrong)
        with pytest.raises(TypeError, match="a must be bfloat16 or float16, got float32"):
            deep_gemm.einsum(self.EXPR, a.float(), b, out.tensor)
        out.assert_untouched()


@each_arch
@pytest.mark.parametrize(("batch", "m", "n"), [(0, 5, 8), (3, 0, 8), (3, 5, 0)])
@pytest.mark.parametrize("make", [bf16_batch, fp8_batch])
def test_an_empty_d_takes_nothing(device, make, batch, m, n) -> None:
    case = make("bhr,hdr->bhd", batch, m, n, 64, device)
    case.run(torch.empty((m, batch, n), dtype=torch.bfloat16, device=device))


@each_arch
@pytest.mark.parametrize("make", [bf16_batch, fp8_batch])
def test_without_k_d_becomes_c_or_zero(device, make) -> None:
    case = make("bhr,hdr->bhd", 3, 5, 8, 0, device)
    out = case.output()
    case.run(out.tensor)
    out.check()
    assert (out.tensor == 0).all()
    c = values(out.tensor.shape, device, 0)
    case.run(out.tensor, c=c)
    assert torch.equal(out.tensor, c)


@each_arch
def test_batch_invariance(device, batch_invariant) -> None:
    """A token's bits do not depend on how many others there are."""
    whole = bf16_batch("bhr,hdr->bhd", 2, 70, 64, 512, device)
    a, b = whole.given()
    d = torch.empty((70, 2, 64), dtype=torch.bfloat16, device=device)
    deep_gemm.einsum(whole.expr, a, b, d)
    for tokens in (1, 9, 64):
        some = torch.empty_like(d[:tokens])
        deep_gemm.einsum(whole.expr, a[:tokens].contiguous(), b, some)
        assert torch.equal(some, d[:tokens])


@each_arch
def test_through_torch(device) -> None:
    """`use_cublaslt` is a baseline with the same meaning."""
    batch = bf16_batch("bhd,hdr->bhr", 2, 5, 24, 40, device)
    for dtype in DTYPES:
        out = batch.output(dtype)
        c = added_to(out)
        batch.run(out.tensor, c=c, use_cublaslt=True)
        assert torch.allclose(
            out.tensor.double(),
            c.double() + torch.einsum(batch.expr, *(x.double() for x in batch.given())),
            rtol=2**-6,
            atol=2**-5,
        )


class TestRejections:
    """What cannot be right is refused, saying what was wanted and what came; nothing is written."""

    def refuses(self, batch: Batch, out: GuardedOutput, error, message, **changes) -> None:
        arguments = dict(zip("ab", batch.given(), strict=True), expr=batch.expr, d=out.tensor, c=None) | changes
        function = deep_gemm.fp8_einsum if isinstance(arguments["a"], tuple) else deep_gemm.einsum
        with pytest.raises(error, match=message):
            function(arguments["expr"], arguments["a"], arguments["b"], arguments["d"], arguments["c"])
        out.assert_untouched()

    @pytest.fixture
    def case(self, device) -> tuple[Batch, GuardedOutput]:
        batch = bf16_batch("bhr,hdr->bhd", 2, 6, 24, 64, device)
        return batch, batch.output()

    @each_arch
    def test_unknown_expressions(self, device, case) -> None:
        known = r"expr must be one of 'bhr,hdr->bhd', 'bhd,hdr->bhr', 'bhd,bhr->hdr'.*, got 'bij,bjk->bik'"
        self.refuses(*case, ValueError, known, expr="bij,bjk->bik")
        self.refuses(*case, TypeError, "expr must be a str", expr=3)
        fp8 = fp8_batch("bhr,hdr->bhd", 2, 6, 24, 64, device)
        self.refuses(fp8, fp8.output(), ValueError, "got 'bmk,bnk->mn'", expr="bmk,bnk->mn")

    @each_arch
    def test_wrong_shapes(self, device, case) -> None:
        batch, out = case
        a, b = batch.given()
        self.refuses(*case, ValueError, r"a must be \[b, h, r\], got shape \[6, 64\]", a=a[:, 0])
        self.refuses(*case, ValueError, "bhr,hdr->bhd: b has h=1 but a has h=2", b=b[:1])
        self.refuses(*case, ValueError, "bhr,hdr->bhd: b has r=56 but a has r=64", b=b[..., :56].contiguous())
        self.refuses(*case, ValueError, "bhr,hdr->bhd: d has d=16 but b has d=24", d=out.tensor[..., :16])
        self.refuses(*case, ValueError, "bhr,hdr->bhd: d has b=5 but a has b=6", d=out.tensor[:5])
        self.refuses(*case, ValueError, "c must have d's shape", c=torch.zeros_like(out.tensor)[:5])

    @each_arch
    def test_wrong_kinds_and_places(self, device, case) -> None:
        batch, out = case
        a, _ = batch.given()
        self.refuses(*case, TypeError, "a must be bfloat16 or float16, got float32", a=a.float())
        self.refuses(*case, ValueError, "d must have N contiguous", d=out.tensor.transpose(1, 2).contiguous().mT)
        self.refuses(*case, ValueError, "d's groups overlap", d=out.tensor[:, :1].expand(-1, 2, -1))
        self.refuses(*case, ValueError, "d shares memory with a", a=a, d=a[..., :24])

    @few
    def test_wrong_scales(self, device) -> None:
        batch = fp8_batch("bhd,bhr->hdr", 2, 24, 40, 256, device, per_row_b=True)
        (a, sfa), b = batch.given()
        out = batch.output()
        wanted = r"a's scales must be \[2, 2, 24\] \(one float32 per row and 128 of K of a\), got shape \[2, 24, 2\]"
        self.refuses(batch, out, ValueError, wanted, a=(a, sfa.permute(1, 2, 0)))
        self.refuses(batch, out, ValueError, r"b's scales must be \[2, 2, 1\] \(one float32 per 128 rows", b=b)
