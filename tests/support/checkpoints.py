"""Checkpoints as their own tools write them: from codes, bit by bit."""

from __future__ import annotations

import torch

# The columns of eight that AWQ puts into the nibbles of a word, lowest first.
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def words(codes: torch.Tensor, bits: int = 4, order: tuple[int, ...] | None = None) -> torch.Tensor:
    """Unsigned codes [rows, columns] -> int32 [rows, columns * bits / 32], the first in the low bits."""
    count = 32 // bits
    parts = codes.long().view(codes.shape[0], -1, count)
    order = order or tuple(range(count))
    packed = sum(parts[:, :, column] << bits * place for place, column in enumerate(order))
    return torch.where(packed >= 1 << 31, packed - (1 << 32), packed).to(torch.int32).contiguous()


def stored_zeros(zeros, writer, bits=4) -> torch.Tensor:
    """Words of zero points [groups, N]: as they are ('v2'), each less one ('nibbles'), or the words less one in each
    place ('gptqmodel'), where a 0 borrows from the next."""
    if writer == "v2":
        return words(zeros, bits)
    if writer == "nibbles":
        return words((zeros - 1) % (1 << bits), bits)
    ones = {4: 0x11111111, 8: 0x01010101}[bits]
    less = ((words(zeros, bits).long() % (1 << 32)) - ones) % (1 << 32)
    return torch.where(less >= 1 << 31, less - (1 << 32), less).to(torch.int32)


def gptq(codes, scales, zeros, writer="nibbles", g_idx=None, group=None, bits=4) -> dict[str, torch.Tensor]:
    """Codes [N, K] of 4 or 8 bits; scales and zeros [N, groups]."""
    k, groups = codes.shape[1], scales.shape[1]
    group = k // groups if group is None else group
    return {
        "qweight": words(codes, bits).T.contiguous(),
        "qzeros": stored_zeros(zeros.T, writer, bits),
        "scales": scales.T.contiguous(),
        "g_idx": (torch.arange(k) // group if g_idx is None else g_idx).to(torch.int32),
    }


def awq(codes, scales, zeros) -> dict[str, torch.Tensor]:
    return {
        "qweight": words(codes.T, order=AWQ_ORDER),
        "qzeros": words(zeros.T, order=AWQ_ORDER),
        "scales": scales.T.contiguous(),
    }


def qoq(codes, scales, scaled_zeros, second_scales=None) -> dict[str, torch.Tensor]:
    """Codes [N, K] of 0..15. Of groups: int8 scales and scaled zeros [N, groups], of which the negative's low byte is
    stored; of channels FP16 scales and scaled zeros [N]."""
    n, k = codes.shape
    row, column = torch.meshgrid(torch.arange(n), torch.arange(k), indexing="ij")
    block = row // 32 * (k // 32) + column // 32
    place = 64 * (row % 8) + 16 * (column % 16 // 4) + 8 * (column % 32 // 16) + 4 * (row % 16 // 8) + column % 4
    pairs = torch.zeros(n * k // 2, dtype=torch.int32)
    pairs.index_add_(0, (512 * block + place).flatten(), (codes.int() << 4 * (row % 32 // 16)).int().flatten())
    tensors = {"qweight": pairs.to(torch.uint8).view(torch.int8).view(n, k // 2)}
    if second_scales is None:
        return {**tensors, "s1_scales": scales, "s1_szeros": scaled_zeros}
    turned = torch.arange(n).view(-1, 4, 8).mT.flatten()  # 0 8 16 24 1 9 ...
    negative = (-scaled_zeros.int() & 255).to(torch.uint8).view(torch.int8)
    groups = {"s2_scales": scales, "s2_zeros": negative}
    return {
        **tensors,
        "s1_scales": second_scales,
        **{name: tensor[turned].T.contiguous() for name, tensor in groups.items()},
    }


def pack_quantized(values, scales, zeros=None, bits=4, g_idx=None) -> dict[str, torch.Tensor]:
    """Signed values [N, K], K padded with zeros to whole words."""
    half, count = 1 << bits - 1, 32 // bits
    padded = torch.nn.functional.pad(values.int() + half, (0, -values.shape[1] % count))
    tensors = {
        "weight_packed": words(padded, bits),
        "weight_scale": scales,
        "weight_shape": torch.tensor(values.shape),
    }
    if zeros is not None:
        rows = torch.nn.functional.pad(zeros.int() + half, (0, 0, 0, -zeros.shape[0] % count))
        tensors["weight_zero_point"] = words(rows.T, bits).T.contiguous()
    if g_idx is not None:
        tensors["weight_g_idx"] = g_idx.to(torch.int32)
    return tensors


def pairs(codes: torch.Tensor) -> torch.Tensor:
    """Two codes a byte, the first in the low nibble."""
    nibbles = codes.int() & 15
    return (nibbles[..., 0::2] + 16 * nibbles[..., 1::2]).to(torch.uint8)
