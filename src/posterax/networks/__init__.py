"""Networks in the box, and adapters that bring any other to one form."""

from typing import Any

from .adapters import as_network
from .base import Network
from .convolutional import ConvNet, LeNet5
from .images import ResNet, UNet
from .mlp import MLP
from .parts import low_rank
from .periodic import Periodic
from .piecewise import PiecewiseLinear, quantile_bins
from .sequences import Recurrent, TemporalConvNet
from .sparse import sparse
from .tabular import Tabular
from .torch_import import from_torch
from .transformer import Transformer

# what a file may name
_IN_THE_BOX = (
    MLP, Tabular, Periodic, PiecewiseLinear, LeNet5, ConvNet, ResNet, UNet,
    TemporalConvNet, Recurrent, Transformer,
)  # fmt: skip
BY_NAME: dict[str, Any] = {network.__name__: network for network in _IN_THE_BOX}

__all__ = [
    "BY_NAME", "MLP", "ConvNet", "LeNet5", "Network", "Periodic", "PiecewiseLinear",
    "Recurrent", "ResNet", "Tabular", "TemporalConvNet", "Transformer", "UNet", "as_network",
    "from_torch", "low_rank", "quantile_bins", "sparse",
]  # fmt: skip
