r"""Families of the reparameterised bound: what is optimised, and the distribution that it means.

Each family has means μ and raw deviations ρ, σ = softplus(ρ), and what it needs beside them. The
distribution itself (draws, log density, entropy, moments) is the posterior that the fit returns;
correlations are kept relative to σ, so that one learning rate fits them at any scale of weights:

    mean_field   w = μ + σ ε
    full         w = μ + L ε,              L = diag(σ) (I + A), A strictly lower triangular
    low_rank     w = μ + σ (ε + B ε′),     B with K columns
    radial       w = μ + σ ε/‖ε‖ r,        r = |N(0, 1)|, for each array
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from ..._util.special import softplus
from ...model import Model, Parameters
from ...posteriors import FullGaussian, LowRankGaussian, MeanFieldGaussian, Posterior, Radial
from ...posteriors.correlated import refuse_large_covariance
from ...posteriors.symmetric import Symmetric
from ...predictive import Targets
from ...priors import Gaussian, Hierarchical, Prior

Variational = dict[str, Any]  # "mu", "rho", and a family's own arrays: what the optimiser sees


class Family(eqx.Module):
    """A parametrised distribution over weights from which draws are a smooth function of noise."""

    gaussian: ClassVar[bool] = True  # whether every weight by itself is Gaussian

    def check(self, model: Model) -> None:
        """Refuse a model for which the family is too large, before anything is allocated."""

    def stretch(self, size: int) -> float:
        """σ by the deviation of a weight, in an array of this many."""
        return 1.0

    def start(
        self, model: Model, found: Posterior | None, std: Parameters, key: jax.Array
    ) -> tuple[Parameters, Variational]:
        """σ to start from, 0 where it is not known, and what the family needs beside μ and ρ.

        ``std`` are the start's deviations, and ``found`` is its posterior over the same weights,
        whose correlations a family of the same kind keeps.
        """
        return jax.tree.map(lambda s: self.stretch(s.size) * s, std), {}

    def distribution(
        self, model: Model, state: Any, targets: Targets, variational: Variational
    ) -> Symmetric:
        """The distribution with these parameters."""
        raise NotImplementedError

    def knows(self, prior: Prior) -> bool:
        """Whether E_q[log p(w)] is that of a Gaussian with the same means and deviations."""
        return self.gaussian or isinstance(prior, Gaussian | Hierarchical)  # second moments do


class MeanField(Family):
    """Independent Gaussians."""

    def distribution(
        self, model: Model, state: Any, targets: Targets, variational: Variational
    ) -> Symmetric:
        return MeanFieldGaussian(model, state, targets, **variational)


class RadialFamily(Family):
    """A direction at random and the distance of one Gaussian, for each array."""

    gaussian: ClassVar[bool] = False

    def stretch(self, size: int) -> float:
        return float(np.sqrt(size))

    def distribution(
        self, model: Model, state: Any, targets: Targets, variational: Variational
    ) -> Symmetric:
        return Radial(model, state, targets, **variational)


class Full(Family):
    """A Gaussian with all correlations."""

    # A and Adam's two moments of it, which ``fit`` also copies against non-finite numbers; L, the
    # gradient, its sums and what lies between: the most of all objectives, measured on a CPU
    matrices: ClassVar[int] = 13

    def check(self, model: Model) -> None:
        refuse_large_covariance(
            model,
            "family='full'",
            "family='low_rank' holds rank numbers for each, and where= chooses fewer weights",
            self.matrices,
        )

    def start(
        self, model: Model, found: Posterior | None, std: Parameters, key: jax.Array
    ) -> tuple[Parameters, Variational]:
        d, dtype = model.bayesian_size, ravel_pytree(std)[0].dtype
        if not isinstance(found, FullGaussian):
            return std, {"lower": jnp.zeros((d, d), dtype)}
        # the sign of a column is arbitrary, and a deviation's is not
        cholesky = found.cholesky * jnp.sign(jnp.diag(found.cholesky))
        sigma = jnp.diag(cholesky)
        return _filled(std, found.tree(sigma)), {"lower": jnp.tril(cholesky / sigma[:, None], -1)}

    def distribution(
        self, model: Model, state: Any, targets: Targets, variational: Variational
    ) -> Symmetric:
        sigma = softplus(ravel_pytree(variational["rho"])[0])
        lower = jnp.tril(variational["lower"], -1) + jnp.eye(len(sigma), dtype=sigma.dtype)
        cholesky = sigma[:, None] * lower
        return FullGaussian(model, state, targets, mu=variational["mu"], cholesky=cholesky)


class LowRank(Family):
    """A Gaussian with independent parts and ``rank`` common ones."""

    rank: int = eqx.field(static=True)

    def start(
        self, model: Model, found: Posterior | None, std: Parameters, key: jax.Array
    ) -> tuple[Parameters, Variational]:
        shape, dtype = (model.bayesian_size, self.rank), ravel_pytree(std)[0].dtype
        if isinstance(found, LowRankGaussian) and found.factor.shape == shape:
            sigma = ravel_pytree(found.sigma)[0]
            factor = found.factor / jnp.where(sigma > 0, sigma, 1)[:, None]
            return _filled(std, found.sigma), {"factor": factor}
        # at zero the bound is flat in B: a little of everything, within the deviations
        factor = 0.1 / np.sqrt(self.rank) * jax.random.normal(key, shape, dtype)
        flat, tree = ravel_pytree(model.bayesian(std))
        sigma = flat / jnp.sqrt(1 + jnp.sum(jnp.square(factor), axis=1))
        return _filled(std, tree(sigma)), {"factor": factor}

    def distribution(
        self, model: Model, state: Any, targets: Targets, variational: Variational
    ) -> Symmetric:
        sigma = jax.tree.map(softplus, variational["rho"])
        factor = ravel_pytree(sigma)[0][:, None] * variational["factor"]
        return LowRankGaussian(
            model, state, targets, mu=variational["mu"], sigma=sigma, factor=factor
        )


NAMES = ("mean_field", "full", "low_rank", "radial")
DISCRETE = ("bernoulli", "categorical")  # of BlackBoxVI: no draw of them is a smooth function


def make_family(name: str, rank: int) -> Family:
    """A family by name."""
    if name == "low_rank":
        return LowRank(rank)
    return {"mean_field": MeanField, "full": Full, "radial": RadialFamily}[name]()


def _filled(like: Parameters, sigma: Parameters) -> Parameters:
    """With zeros where a weight is a point."""
    return jax.tree.map(lambda a, s: jnp.zeros_like(a) if s is None else s, like, sigma)
