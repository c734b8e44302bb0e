"""Targets with bounds: a location and a spread on scales on which every number is allowed."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from .base import Likelihood
from .links import bent, scaled_softplus
from .regression import _check_initial, _check_noise


def check_finite(name: str, value: Any) -> Any:
    """A finite number, or an array of them."""
    array = np.asarray(value, np.float64)
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be a finite number, or one per output, got {value!r}")
    return float(array) if array.ndim == 0 else array


def check_reach(value: Any) -> Any:
    """How far locations go from their centre: a number, or two of them, below and above."""
    array = np.asarray(value, np.float64)
    if array.shape not in ((), (2,)) or not np.all(np.isfinite(array) & (array > 0)):
        raise ValueError(f"reach must be a number above 0, or (below, above), got {value!r}")
    return float(array) if array.ndim == 0 else tuple(array.tolist())


class Linked(Likelihood):
    """A location from the network through a link; a spread known, learned, or from it too.

    Of D targets the outputs are D locations; D raw spreads where these are predicted; and
    ``more`` times D others.
    """

    initial: Any
    centre: Any
    reach: Any

    spread: ClassVar[str] = "noise"  # the argument's name
    start: ClassVar[float] = 0.1  # of a learned spread, where the data do not tell
    more: ClassVar[int] = 0

    def __init__(self, spread: Any, initial: Any, centre: Any, reach: Any):
        setattr(self, self.spread, _check_noise(spread, self.spread))
        self.initial, self.centre = _check_initial(initial), check_finite("centre", centre)
        self.reach = check_reach(reach)

    def _given(self) -> Any:
        return getattr(self, self.spread)

    def _spread_is(self, word: str) -> bool:
        given = self._given()
        return isinstance(given, str) and given == word

    @property
    def _outputs_each(self) -> int:
        return 1 + self._spread_is("predicted") + self.more

    def init(self, target_shape: tuple[int, ...]) -> dict[str, Any]:
        if not self._spread_is("learned"):
            return {}
        initial = self.start if self.initial is None else self.initial
        start = jnp.broadcast_to(jnp.asarray(np.log(initial)), target_shape)
        return {f"log_{self.spread}": start}

    def outputs_for(self, target_shape: tuple[int, ...]) -> tuple[int, ...]:
        if self._outputs_each == 1:
            return target_shape
        return (*target_shape[:-1], self._outputs_each * (target_shape[-1] if target_shape else 1))

    def target_for(self, output_shape: tuple[int, ...]) -> tuple[int, ...]:
        if self._outputs_each == 1:
            return output_shape
        return (*output_shape[:-1], output_shape[-1] // self._outputs_each)

    def check(self, output_shape: tuple[int, ...], y: ArrayLike) -> tuple[int, ...]:
        shape = super().check(output_shape, y)
        if shape == () and self._outputs_each > 1:
            shape = (1,)  # several outputs an example stand for targets of shape (N, 1)
        for name, value in ((self.spread, self._given()), ("centre", self.centre)):
            each = () if isinstance(value, str) else np.shape(value)
            if each != shape[len(shape) - len(each) :]:
                raise ValueError(f"{name} must be one number or of shape {shape}, got shape {each}")
        return shape

    def parts(self, outputs: jax.Array, params: PyTree) -> tuple[jax.Array, Any, list[jax.Array]]:
        """Locations, the spread (raw if predicted), and what is more."""
        location, *others = (
            jnp.split(outputs, self._outputs_each, axis=-1) if self._outputs_each > 1 else [outputs]
        )
        if self._spread_is("predicted"):
            return location, others[0], others[1:]
        if self._spread_is("learned"):
            known = jnp.exp(params[f"log_{self.spread}"])
        else:
            known = jnp.asarray(self._given(), outputs.dtype)
        return location, jnp.broadcast_to(known, location.shape), others

    def within_reach(self, f: jax.Array) -> jax.Array:
        """The centre plus f, which is bent where it goes too far."""
        both = isinstance(self.reach, tuple)
        below, above = self.reach if both else (self.reach, self.reach)
        return jnp.asarray(self.centre, f.dtype) + bent(f, -below, above)

    def widened(self, outputs: jax.Array, factor: Any) -> jax.Array:
        if not self._spread_is("predicted"):
            return outputs
        location, raw, *others = jnp.split(outputs, self._outputs_each, axis=-1)
        return jnp.concatenate([location, self._wider(location, raw, factor), *others], axis=-1)

    def _wider(self, location: jax.Array, raw: jax.Array, factor: Any) -> jax.Array:
        """Raw spreads of noise that is ``factor`` times as wide."""
        return scaled_softplus(raw, factor)


def with_start(likelihood: Any, start: np.ndarray) -> Any:
    """The likelihood with the start of its learned spread, where the user gave none."""
    if not likelihood._spread_is("learned") or likelihood.initial is not None:
        return likelihood
    is_leaf = lambda leaf: leaf is None  # noqa: E731
    return eqx.tree_at(lambda own: own.initial, likelihood, start, is_leaf=is_leaf)
