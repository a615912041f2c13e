"""deep_gemm.utils: casts to FP4 and back."""

import itertools

import pytest
import torch
from inputs import random_values

from deep_gemm import utils

FP4_VALUES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


class TestFp4:
    @staticmethod
    def codes(x: list[float]) -> list[int]:
        """Codes of values of one group whose scale is 1."""
        t, sf = utils.per_token_cast_to_fp4(torch.tensor([[6.0, *x, *[0.0] * (31 - len(x))]]), False, gran_k=32)
        assert sf.tolist() == [[1.0]]
        pairs = t.view(torch.uint8).tolist()[0]
        return [code for pair in pairs for code in (pair & 15, pair >> 4)][1 : len(x) + 1]

    def test_every_value_has_its_code(self):
        assert self.codes(FP4_VALUES) == list(range(8))
        assert self.codes([-value for value in FP4_VALUES]) == [0, *range(9, 16)]

    def test_ties_go_to_the_even_code(self):
        ties = [(low + high) / 2 for low, high in itertools.pairwise(FP4_VALUES)]
        assert self.codes(ties) == [0, 2, 2, 4, 4, 6, 6]
        assert self.codes([-tie for tie in ties]) == [0, 10, 10, 12, 12, 14, 14]
        above, below = (
            [float(torch.nextafter(torch.tensor(tie), torch.tensor(end))) for tie in ties] for end in (9, 0)
        )
        assert self.codes(above) == list(range(1, 8))
        assert self.codes(below) == list(range(7))

    def test_the_first_code_is_in_the_low_nibble(self):
        t, _ = utils.per_token_cast_to_fp4(torch.tensor([[6.0, -0.5]]), False)
        assert (t.dtype, t.tolist()) == (torch.int8, [[-0x69]])  # 0x97

    @pytest.mark.parametrize("use_ue8m0", [False, True])
    @pytest.mark.parametrize("gran_k", [16, 32, 128])
    @pytest.mark.parametrize("n", [2, 128, 130, 600])
    def test_cast_and_back(self, n, gran_k, use_ue8m0):
        x = random_values((3, n), "cpu", 0) * torch.tensor([[1e-6], [1.0], [300.0]])
        t, sf = utils.per_token_cast_to_fp4(x, use_ue8m0, gran_k)
        assert (t.shape, sf.shape) == ((3, n // 2), (3, utils.ceil_div(n, gran_k)))
        groups = torch.nn.functional.pad(x, (0, -n % gran_k)).view(3, -1, gran_k)
        wanted = groups.abs().amax(2).clamp(min=1e-4) / torch.tensor(6.0)
        assert torch.equal(sf, utils.ceil_to_ue8m0(wanted) if use_ue8m0 else wanted)
        back = utils.cast_back_from_fp4(t, sf, gran_k)
        scales = sf.repeat_interleave(gran_k, 1)[:, :n]
        quotients = x / scales
        nearest = (quotients.abs()[..., None] - torch.tensor(FP4_VALUES)).abs().amin(-1)
        torch.testing.assert_close((back / scales - quotients).abs(), nearest, rtol=0, atol=1e-6)

    @pytest.mark.parametrize("n", [128, 200])
    def test_packed_scales(self, n):
        """As an indexer's queries and keys are cast and cast back."""
        x = random_values((6, n), "cpu", 0).bfloat16()
        t, sf = utils.per_token_cast_to_fp4(x, use_ue8m0=True, gran_k=32)
        packed_t, packed = utils.per_token_cast_to_fp4(x, use_ue8m0=True, gran_k=32, use_packed_ue8m0=True)
        assert (packed.dtype, packed.shape) == (torch.int32, (6, utils.ceil_div(n, 128)))
        assert torch.equal(packed_t, t)
        back = utils.cast_back_from_fp4(packed_t, packed, gran_k=32, use_packed_ue8m0=True)
        assert back.dtype == torch.float32
        assert torch.equal(back, utils.cast_back_from_fp4(t, sf, gran_k=32))

    @pytest.mark.parametrize("shape", [(2, 2), (6, 10), (128, 64)])
    def test_transpose(self, shape):
        x = random_values(shape, "cpu", 0) * 3
        t, _ = utils.per_token_cast_to_fp4(x, True)
        ones = torch.ones(max(shape), 1)
        back = utils.cast_back_from_fp4(utils.transpose_packed_fp4(t), ones[: shape[1]], gran_k=shape[0])
        assert torch.equal(back.t(), utils.cast_back_from_fp4(t, ones[: shape[0]], gran_k=shape[1]))
        assert torch.equal(utils.transpose_packed_fp4(utils.transpose_packed_fp4(t)), t)

    def test_rejections(self):
        packed, sf = utils.per_token_cast_to_fp4(random_values((3, 64), "cpu", 0), True, 32)
        for error, message, function, arguments in [
            (
                ValueError,
                r"even number of columns.*\[3, 5\]",
                utils.per_token_cast_to_fp4,
                (random_values((3, 5), "cpu", 0), True),
            ),
            (TypeError, "floating-point", utils.per_token_cast_to_fp4, (packed, True)),
            (
                ValueError,
                "needs use_ue8m0",
                utils.per_token_cast_to_fp4,
                (random_values((3, 4), "cpu", 0), False, 32, True),
            ),
            (TypeError, r"a must be torch\.int8", utils.transpose_packed_fp4, (packed.view(torch.uint8),)),
            (ValueError, "a must have 2 dimensions", utils.transpose_packed_fp4, (packed[0],)),
            (ValueError, "even number of rows.*got 3", utils.transpose_packed_fp4, (packed,)),
            (TypeError, r"packed must be torch\.int8", utils.cast_back_from_fp4, (packed.int(), sf)),
            (ValueError, r"3 rows of 2, one for 32 of 64.*\[3, 1\]", utils.cast_back_from_fp4, (packed, sf[:, :1], 32)),
        ]:
            with pytest.raises(error, match=message):
                function(*arguments)
