"""Networks for sequences: recurrent ones, and causal, dilated convolutions."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import PyTree

from .._util.admit import admit
from .._util.checks import one_of, whole_number
from .._util.keys import KeyLike, as_key
from .config import Activation, Configured, activation_function, flag, known_activation, several
from .mlp import Linear, gain_of, he_normal

_CELLS: dict[str, Any] = {"lstm": eqx.nn.LSTMCell, "gru": eqx.nn.GRUCell}


def as_sequence(x: PyTree, in_size: int, dtype: DTypeLike) -> tuple[jax.Array, jax.Array | None]:
    """One sequence as values (T, features) in the precision of the weights, and its mask.

    Args:
        x: values (T, features), or a pair (values, mask) with a boolean mask (T,), true where
            there is a step and false where there is padding.
        in_size: the number of features the network was made for.
        dtype: the precision of the weights.

    Example:
        >>> import numpy as np
        >>> from posterax.networks.sequences import as_sequence
        >>> values, mask = as_sequence((np.ones((2, 1)), np.array([True, False])), 1, "float32")
        >>> print(values.T)
        [[1. 0.]]
    """
    values, mask = split_mask(x)
    if values.ndim != 2 or values.shape[1] != in_size:
        raise ValueError(
            f"x must be one sequence of shape (T, {in_size}), got {values.shape}; vmap a batch"
        )
    if mask is not None:  # so that not even NaN gets through
        values = jnp.where(mask[:, None], values, 0)
    return values.astype(dtype), mask


def split_mask(x: PyTree) -> tuple[jax.Array, jax.Array | None]:
    """Values and mask of one sequence; no mask means that every step counts."""
    if not isinstance(x, tuple | list):
        return jnp.asarray(admit(x, "x")), None
    if len(x) != 2:
        raise ValueError(f"x must be an array or a pair (values, mask), got {len(x)} parts")
    values, mask = (jnp.asarray(admit(part, "x")) for part in x)
    if mask.dtype != bool or mask.shape != values.shape[:1]:
        raise ValueError(
            f"x: the mask must be boolean, one entry per step, of shape {values.shape[:1]}, got "
            f"{mask.dtype} of shape {mask.shape}"
        )
    return values, mask


class Recurrent(Configured):
    """A recurrent network: one cell, applied to every step, then an affine output.

    The cell is the long short-term memory of Hochreiter and Schmidhuber (1997) or the gated
    recurrent unit of Cho et al. (2014). Its weights are the same at every step, so one draw of
    them holds for a whole sequence (Fortunato, Blundell and Vinyals 2017, *Bayesian recurrent
    neural networks*).

    Inputs are (T, features), or a pair (values, mask) with a boolean mask (T,) for sequences of
    different lengths: a masked step leaves the state as it was, wherever the padding lies.

    With ``per_step`` masked steps have outputs and targets too, and these count in the
    likelihood: a mask is of inputs. Where they must not, leave ``per_step`` out and give a row for
    every step that counts, the sequence masked after it, with that step's target.

    Args:
        in_size: features of each step.
        out_size: number of outputs.
        hidden_size: size of the state.
        cell: ``"lstm"`` or ``"gru"``.
        per_step: outputs (T, out_size) of every step instead of those after the last.
        key: an int or a JAX key.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> network = px.networks.Recurrent(2, 1, 4, key=0)
        >>> values, mask = jnp.ones((5, 2)), jnp.arange(5) < 3
        >>> bool((network((values, mask)) == network(values[:3])).all())
        True
    """

    of_sequences: ClassVar[bool] = True

    cell_weights: eqx.nn.LSTMCell | eqx.nn.GRUCell
    head: Linear
    in_size: int = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    hidden_size: int = eqx.field(static=True)
    cell: str = eqx.field(static=True)
    per_step: bool = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        out_size: int,
        hidden_size: int = 32,
        *,
        cell: str = "lstm",
        per_step: bool = False,
        key: KeyLike,
    ):
        self._set_sizes(in_size=in_size, out_size=out_size, hidden_size=hidden_size)
        self.cell = one_of("cell", cell, tuple(_CELLS))
        self.per_step = flag("per_step", per_step)
        a, b = jax.random.split(as_key(key))
        self.cell_weights = _CELLS[cell](self.in_size, self.hidden_size, key=a)
        self.head = Linear(self.hidden_size, self.out_size, gain=1.0, key=b)

    def __call__(self, x: PyTree) -> jax.Array:
        dtype, lstm = self.head.weight.dtype, self.cell == "lstm"
        values, mask = as_sequence(x, self.in_size, dtype)
        zeros = jnp.zeros(self.hidden_size, dtype)

        def step(state: PyTree, inputs: tuple[jax.Array, jax.Array | None]) -> tuple[Any, Any]:
            value, present = inputs
            new = self.cell_weights(value, state)
            if present is not None:
                new = jax.tree.map(lambda a, b: jnp.where(present, a, b), new, state)
            return new, new[0] if lstm else new

        start: Any = (zeros, zeros) if lstm else zeros
        last, hidden = jax.lax.scan(step, start, (values, mask))
        last = last[0] if lstm else last
        return self.head(hidden if self.per_step else last)


class TemporalBlock(eqx.Module):
    """Two causal convolutions of one dilation, added to the input."""

    convolutions: list[eqx.nn.Conv1d]
    shortcut: eqx.nn.Conv1d | None

    def __init__(self, i: int, o: int, kernel: int, dilation: int, gain: float, key: jax.Array):
        a, b, c = jax.random.split(key, 3)
        # all padding before the first step: an output sees its own step and earlier ones only
        options: dict[str, Any] = {"dilation": dilation, "padding": (((kernel - 1) * dilation, 0),)}
        self.convolutions = [
            he_normal(eqx.nn.Conv1d, n, o, kernel, gain=gain, key=k, **options)
            for n, k in ((i, a), (o, b))
        ]
        self.shortcut = None if i == o else he_normal(eqx.nn.Conv1d, i, o, 1, gain=1.0, key=c)

    def __call__(self, x: jax.Array, mask: jax.Array | None, activation: Callable) -> jax.Array:
        h = x
        for convolution in self.convolutions:
            h = activation(convolution(h))
            # biases fill the padding again; zeros there are what an unpadded sequence begins with
            h = h if mask is None else jnp.where(mask, h, 0)
        return activation(h + (x if self.shortcut is None else self.shortcut(x)))


class TemporalConvNet(Configured):
    """A temporal convolutional network: the output at t depends on steps 1 … t only.

    After Bai, Kolter and Koltun (2018, *An empirical evaluation of generic convolutional and
    recurrent networks for sequence modeling*): block i has dilation 2^i and a residual
    connection, so L blocks see 1 + 2 (kernel − 1)(2^L − 1) steps. Their weight normalisation and
    dropout are left out: the prior speaks of the weights themselves.

    Inputs are (T, features), or a pair (values, mask) with a boolean mask (T,), padded at the end
    or at the start; the last step then is the last unmasked one.

    With ``per_step`` masked steps count in the likelihood, as in
    [`Recurrent`][posterax.networks.Recurrent].

    Args:
        in_size: features of each step.
        out_size: number of outputs.
        channels: channels of each block.
        kernel: steps each convolution sees, 2 or more.
        activation: a name (``"relu"``, …) or a function.
        per_step: outputs (T, out_size) of every step instead of those of the last.
        key: an int or a JAX key.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> network = px.networks.TemporalConvNet(2, 1, (4, 4), key=0)
        >>> jax.eval_shape(network, jnp.ones((9, 2))).shape
        (1,)
    """

    of_sequences: ClassVar[bool] = True

    blocks: list[TemporalBlock]
    head: Linear
    in_size: int = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    channels: tuple[int, ...] = eqx.field(static=True)
    kernel: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)
    per_step: bool = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        out_size: int,
        channels: Sequence[int] = (32, 32, 32),
        kernel: int = 3,
        *,
        activation: Activation = "relu",
        per_step: bool = False,
        key: KeyLike,
    ):
        self._set_sizes(in_size=in_size, out_size=out_size)
        self.channels = several("channels", channels, least=1)
        self.kernel = whole_number("kernel", kernel, least=2)
        self.activation = known_activation(activation)
        self.per_step = flag("per_step", per_step)
        head, *keys = jax.random.split(as_key(key), 1 + len(self.channels))
        sizes = (self.in_size, *self.channels)
        self.blocks = [
            TemporalBlock(sizes[i], sizes[i + 1], self.kernel, 2**i, gain_of(activation), k)
            for i, k in enumerate(keys)
        ]
        self.head = Linear(sizes[-1], self.out_size, gain=1.0, key=head)

    def __call__(self, x: PyTree) -> jax.Array:
        activation = activation_function(self.activation)
        values, mask = as_sequence(x, self.in_size, self.head.weight.dtype)
        h = values.T
        for block in self.blocks:
            h = block(h, mask, activation)
            h = h if mask is None else jnp.where(mask, h, 0)
        if self.per_step:
            return self.head(h.T)
        last = -1 if mask is None else len(mask) - 1 - jnp.argmax(mask[::-1])
        return self.head(h[:, last])
