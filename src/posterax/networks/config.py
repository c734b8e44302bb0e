"""Constructor arguments: checked, kept as fields, and given back when a network is saved."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.checks import whole_number

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "sigmoid": jax.nn.sigmoid,
    "identity": lambda x: x,
}

Activation = str | Callable[..., Any]


class Configured(eqx.Module):
    """A network that has each constructor argument as a static field of the same name.

    Example:
        >>> import posterax as px
        >>> px.networks.MLP(3, 1, (8,), key=0).config()
        {'in_size': 3, 'out_size': 1, 'hidden_sizes': [8], 'activation': 'relu', 'residual': False}
    """

    of_inputs: ClassVar[tuple[str, ...]] = ()  # arguments as long as the inputs, not the layers

    def config(self) -> dict[str, Any]:
        """Constructor arguments, for saving by name; the key stays out, the weights are saved."""
        arguments = inspect.signature(type(self).__init__).parameters
        values = {n: getattr(self, n) for n in arguments if n not in ("self", "key")}
        kind = type(self).__name__
        for name, value in values.items():
            if callable(value):
                raise ValueError(f"{kind}: {name} given as a function has no saved form: name it")
        return {n: list(v) if isinstance(v, tuple) else v for n, v in values.items()}

    def _set_sizes(self, **sizes: int) -> None:
        """Fields that are whole numbers of 1 or more."""
        for name, value in sizes.items():
            setattr(self, name, whole_number(name, value))


def known_activation(activation: Activation) -> Activation:
    """The activation as it was given, if it has a function."""
    activation_function(activation)
    return activation


def activation_function(activation: Activation) -> Callable[..., Any]:
    """Look up an activation by name, or pass a function through."""
    if callable(activation):
        return activation
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ValueError(
            f"activation must be one of {', '.join(ACTIVATIONS)} or a function, got {activation!r}"
        )
    return ACTIVATIONS[activation]


def several(
    name: str, values: object, *, least: int = 0, most: int | None = None
) -> tuple[int, ...]:
    """A tuple of whole numbers, ``least`` to ``most`` of them.

    Example:
        >>> from posterax.networks.config import several
        >>> several("channels", [8, 16], least=1)
        (8, 16)
    """
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise ValueError(f"{name} must be several whole numbers such as (8, 8), got {values!r}")
    numbers = tuple(whole_number(name, value) for value in values)
    if len(numbers) < least or (most is not None and len(numbers) > most):
        count = f"{least}" if least == most else f"{least} or more"
        raise ValueError(f"{name} must be {count} whole numbers, got {numbers!r}")
    return numbers


def flag(name: str, value: object) -> bool:
    """True or False.

    Example:
        >>> from posterax.networks.config import flag
        >>> flag("per_step", True)
        True
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return value
