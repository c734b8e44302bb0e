"""A network for tables that sees numbers as waves."""

from collections.abc import Sequence
from math import factorial
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.checks import above_zero
from .._util.keys import KeyLike, as_key
from .config import Activation, Configured, activation_function, known_activation, several
from .mlp import MLP, Linear, gain_of, initial_normal, perceptron


class Periodic(Configured):
    r"""A perceptron that sees each number as waves whose frequencies are learned ("PLR").

    Column j of the numbers becomes

        e_j = h(V [cos(2πs c_j x_j), sin(2πs c_j x_j)] + a)

    with K frequencies c_j of its own, and f(x) = g(e₁, …, e_d, the other columns) with a perceptron
    g. An MLP of plain numbers learns smooth functions long before ragged ones, and tables hold
    ragged ones; waves bring these within reach. Frequencies start at N(0, 1) and V as the layers of
    an MLP. Give it standardised inputs: s is in waves per unit.

    Args:
        in_size: number of inputs.
        out_size: number of outputs.
        hidden_sizes: width of each hidden layer of g.
        numbers: which columns become waves (default: all). Those with two values gain nothing.
        frequencies: K, for each of them.
        width: length of e_j.
        scale: s. Larger lets f vary faster, and follow noise.
        activation: h, and that of g; as in [`MLP`][posterax.networks.MLP].
        key: an int or a JAX key.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> network = px.networks.Periodic(3, 1, (16,), numbers=(0, 2), key=0)
        >>> network(jnp.ones((5, 3))).shape
        (5, 1)

    Reference: Gorishniy, Rubachev and Babenko, *On embeddings for numerical features in tabular
    deep learning*, NeurIPS 2022. There each column may have a V of its own and s is part of c_j;
    here V is shared (their later "lite") and s apart, so that a prior of deviation 1 fits every
    c_j.
    """

    of_inputs: ClassVar[tuple[str, ...]] = ("numbers",)
    looked_up: ClassVar[tuple[str, ...]] = ("frequency",)  # a factor each, which are not added up

    frequency: jax.Array
    embedding: Linear
    layers: list[Linear]
    in_size: int = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    hidden_sizes: tuple[int, ...] = eqx.field(static=True)
    numbers: tuple[int, ...] = eqx.field(static=True)
    frequencies: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    batched = True

    def __init__(
        self,
        in_size: int,
        out_size: int,
        hidden_sizes: Sequence[int] = (100, 100),
        *,
        numbers: Sequence[int] | None = None,
        frequencies: int = 8,
        width: int = 8,
        scale: float = 0.3,
        activation: Activation = "relu",
        key: KeyLike,
    ):
        self._set_sizes(in_size=in_size, out_size=out_size, frequencies=frequencies, width=width)
        self.hidden_sizes = several("hidden_sizes", hidden_sizes)
        self.numbers = _columns(range(self.in_size) if numbers is None else numbers, self.in_size)
        self.scale = float(above_zero("scale", scale))
        self.activation = known_activation(activation)
        first, second, third = jax.random.split(as_key(key), 3)
        self.frequency = initial_normal(first, (len(self.numbers), self.frequencies))
        gain = gain_of(activation)
        self.embedding = Linear(2 * self.frequencies, self.width, gain=gain, key=second)
        wide = self.in_size + len(self.numbers) * (self.width - 1)
        inner = MLP(wide, self.out_size, self.hidden_sizes, activation=activation, key=third)
        self.layers = inner.layers

    def __call__(self, x: jax.Array) -> jax.Array:
        activation = activation_function(self.activation)
        others = np.setdiff1d(np.arange(self.in_size), self.numbers)
        turns = self.scale * x[..., np.array(self.numbers), None] * self.frequency
        waves = jnp.concatenate([_sine(turns + 0.25), _sine(turns)], -1)
        embedded = activation(self.embedding(waves))
        embedded = embedded.reshape(*x.shape[:-1], len(self.numbers) * self.width)
        h = jnp.concatenate([embedded, x[..., others]], -1)
        return perceptron(self.layers, activation, h)


def _sine(turns: jax.Array) -> jax.Array:
    r"""sin(2π turns), by its series around 0: on a CPU thirty times as fast as ``jnp.sin``.

    Whole turns make no difference, and sin(2π (½ − t)) = sin(2πt): so |t| ≤ ¼.
    """
    t = turns - jnp.round(turns)
    t = jnp.where(jnp.abs(t) > 0.25, 0.5 * jnp.sign(t) - t, t)
    terms = 11 if t.dtype == jnp.float64 else 6
    series = jnp.zeros_like(t)
    for k in reversed(range(terms)):
        series = series * t**2 + (-1) ** k * (2 * np.pi) ** (2 * k + 1) / factorial(2 * k + 1)
    return series * t


def _columns(numbers: object, in_size: int) -> tuple[int, ...]:
    """Numbers of columns, each once."""
    if not isinstance(numbers, Sequence | range | np.ndarray) or isinstance(numbers, str):
        raise ValueError(f"numbers must be numbers of columns such as (0, 2), got {numbers!r}")
    found = [n for n in numbers if isinstance(n, int | np.integer) and 0 <= n < in_size]
    if not found or len(found) < len(numbers) or len(set(found)) < len(found):
        raise ValueError(
            f"numbers must be one or more columns from 0 to {in_size - 1}, each once, got {numbers}"
        )
    return tuple(map(int, found))
