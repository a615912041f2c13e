"""Shapes that the tests run: public ones, odd ones, and small ones for the simulator."""

from __future__ import annotations

from itertools import product

# [N, K] of the weights that DeepGEMM's own tests and benchmarks use.
PUBLIC_WEIGHTS = [(2112, 7168), (576, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048)]
PUBLIC_TOKENS = [1, 64, 128, 4096]
PUBLIC = [(m, n, k) for m, (n, k) in product(PUBLIC_TOKENS, PUBLIC_WEIGHTS)]

# Every edge: one row, rows that end inside a tile, a row of D that is not a multiple of 16 bytes, a K below one block
# of 128, many blocks, and a tail after the last whole one.
ODD_M = [1, 7, 33, 129]
ODD_N = [1, 24, 100, 520]
ODD_K = [16, 64, 200 * 16, 7168 + 64]
ODD = list(product(ODD_M, ODD_N, ODD_K))

# The same edges, small enough to interpret under every schedule.
SMALL = [
    (1, 1, 16),
    (7, 24, 64),
    (33, 100, 144),
    (64, 128, 128),
    (129, 136, 400),
    (128, 256, 512),
    (200, 72, 272),
    (16, 520, 1024),
    (300, 264, 640),
]

# K tails: every multiple of 16 after a whole block.
TAILS = [128 + tail for tail in range(0, 128, 16)]
