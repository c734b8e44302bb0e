"""A posterior whose weights are independent of each other, each with a factor of its own."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..model import Parameters
from ..priors import PerWeight
from .base import Posterior
from .factors import CategoricalFactor, draw, each, has_grids


class Factorized(Posterior):
    r"""q(w) = ∏ᵢ qᵢ(wᵢ), categorical where weights are on a grid; made by ``px.BlackBoxVI``.

    ``variational`` is a dictionary of trees like the model's parameters, each with ``None`` where
    an array has no such thing: ``mu`` and ``rho`` of Gaussian factors (``mu`` also of points) and
    ``logits`` of categorical ones, or ``own`` where the family is the user's. Where all factors
    are Gaussian, ``MeanFieldGaussian`` is the posterior instead.
    """

    family: Any
    variational: dict[str, Any]

    def parameters(self, identity: PyTree) -> Parameters:
        return draw(self.model, self.family, self.variational, identity)

    def log_prob(self, parameters: Parameters) -> jax.Array:
        """Σᵢ log qᵢ(wᵢ) over all parameters that are not points; −∞ off the grid."""
        weights = iter(jax.tree.leaves(parameters))
        terms = self._each(lambda factor, v: jnp.sum(factor.log_prob(v, next(weights))))
        return jax.tree.reduce(jnp.add, terms)

    def _each(self, function: Any) -> list[Any]:
        return each(self.model, self.family, self.variational, function)

    def marginals(self) -> Parameters:
        """P(wᵢ = vₖ) of every weight on a grid, the values on a last axis; ``None`` for others.

        Example:
            >>> import numpy as np
            >>> import posterax as px
            >>> network = {"slope": np.ones((1, 1), "float32")}, lambda p, x: x @ p["slope"]
            >>> model = px.Model(network, px.priors.Grid([0, 1]), px.likelihoods.Gaussian(1.0))
            >>> x = np.ones((3, 1), "float32")
            >>> posterior = px.fit(model, (x, x), px.BlackBoxVI(), steps=10)
            >>> posterior.marginals().network["slope"].shape
            (1, 1, 2)
        """

        def probs(factor: Any, v: dict[str, Any]) -> jax.Array | None:
            if not isinstance(factor, CategoricalFactor):
                return None
            return jnp.moveaxis(jnp.exp(factor.log_probs(v)), 0, -1)

        return self.model.tree_of(self._each(probs))

    def moments(self) -> tuple[Parameters, Parameters]:
        mean, std = zip(*self._each(lambda factor, v: factor.moments(v)), strict=True)
        return self.model.tree_of(mean), self.model.tree_of(std)

    def as_prior(self) -> PerWeight:
        if has_grids(self.model):
            raise ValueError(
                "Factorized: weights on a grid are not Gaussian, so this posterior is no prior for "
                "the next data: fit all data together, or read posterior.marginals()"
            )
        return super().as_prior()

    def save(self, path: str | Path) -> None:
        if self.family != "auto":
            raise ValueError(
                f"save: the family {type(self.family).__name__} is code of your own, which a file "
                "cannot hold: keep posterior.variational and the class, or draws of "
                "posterior.sample(key, n)"
            )
        super().save(path)
