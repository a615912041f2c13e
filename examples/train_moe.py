"""A small mixture-of-experts language model trained on the documents of this repository, in FP8 beside BF16.

    python -m examples.train_moe [--steps N] [--losses FILE]

Letters are tokens. Each layer mixes neighbouring letters by a causal average and `nn.FP8Linear`, then sends each letter
to the best two of its experts (`nn.GroupedExperts`): forward, dgrad and wgrad are products of this library, in FP8 or,
for the same model beside it, in BF16. Master weights are FP32. On a GPU at a real size; elsewhere on the simulator at a
small one, for a few steps. FILE gets the loss of each step as JSON; benchmarks/pictures.py draws such a file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from deep_gemm import nn

LETTERS = 128


def text() -> torch.Tensor:
    """All documents in a row, as ASCII."""
    folder = Path(__file__).resolve().parent
    files = [*sorted((folder.parent / "docs").glob("*.md")), folder / "README.md", Path(__file__)]
    content = "\n".join(file.read_text(errors="replace") for file in files if file.exists())
    return torch.tensor([min(ord(letter), LETTERS - 1) for letter in content])


class Layer(torch.nn.Module):
    """What came before, and experts; both added to the stream."""

    def __init__(self, width: int, inner: int, experts: int, choices: int, precision: str) -> None:
        super().__init__()
        self.choices = choices
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.mix = nn.FP8Linear(2 * width, width, precision=precision)
        self.router = torch.nn.Linear(width, experts, bias=False)
        self.experts = nn.GroupedExperts(experts, width, inner, precision=precision)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, letters, width]"""
        now = self.norms[0](x)
        count = torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]
        before = now.cumsum(dim=1) / count
        last = torch.nn.functional.pad(now, (0, 0, 1, 0))[:, :-1]
        x = x + torch.nn.functional.silu(self.mix(torch.cat([last, before], dim=-1)))
        rows = self.norms[1](x).view(-1, x.shape[2])
        weights, ids = self.router(rows).softmax(dim=-1).topk(self.choices)
        both: torch.Tensor = x + self.experts(rows, ids, weights).view(x.shape)
        return both


class Model(torch.nn.Module):
    def __init__(self, width: int, inner: int, experts: int, choices: int, layers: int, precision: str) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(LETTERS, width)
        self.layers = torch.nn.Sequential(*(Layer(width, inner, experts, choices, precision) for _ in range(layers)))
        self.head = torch.nn.Linear(width, LETTERS)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.layers(self.embedding(letters)))
        return logits


def train(
    precision: str, steps: int, sizes: tuple[int, int, int, int, int], batch: tuple[int, int], device: torch.device
) -> list[float]:
    """The loss of each step. Equal seeds: both see the same weights and text."""
    torch.manual_seed(0)
    model = Model(*sizes, precision).to(device)
    letters = text()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        starts = torch.randint(len(letters) - batch[1] - 1, (batch[0],))
        rows = torch.stack([letters[start : start + batch[1] + 1] for start in starts.tolist()]).to(device)
        logits = model(rows[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    gpu = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500 if gpu else 4)
    parser.add_argument("--losses", metavar="FILE", type=Path)
    asked = parser.parse_args()
    steps = asked.steps
    device = torch.device("cuda" if gpu else "cpu")
    # width, inner width, experts, choices, layers
    sizes, batch = ((512, 512, 16, 2, 4), (64, 256)) if gpu else ((128, 128, 2, 1, 1), (2, 48))
    losses = {precision: train(precision, steps, sizes, batch, device) for precision in ("fp8", "bf16")}
    print(f"{steps} steps of {batch[0]} x {batch[1]} letters on the {'GPU' if gpu else 'simulator'}")
    if asked.losses:
        asked.losses.write_text(json.dumps({"sizes": sizes, "batch": batch, "losses": losses}))
    for precision, each in losses.items():
        told = ", ".join(f"{loss:.3f}" for loss in each[:: max(1, steps // 10)])
        print(f"{precision}: loss {told} -> {each[-1]:.3f}")
    if steps > 3 and not all(each[-1] < each[0] for each in losses.values()):
        raise SystemExit("a loss did not fall")
    if not abs(losses["fp8"][-1] - losses["bf16"][-1]) < 0.1:
        raise SystemExit("FP8 is further from BF16 than quantisation explains")


if __name__ == "__main__":
    main()
