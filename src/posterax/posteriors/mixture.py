"""Several mean-field Gaussians side by side: an ensemble whose members are posteriors."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._util.special import softplus
from ..data import shuffle
from ..model import Parameters
from ..predictive import Particles
from ..priors import PerWeight
from .base import Posterior
from .draws import every
from .scaled import MeanFieldGaussian
from .symmetric import Signed, opposite_pairs


class Placed(NamedTuple):
    """The identity of a draw: its component, and the noise within it."""

    component: jax.Array
    within: Signed


class GaussianMixture(Posterior):
    r"""q(w) = (1/M) Σₘ ∏ᵢ N(wᵢ | μₘᵢ, σₘᵢ²) with σ = softplus(ρ).

    ``mu`` and ``rho`` are trees like the model's parameters with the components on a leading axis;
    the network's state has that axis too. Draws are spread evenly over the components.
    """

    mu: Parameters
    rho: Parameters

    @property
    def members(self) -> int:
        """M, the number of components."""
        return len(jax.tree.leaves(self.mu)[0])

    def _sizes(self) -> dict[str, int]:
        return {"members": self.members}

    def component(self, index: Any) -> MeanFieldGaussian:
        """One component as a posterior of its own."""
        mu, rho, state = jax.tree.map(lambda a: a[index], (self.mu, self.rho, self.state))
        return MeanFieldGaussian(self.model, state, self.targets, mu=mu, rho=rho)

    member = component

    def fold(self, index: Any, folds: int) -> "GaussianMixture":
        mu, rho, state = every((self.mu, self.rho, self.state), index, folds)
        return GaussianMixture(self.model, state, self.targets, mu=mu, rho=rho)

    def particles(self, key: jax.Array, samples: int | None) -> Particles:
        n = samples or 100
        within = Signed(jax.random.split(key, n), jnp.ones(n))
        return self._placed(np.arange(n) % self.members, within, key)

    def antithetic(self, key: jax.Array, samples: int | None) -> Particles:
        n = samples or 100
        # fewer draws than two for each component: one each, rather than pairs for some
        each = np.arange(n) if n < 2 * self.members else np.arange(n) // 2
        return self._placed(each % self.members, opposite_pairs(key, n), key)

    def _placed(self, component: np.ndarray, within: Signed, key: jax.Array) -> Particles:
        # components weigh the same, however many draws each has
        counts = np.bincount(component, minlength=self.members)
        weights = 1 / counts[component]
        # fewer draws than components: not always the same ones
        placed = shuffle(jnp.asarray(component), self.members, jax.random.fold_in(key, 1))
        return Particles(Placed(placed, within), jnp.asarray(weights / weights.sum()))

    def parameters(self, identity: PyTree) -> Parameters:
        return self.component(identity.component).parameters(identity.within)

    def network_state(self, identity: PyTree) -> Any:
        return jax.tree.map(lambda a: a[identity.component], self.state)

    def moments(self) -> tuple[Parameters, Parameters]:
        return _moments(self.mu, self.rho)

    def log_prob(self, parameters: Parameters) -> jax.Array:
        """log (1/M) Σₘ ∏ᵢ N(wᵢ | μₘᵢ, σₘᵢ²)."""
        one = lambda index: self.component(index).log_prob(parameters)  # noqa: E731
        each = jax.lax.map(one, jnp.arange(self.members))
        return jax.nn.logsumexp(each) - np.log(self.members)

    def as_prior(self) -> PerWeight:
        raise ValueError(
            f"{self.members} components are no Gaussian: use posterior.component(i).as_prior()"
        )


@jax.jit  # apart, each operation would be a program of its own for every shape
def _moments(mu: Parameters, rho: Parameters) -> tuple[Parameters, Parameters]:
    def deviation(m: jax.Array, r: jax.Array | None) -> jax.Array:
        within = 0 if r is None else jnp.mean(jnp.square(softplus(r)), 0)
        return jnp.sqrt(jnp.var(m, 0) + within)

    return jax.tree.map(lambda m: jnp.mean(m, 0), mu), jax.tree.map(deviation, mu, rho)
