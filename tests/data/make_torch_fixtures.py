"""Makes ``torch_*.npz``: weights and outputs of small networks, by PyTorch itself (2.13.0).

Run once, in an environment with torch and numpy: ``python tests/data/make_torch_fixtures.py``.
Each file holds the state dict (``state/…``, in order), the inputs ``x`` and the outputs ``y``.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

HERE = Path(__file__).parent


class Recurrent(nn.Module):
    """The last hidden state of a recurrent layer, or of two, and a linear map of it."""

    def __init__(self, kind, layers):
        super().__init__()
        self.cell = kind(3, 5, num_layers=layers, batch_first=True)
        self.last = nn.Linear(5, 2)

    def forward(self, x):
        return self.last(self.cell(x)[0][:, -1])


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(7, 6), nn.LayerNorm(6)
        self.conv, self.last = nn.Conv1d(6, 4, 3, bias=False), nn.Linear(4, 2)

    def forward(self, x):
        h = self.conv(self.norm(self.embedding(x)).transpose(1, 2))
        return self.last(h.mean(-1))


def conv():
    """Every kind of convolution and of normalisation over channels."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.PReLU(),
        nn.Conv2d(4, 6, 3, stride=2, groups=2), nn.GroupNorm(3, 6), nn.ReLU(),
        nn.ConvTranspose2d(6, 4, (3, 2), stride=2, padding=1, groups=2),
        nn.BatchNorm2d(4, affine=False), nn.Flatten(), nn.Linear(4 * 5 * 2, 3),
    )  # fmt: skip


def save(name, network, x, train=None):
    with torch.no_grad():
        for parameter in network.parameters():  # biases and scales too are other than 0 and 1
            parameter.add_(0.2 * torch.randn_like(parameter))
        if train is not None:  # running averages of a few batches
            network.train()
            for batch in train:
                network(batch)
        network.eval()
        y = network(x)
    state = {f"state/{key}": value.numpy() for key, value in network.state_dict().items()}
    np.savez_compressed(HERE / f"torch_{name}.npz", x=x.numpy(), y=y.numpy(), **state)


if __name__ == "__main__":
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    save("mlp", mlp, torch.randn(5, 3))
    images = [1.0 + 2.0 * torch.randn(16, 2, 7, 6) for _ in range(20)]
    save("conv", conv(), images[0][:4], train=images)
    save("lstm", Recurrent(nn.LSTM, 2), torch.randn(4, 6, 3))
    save("gru", Recurrent(nn.GRU, 1), torch.randn(4, 6, 3))
    save("words", Words(), torch.randint(0, 7, (5, 6)))
