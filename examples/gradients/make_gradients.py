"""The gradients of a ConvNeXt-Tiny on each of a few ranks: 28,589,128 numbers in 182 tensors, in real proportions.

With torch installed they come from a backward pass, every rank on data of its own; without it, tensors of the same
shapes are drawn from a fixed seed. As a program it writes them for `schedlang run ... --input gradients.npz`.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

DEPTHS, WIDTHS, CLASSES = (3, 3, 9, 3), (96, 192, 384, 768), 1000


def shapes() -> list[tuple[int, ...]]:
    """The shapes of all parameters, in the order of the model's definition."""
    found: list[tuple[int, ...]] = [(WIDTHS[0], 3, 4, 4), (WIDTHS[0],), (WIDTHS[0],), (WIDTHS[0],)]
    for i, (depth, d) in enumerate(zip(DEPTHS, WIDTHS, strict=True)):
        if i:
            found += [(WIDTHS[i - 1],), (WIDTHS[i - 1],), (d, WIDTHS[i - 1], 2, 2), (d,)]
        found += depth * [(d, 1, 1), (d, 1, 7, 7), (d,), (d,), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,)]
    return [*found, (WIDTHS[-1],), (WIDTHS[-1],), (CLASSES, WIDTHS[-1]), (CLASSES,)]


def model():
    """A ConvNeXt-Tiny (Liu et al., A ConvNet for the 2020s, 2022) in plain torch."""
    import torch
    from torch import nn

    class ChannelNorm(nn.LayerNorm):
        def forward(self, x):
            return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    class Block(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.scale = nn.Parameter(torch.full((d, 1, 1), 1e-6))
            self.mix = nn.Conv2d(d, d, 7, padding=3, groups=d)
            self.rest = nn.Sequential(nn.LayerNorm(d, eps=1e-6), nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

        def forward(self, x):
            return x + self.scale * self.rest(self.mix(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    layers = [nn.Conv2d(3, WIDTHS[0], 4, stride=4), ChannelNorm(WIDTHS[0], eps=1e-6)]
    for i, (depth, d) in enumerate(zip(DEPTHS, WIDTHS, strict=True)):
        if i:
            layers += [ChannelNorm(WIDTHS[i - 1], eps=1e-6), nn.Conv2d(WIDTHS[i - 1], d, 2, stride=2)]
        layers += [Block(d) for _ in range(depth)]
    head = [nn.AdaptiveAvgPool2d(1), ChannelNorm(WIDTHS[-1], eps=1e-6), nn.Flatten(), nn.Linear(WIDTHS[-1], CLASSES)]
    return nn.Sequential(*layers, *head)


def gradients(ranks: int = 4, seed: int = 0, image: int = 64, batch: int = 2):
    """Per rank, one flat float32 array of all gradients, as a data-parallel trainer sends them: torch tensors where
    torch is installed, else NumPy arrays."""
    try:
        import torch
    except ImportError:
        count = sum(math.prod(shape) for shape in shapes())
        return [np.random.default_rng([seed, r]).standard_normal(count, np.float32) / 1000 for r in range(ranks)]
    torch.manual_seed(seed)
    network, found = model(), []
    for rank in range(ranks):
        data = torch.Generator().manual_seed(seed * ranks + rank)
        images = torch.randn(batch, 3, image, image, generator=data)
        labels = torch.randint(CLASSES, (batch,), generator=data)
        network.zero_grad()
        torch.nn.functional.cross_entropy(network(images), labels).backward()
        found.append(torch.cat([p.grad.reshape(-1) for p in network.parameters()]))
    return found


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("output", nargs="?", default="gradients.npz")
    options.add_argument("--ranks", type=int, default=4)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    arrays = [np.asarray(g) for g in gradients(chosen.ranks, chosen.seed)]
    np.savez(chosen.output, **{f"rank{r}": a for r, a in enumerate(arrays)})
    print(f"{chosen.output}: {arrays[0].size:,} gradients in {len(shapes())} tensors on each of {chosen.ranks} ranks")
