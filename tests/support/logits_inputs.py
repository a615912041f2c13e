"""Operands of index logits, and their reference in FP64 from the same quantised values."""

from __future__ import annotations

import dataclasses

import torch


@dataclasses.dataclass
class Dense:
    q: torch.Tensor | tuple[torch.Tensor, torch.Tensor | None]
    kv: tuple[torch.Tensor, torch.Tensor]
    weights: torch.Tensor
    first: torch.Tensor
    end: torch.Tensor
    q_values: torch.Tensor  # FP64
    k_values: torch.Tensor

    @property
    def arguments(self) -> tuple:
        return self.q, self.kv, self.weights, self.first, self.end

    def clamped(self) -> tuple[torch.Tensor, torch.Tensor]:
        """First and end keys of rows among the keys that there are."""
        return self.first.clamp(min=0), self.end.clamp(max=self.k_values.shape[0])

    def all_logits(self) -> torch.Tensor:
        """FP64 [rows, keys], whatever rows see."""
        return logits_of(self.q_values, self.k_values, self.weights)

    def seen(self) -> torch.Tensor:
        """Boolean [rows, keys]."""
        keys = torch.arange(self.k_values.shape[0], device=self.first.device)
        first, end = self.clamped()
        return (keys >= first[:, None]) & (keys < end[:, None])


@dataclasses.dataclass
class Paged:
    q: torch.Tensor | tuple[torch.Tensor, torch.Tensor | None]
    cache: torch.Tensor
    weights: torch.Tensor
    lengths: torch.Tensor
    table: torch.Tensor
    q_values: torch.Tensor  # FP64 [requests, next_n, heads, D]
    k_values: torch.Tensor  # FP64 [requests, keys, D]

    def reference(self) -> torch.Tensor:
        """FP64 [requests * next_n, keys]."""
        requests, next_n = self.q_values.shape[:2]
        weights = self.weights.view(requests, next_n, -1)
        return torch.cat([logits_of(*of) for of in zip(self.q_values, self.k_values, weights, strict=True)])

    def row_lengths(self) -> torch.Tensor:
        """[requests * next_n]."""
        next_n = self.q_values.shape[1]
        if self.lengths.dim() == 2:
            return self.lengths.flatten()
        back = torch.arange(next_n - 1, -1, -1, device=self.lengths.device)
        return (self.lengths[:, None] - back).clamp(min=0).flatten()


def logits_of(q: torch.Tensor, k: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """q [rows, heads, D], k [keys, D] -> [rows, keys]."""
    scores = torch.einsum("mhd,nd->mhn", q, k).relu()
    return torch.einsum("mhn,mh->mn", scores, weights.double())


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)
FORMATS = ("fp8", "mxfp8", "mxfp4")


@dataclasses.dataclass
class Codes:
    """Quantised values `[..., D]`: codes, and an FP32 scale or a word of four exponents for each `[...]`."""

    codes: torch.Tensor
    scales: torch.Tensor
    values: torch.Tensor  # FP64


def drawn_codes(*shape: int, form: str, generator: torch.Generator) -> Codes:
    d = shape[-1]
    if form == "mxfp4":
        nibbles = torch.randint(0, 16, shape, generator=generator)
        codes = (nibbles[..., ::2] | nibbles[..., 1::2] << 4).to(torch.uint8).view(torch.int8)
        values = E2M1[nibbles & 7] * (1 - (nibbles >> 3) * 2)
    else:
        codes = torch.randn(shape, generator=generator).to(torch.float8_e4m3fn)
        values = codes.double()
    if form == "fp8":
        scales = torch.rand(shape[:-1], generator=generator) + 0.5
        return Codes(codes, scales, values * scales.double()[..., None])
    exponents = torch.randint(119, 132, (*shape[:-1], 4), generator=generator)
    values = values * torch.exp2(exponents.double() - 127).repeat_interleave(32, -1)[..., :d]
    # Of groups that D does not have the exponent is rubbish.
    return Codes(codes, exponents.to(torch.uint8).contiguous().view(torch.int32)[..., 0], values)


def drawn_queries(*shape: int, form: str, generator: torch.Generator) -> Codes:
    """E4M3 queries have no scales of their own."""
    drawn = drawn_codes(*shape, form=form, generator=generator)
    if form == "fp8":
        drawn.values = drawn.codes.double()
    return drawn


def fp8_dense(
    rows: int,
    keys: int,
    heads: int,
    d: int,
    *,
    device: torch.device | str = "cpu",
    first: torch.Tensor | None = None,
    end: torch.Tensor | None = None,
    weights: torch.dtype = torch.float32,
    form: str = "fp8",
    seed: int = 0,
) -> Dense:
    """Rows see all keys, unless `first` and `end` say otherwise."""
    generator = generator_of(seed)
    q = drawn_queries(rows, heads, d, form=form, generator=generator)
    k = drawn_codes(keys, d, form=form, generator=generator)
    w = torch.randn(rows, heads, generator=generator).to(weights)
    first = torch.zeros(rows, dtype=torch.int32) if first is None else first.int()
    end = torch.full((rows,), keys, dtype=torch.int32) if end is None else end.int()
    w, first, end, q_values, k_values = (x.to(device) for x in (w, first, end, q.values, k.values))
    kv = k.codes.to(device), k.scales.to(device)
    return Dense(queries_of(q, form, device), kv, w, first, end, q_values, k_values)


def queries_of(q: Codes, form: str, device: torch.device | str) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """As calls take them."""
    codes = q.codes.to(device)
    return codes if form == "fp8" else (codes, q.scales.to(device))


def ragged(rows: int, keys: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Starts and ends of rows: runs of all kinds, empty, reversed, before the first key and behind the last."""
    generator = generator_of(seed)
    first = torch.randint(0, keys, (rows,), generator=generator)
    end = torch.randint(0, keys + 1, (rows,), generator=generator)
    first, end = torch.minimum(first, end), torch.maximum(first, end)
    kind = torch.randint(0, 6, (rows,), generator=generator)
    first, end = torch.where(kind == 0, end, first), torch.where(kind == 0, first, end)  # reversed
    end = torch.where(kind == 1, first, end)
    end = torch.where(kind == 2, keys + 100, end)
    first = torch.where(kind == 3, 0, first)
    return first, end


def fp8_paged(
    lengths: torch.Tensor,
    next_n: int,
    heads: int,
    d: int,
    block: int,
    *,
    device: torch.device | str = "cpu",
    weights: torch.dtype = torch.float32,
    pad_bytes: int = 0,
    form: str = "fp8",
    seed: int = 0,
) -> Paged:
    """Keys of requests in a shuffled cache. Of blocks, bytes that no row sees are NaN's; past those in use the table
    names blocks that do not exist."""
    generator = generator_of(seed)
    requests = lengths.shape[0]
    longest = lengths.clamp(min=0).view(requests, -1).amax(1)
    blocks = -(-longest // block)
    total, width = int(blocks.sum()), max(int(blocks.max()), 1) + 2
    place = torch.randperm(total, generator=generator)
    table = torch.randint(-(1 << 31), (1 << 31) - 1, (requests, width), generator=generator).int()
    key = d // 2 if form == "mxfp4" else d  # bytes
    cache = torch.full((max(total, 1), block * (key + 4) + pad_bytes), 0x7F, dtype=torch.uint8)
    cache[:, block * key :] = 0xFF
    k_values = torch.zeros(requests, width * block, d, dtype=torch.float64)
    used = 0
    for request in range(requests):
        count, keys = int(blocks[request]), int(longest[request])
        mine = place[used : used + count]
        used += count
        table[request, :count] = mine.int()
        k = drawn_codes(keys, d, form=form, generator=generator)
        k_values[request, :keys] = k.values
        for i, where in enumerate(mine.tolist()):
            part = slice(i * block, min((i + 1) * block, keys))
            codes = k.codes[part].view(torch.uint8).flatten()
            cache[where, : codes.numel()] = codes
            scale_bytes = k.scales[part].contiguous().view(torch.uint8)
            cache[where, block * key : block * key + scale_bytes.numel()] = scale_bytes
    q = drawn_queries(requests, next_n, heads, d, form=form, generator=generator)
    w = torch.randn(requests * next_n, heads, generator=generator).to(weights)
    cache, w, lengths, table = (x.to(device) for x in (cache, w, lengths.int(), table))
    cache = cache.as_strided((cache.shape[0], block, 1, key + 4), (cache.stride(0), key + 4, key + 4, 1))
    return Paged(queries_of(q, form, device), cache, w, lengths, table, q.values.to(device), k_values.to(device))


def difference(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """About half of the relative squared error, as `deep_gemm.testing.calc_diff`."""
    found, wanted = found.double(), wanted.double()
    denominator = (found * found + wanted * wanted).sum()
    return 0.0 if denominator == 0 else float(1 - 2 * (found * wanted).sum() / denominator)
