"""A network for tables that sees numbers as how far they fill bins."""

from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from .._util.checks import whole_number
from .._util.keys import KeyLike
from .config import Activation, Configured, activation_function, known_activation, several
from .mlp import MLP, Linear, perceptron

Bins = tuple[tuple[float, ...], ...]


def quantile_bins(x: ArrayLike, most: int = 16) -> Bins:
    """Edges of bins that each hold about as many of the rows, for every column.

    A column with few different values gets few bins, one with two values a single one; a constant
    column has a bin of width 1.

    Args:
        x: the rows of a fit, (rows, columns).
        most: bins of a column.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.stack([np.arange(9.0), np.arange(9) % 2], axis=1)
        >>> px.networks.quantile_bins(x, 4)
        ((0.0, 2.0, 4.0, 6.0, 8.0), (0.0, 1.0))
    """
    x = np.asarray(x, np.float32)
    if x.ndim != 2 or not len(x) or not np.isfinite(x).all():
        raise ValueError(f"x must be a table of finite numbers, got shape {x.shape}")
    shares = np.linspace(0, 1, whole_number("most", most) + 1)
    edges = [np.unique(np.quantile(column, shares, method="lower")) for column in x.T]
    return tuple(
        tuple(map(float, e if len(e) > 1 else (e[0], e[0] + max(1, abs(e[0]))))) for e in edges
    )


class PiecewiseLinear(Configured):
    r"""A perceptron that sees each number as how far it fills bins ("PLE").

    Column j with the edges b₀ < … < b_T becomes T numbers

        e_t = (x_j − b_{t−1}) / (b_t − b_{t−1}),  cut to 0 … 1

    where the first is not cut below nor the last above, so that nothing is lost:
    x_j = b₀ + Σ (b_t − b_{t−1}) e_t. The first layer then bends at every edge. Bins are constants,
    and part of the network's file.

    Args:
        bins: increasing edges, two or more, for each input; ``quantile_bins`` makes them.
        out_size: number of outputs.
        hidden_sizes: width of each hidden layer.
        activation: as in [`MLP`][posterax.networks.MLP].
        key: an int or a JAX key.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.random.default_rng(0).normal(size=(50, 3))
        >>> network = px.networks.PiecewiseLinear(px.networks.quantile_bins(x), 1, (16,), key=0)
        >>> network(x).shape
        (50, 1)

    Reference: Gorishniy, Rubachev and Babenko, *On embeddings for numerical features in tabular
    deep learning*, NeurIPS 2022.
    """

    of_inputs: ClassVar[tuple[str, ...]] = ("bins",)

    layers: list[Linear]
    bins: Bins = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    hidden_sizes: tuple[int, ...] = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    batched = True

    def __init__(
        self,
        bins: Sequence[Sequence[float]],
        out_size: int,
        hidden_sizes: Sequence[int] = (100, 100),
        *,
        activation: Activation = "relu",
        key: KeyLike,
    ):
        self._set_sizes(out_size=out_size)
        self.bins = _checked(bins)
        self.hidden_sizes = several("hidden_sizes", hidden_sizes)
        self.activation = known_activation(activation)
        wide = sum(len(edges) - 1 for edges in self.bins)
        inner = MLP(wide, self.out_size, self.hidden_sizes, activation=activation, key=key)
        self.layers = inner.layers

    def encode(self, x: jax.Array) -> jax.Array:
        """How far each bin is filled, (…, bins of all columns)."""
        if x.shape[-1] != len(self.bins):
            raise ValueError(f"x must have {len(self.bins)} columns, got shape {x.shape}")
        column = np.repeat(np.arange(len(self.bins)), [len(edges) - 1 for edges in self.bins])
        left = np.concatenate([edges[:-1] for edges in self.bins])
        width = np.concatenate([np.diff(edges) for edges in self.bins])
        # the outermost bins of a column go on for ever
        change = np.diff(column) > 0
        least = np.where(np.append(True, change), -np.inf, 0.0)
        most = np.where(np.append(change, True), np.inf, 1.0)
        filled = (x[..., column] - jnp.asarray(left, x.dtype)) / jnp.asarray(width, x.dtype)
        return jnp.clip(filled, jnp.asarray(least, x.dtype), jnp.asarray(most, x.dtype))

    def __call__(self, x: jax.Array) -> jax.Array:
        activation = activation_function(self.activation)
        return perceptron(self.layers, activation, self.encode(jnp.asarray(x)))


def _checked(bins: object) -> Bins:
    """Edges of each column, increasing in single precision too."""
    try:
        edges = [np.asarray(one, np.float64) for one in bins]  # type: ignore[attr-defined]
        fine = len(edges) > 0 and all(
            e.ndim == 1 and e.size > 1 and np.all(np.diff(np.float32(e)) > 0) for e in edges
        )
    except (TypeError, ValueError):
        fine = False
    if not fine:
        raise ValueError(
            "bins must have two or more increasing edges for each column, as "
            "px.networks.quantile_bins(x) gives them"
        )
    return tuple(tuple(e.tolist()) for e in edges)
