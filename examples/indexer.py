"""The indexer of sparse attention (DeepSeek-V3.2): logits of a prefill and of decode steps, and the keys they pick.

    python -m examples.indexer

Keys of all tokens are quantised as they come and written into the blocks of a cache. A prefill scores its own keys,
which lie one after the other; a decode step those of the cache. Each step's keys are the top k of its row, by torch.
On a GPU the decode step is captured in a CUDA graph: lengths are read on the device, so each replay may have its own.
"""

from __future__ import annotations

import dataclasses

import torch

import deep_gemm

BLOCK = 64  # keys


@dataclasses.dataclass
class Cache:
    """Keys of requests in blocks: of each block all codes, then all scales."""

    bytes: torch.Tensor  # uint8 [blocks, BLOCK, 1, D + 4]
    table: torch.Tensor  # int32 [requests, blocks of each]

    @classmethod
    def empty(cls, requests: int, max_keys: int, d: int, device: torch.device) -> Cache:
        blocks = -(-max_keys // BLOCK)
        table = torch.randperm(requests * blocks, device=device).int().view(requests, blocks)
        return cls(torch.zeros(requests * blocks, BLOCK, 1, d + 4, dtype=torch.uint8, device=device), table)

    def write(self, request: torch.Tensor, position: torch.Tensor, keys: torch.Tensor, scales: torch.Tensor) -> None:
        """Keys e4m3 `[n, D]` and scales FP32 `[n]` at positions of requests, both int64 `[n]`."""
        d = keys.shape[1]
        flat = self.bytes.view(self.bytes.shape[0], -1)
        block, row = self.table[request, position // BLOCK].long()[:, None], (position % BLOCK)[:, None]
        flat[block, row * d + torch.arange(d, device=keys.device)] = keys.view(torch.uint8)
        of_scales = BLOCK * d + row * 4 + torch.arange(4, device=keys.device)
        flat[block, of_scales] = scales[:, None].view(torch.uint8)


def quantise(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """E4M3, and a scale for each row."""
    scales = x.float().abs().amax(-1).clamp(min=1e-4) / 448
    return (x / scales[..., None]).to(torch.float8_e4m3fn), scales


def queries(*shape: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """E4M3 `[..., heads, D]`; their scales go into the weights of heads, as models do it."""
    q, scales = quantise(torch.randn(shape, device=device))
    heads = shape[-2]
    return q, (torch.randn(shape[:-1], device=device) * scales * heads**-0.5).flatten(0, -2)


def reference(q: torch.Tensor, keys: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """FP32 `[rows, keys]` of one request's keys."""
    return torch.einsum("mhn,mh->mn", torch.einsum("mhd,nd->mhn", q.float(), keys).relu(), weights)


def check(logits: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    error = float((logits - wanted).norm() / wanted.norm())
    if not error < 1e-3:  # Hopper adds up FP8 products in 13 bits behind the leading one
        raise SystemExit(f"{what}: logits differ from FP32 by {error:.1e}")
    print(f"{what}: relative difference from FP32 {error:.1e}")


def main() -> None:
    gpu = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
    device = torch.device("cuda" if gpu else "cpu")
    requests, prompt, steps, top, heads, d = (8, 4096, 8, 2048, 64, 128) if gpu else (2, 70, 2, 16, 16, 64)
    torch.manual_seed(0)
    max_keys = prompt + steps
    cache = Cache.empty(requests, max_keys, d, device)
    all_keys = torch.zeros(requests, max_keys, d, device=device)  # what the cache stands for, to check by

    # Prefill: the prompts of all requests side by side, each row seeing its request's keys up to its own.
    keys, scales = quantise(torch.randn(requests * prompt, d, device=device))
    request = torch.arange(requests, device=device).repeat_interleave(prompt)
    position = torch.arange(prompt, device=device).repeat(requests)
    cache.write(request, position, keys, scales)
    all_keys[:, :prompt] = (keys.float() * scales[:, None]).view(requests, prompt, d)
    rows = torch.arange(0, requests * prompt, max(1, requests * prompt // 64), device=device)  # some rows of many
    q, weights = queries(len(rows), heads, d, device=device)
    first, end = (request[rows] * prompt).int(), (rows + 1).int()
    logits = deep_gemm.fp8_fp4_mqa_logits((q, None), (keys, scales), weights, first, end, prompt)
    seen = torch.arange(prompt, device=device) < (end - first)[:, None]
    picked = logits.masked_fill(~seen, -torch.inf).topk(min(top, prompt)).indices  # relative to `first`
    wanted = reference(q, keys.float() * scales[:, None], weights).gather(
        1, (first[:, None] + torch.arange(prompt, device=device)).clamp(max=keys.shape[0] - 1).long()
    )
    check(logits[seen], wanted[seen], f"prefill, {len(rows)} rows of {requests} x {prompt} keys")
    print(f"a row picks {picked.shape[1]} keys, the last row {picked[-1, :4].tolist()} first")

    # Decode: a token of each request.
    lengths = torch.full((requests, 1), prompt, dtype=torch.int32, device=device)
    q, weights = queries(requests, 1, heads, d, device=device)

    def score() -> torch.Tensor:
        """The keys that a step reads; shorter rows are filled with -inf."""
        meta = deep_gemm.get_paged_mqa_logits_metadata(lengths, BLOCK, deep_gemm.get_num_sms())
        return deep_gemm.fp8_fp4_paged_mqa_logits(
            (q, None), cache.bytes, weights, lengths, cache.table, meta, max_keys, clean_logits=True
        )

    step, logits = score, score()
    if gpu:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = score()

        def step() -> torch.Tensor:
            graph.replay()
            return logits

    each = torch.arange(requests, device=device)
    for _ in range(steps):
        keys, scales = quantise(torch.randn(requests, d, device=device))
        now = lengths[:, 0].long()
        cache.write(each, now, keys, scales)
        all_keys[each, now] = keys.float() * scales[:, None]
        lengths += 1
        new_q, new_weights = queries(requests, 1, heads, d, device=device)
        q.copy_(new_q)
        weights.copy_(new_weights)
        logits = step()
        picked = logits.topk(min(top, prompt)).indices
        wanted = torch.cat([reference(q[i], all_keys[i], weights[i : i + 1]) for i in range(requests)])
        seen = torch.arange(max_keys, device=device) < lengths
        check(logits[seen], wanted[seen], f"decode at {int(now[0])} keys{', replayed' if gpu else ''}")
    print(f"the last step's first request picks {picked[0, :4].tolist()} first")


if __name__ == "__main__":
    main()
