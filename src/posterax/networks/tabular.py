"""A network for tables: a perceptron that may begin from what other models say."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.keys import KeyLike
from .config import Activation, Configured, activation_function, known_activation, several
from .mlp import MLP, Linear, perceptron


class Tabular(Configured):
    r"""A perceptron whose first outputs are corrections, f(x, b) = (b, 0) + g(x, b).

    b are the last inputs: what other models, boosted trees for instance, say of a row on the scale
    of the outputs. The network learns where they are wrong, and how wide the noise around them is.
    It starts close to f = b: the last layer's weights are a tenth of an MLP's.

    Args:
        in_size: number of inputs besides b.
        out_size: number of outputs.
        hidden_sizes: width of each hidden layer of g.
        offsets: how many numbers b has, at most ``out_size``.
        activation: as in [`MLP`][posterax.networks.MLP].
        key: an int or a JAX key.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> network = px.networks.Tabular(3, 2, (16,), offsets=1, key=0)
        >>> x, b = jnp.ones((5, 3)), 7 * jnp.ones((5, 1))
        >>> network(jnp.concatenate([x, b], -1)).shape
        (5, 2)

    Reference: He, Zhang, Ren and Sun, *Deep residual learning for image recognition*, CVPR 2016
    (learning a correction); Wolpert, *Stacked generalization*, Neural Networks 1992 (from others'
    predictions).
    """

    layers: list[Linear]
    in_size: int = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    hidden_sizes: tuple[int, ...] = eqx.field(static=True)
    offsets: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    batched = True

    def __init__(
        self,
        in_size: int,
        out_size: int,
        hidden_sizes: Sequence[int] = (50,),
        *,
        offsets: int = 1,
        activation: Activation = "relu",
        key: KeyLike,
    ):
        self._set_sizes(in_size=in_size, out_size=out_size, offsets=offsets)
        if offsets > out_size:
            raise ValueError(f"offsets must be at most out_size={out_size}, got {offsets}")
        self.hidden_sizes = several("hidden_sizes", hidden_sizes)
        self.activation = known_activation(activation)
        wide = self.in_size + self.offsets
        inner = MLP(wide, self.out_size, self.hidden_sizes, activation=activation, key=key)
        last = inner.layers[-1]
        last = eqx.tree_at(lambda m: m.weight, last, 0.1 * last.weight)
        self.layers = [*inner.layers[:-1], last]

    def __call__(self, x: jax.Array) -> jax.Array:
        activation = activation_function(self.activation)
        more = [(0, 0)] * (x.ndim - 1) + [(0, self.out_size - self.offsets)]
        return perceptron(self.layers, activation, x) + jnp.pad(x[..., self.in_size :], more)
