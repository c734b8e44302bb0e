"""The benchmark's networks in PyTorch, layer by layer those of posterax."""

import itertools

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks import problem


class Dense(nn.Module):
    """Dense layers with ReLU."""

    def __init__(self, name):
        super().__init__()
        inputs, hidden, outputs = problem.NETWORKS[name]
        sizes = itertools.pairwise((inputs, *hidden, outputs))
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in sizes)

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


class LeNet5(nn.Module):
    """Two convolutions with pooling, three dense layers."""

    def __init__(self):
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)])
        self.dense = nn.ModuleList([nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)])

    def forward(self, x):
        for layer in self.convolutions:
            x = F.max_pool2d(torch.relu(layer(x)), 2)
        x = x.flatten(1)
        for layer in self.dense[:-1]:
            x = torch.relu(layer(x))
        return self.dense[-1](x)


def norm(channels):
    return nn.GroupNorm(max(g for g in (1, 2, 4, 8) if g == 1 or channels % (4 * g) == 0), channels)


class Block(nn.Module):
    """Two 3 × 3 convolutions, added to the input."""

    def __init__(self, i, o, stride, learned=False):
        super().__init__()
        self.first = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([norm(o), norm(o)])
        self.stride, self.more, self.shortcut = stride, o - i, None
        if learned and (stride > 1 or i != o):
            self.shortcut = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), norm(o))

    def forward(self, x):
        h = torch.relu(self.norms[0](self.first(x)))
        h = self.norms[1](self.second(h))
        if self.shortcut is not None:
            return torch.relu(h + self.shortcut(x))
        x = x[:, :, :: self.stride, :: self.stride]
        return torch.relu(h + F.pad(x, (0, 0, 0, 0, 0, self.more)))


class ResNet(nn.Module):
    """Stages of blocks of 3 × 3 convolutions, each twice as wide as the one before."""

    def __init__(self, width, stages, learned):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, width, 3, 1, 1, bias=False), norm(width)
        blocks, channels = [], width
        for stage, place in ((s, i) for s, count in enumerate(stages) for i in range(count)):
            wide = width * 2**stage
            blocks.append(Block(channels, wide, 2 if stage and place == 0 else 1, learned))
            channels = wide
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(channels, 10)

    def forward(self, x):
        x = self.blocks(torch.relu(self.norm(self.stem(x))))
        return self.head(x.mean((2, 3)))


class Transformer(nn.Module):
    """An encoder with the norms first, the mean over steps, an affine output."""

    def __init__(self):
        super().__init__()
        width, length = problem.WIDTH, problem.LENGTH
        self.embedding = nn.Linear(problem.FEATURES, width)
        self.position = nn.Parameter(torch.randn(length, width) / width**0.5)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 3, nn.LayerNorm(width), False)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.encoder(self.embedding(x) + self.position).mean(1))


class Lstm(nn.Module):
    """One LSTM, and an affine output after the last step."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(problem.FEATURES, problem.HIDDEN, batch_first=True)
        self.head = nn.Linear(problem.HIDDEN, 10)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


OTHERS = {
    "LeNet-5": LeNet5,
    "ResNet-20": lambda: ResNet(16, (3, 3, 3), learned=False),
    "ResNet-18": lambda: ResNet(64, (2, 2, 2, 2), learned=True),
    "transformer": Transformer,
    "LSTM": Lstm,
}


def make(name):
    return OTHERS[name]() if name in OTHERS else Dense(name)
