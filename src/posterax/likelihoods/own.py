"""Any distribution of numpyro as a likelihood."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .base import Kind, Likelihood


class From(Likelihood):
    """Any likelihood: a function from outputs to a numpyro distribution.

    Args:
        function: ``outputs → distribution``, batched over examples; it may take ``params`` too.
        params: own parameters with their initial values.
        kind: ``"regression"``, ``"counts"`` or ``"classification"``.

    Example:
        >>> import numpyro.distributions as dist
        >>> import posterax as px
        >>> likelihood = px.likelihoods.From(lambda f: dist.Laplace(f, 0.1))
        >>> likelihood.kind
        'regression'
    """

    function: Callable[..., dist.Distribution] = eqx.field(static=True)
    params: dict[str, Any]
    family: Kind = eqx.field(static=True)

    def __init__(
        self,
        function: Callable[..., dist.Distribution],
        params: dict[str, Any] | None = None,
        *,
        kind: Kind = "regression",
    ):
        self.function = function
        self.params = {k: np.asarray(v, np.float64) for k, v in (params or {}).items()}
        if kind not in ("regression", "counts", "classification"):
            raise ValueError(
                f"kind must be 'regression', 'counts' or 'classification', got {kind!r}"
            )
        self.family = kind

    @property
    def kind(self) -> Kind:
        return self.family

    def init(self, target_shape: tuple[int, ...]) -> dict[str, Any]:
        return {name: jnp.asarray(value, jnp.float32) for name, value in self.params.items()}

    def distribution(self, outputs: jax.Array, params: Any, side: Any = None) -> dist.Distribution:
        return self.function(outputs, params) if self.params else self.function(outputs)

    def check(self, output_shape: tuple[int, ...], y: Any) -> tuple[int, ...]:
        made = jax.eval_shape(
            lambda f: self.distribution(f, self.init(())).sample(jax.random.key(0)),
            jax.ShapeDtypeStruct(output_shape, jnp.float32),
        )
        target, drawn = tuple(np.shape(y)[1:]), tuple(made.shape[1:])
        one_each = made.shape[:1] == output_shape[:1]
        if one_each and (drawn == target or {drawn, target} == {(), (1,)}):
            return drawn
        raise ValueError(
            f"y has shape {np.shape(y)}, but the likelihood's distribution for outputs "
            f"{output_shape} draws {tuple(made.shape)}"
        )
