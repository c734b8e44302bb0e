"""Networks in the box, and adapters that bring any other to one form."""

from typing import Any

from .adapters import as_network
from .base import Network
from .convolutional import ConvNet, LeNet5
from .lora import low_rank
from .mlp import MLP
from .recurrent import Recurrent
from .resnet import ResNet
from .sparse import sparse
from .temporal import TemporalConvNet
from .torch_import import from_torch
from .transformer import Transformer
from .unet import UNet

# what a file may name
BY_NAME: dict[str, Any] = {
    network.__name__: network
    for network in (MLP, LeNet5, ConvNet, ResNet, UNet, TemporalConvNet, Recurrent, Transformer)
}

__all__ = [
    "BY_NAME",
    "MLP",
    "ConvNet",
    "LeNet5",
    "Network",
    "Recurrent",
    "ResNet",
    "TemporalConvNet",
    "Transformer",
    "UNet",
    "as_network",
    "from_torch",
    "low_rank",
    "sparse",
]
