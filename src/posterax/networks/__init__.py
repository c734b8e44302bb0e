"""Networks in the box, and adapters that bring any other to one form."""

from .adapters import Network, as_network
from .mlp import MLP

BY_NAME = {"MLP": MLP}

__all__ = ["BY_NAME", "MLP", "Network", "as_network"]
