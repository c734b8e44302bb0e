"""The steps of black-box variational inference."""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from ..._util.tree import dtype_of, same_structure
from ...data import Batch, Data
from ...model import Parameters
from ...posteriors import Factorized, MeanFieldGaussian, Posterior
from ...posteriors.base import map_samples
from ...posteriors.factors import (
    CategoricalFactor,
    Factor,
    GaussianFactor,
    OwnFactor,
    PointFactor,
    by_array,
    by_name,
    draw,
    factors,
    has_grids,
)
from ...priors import Prior, is_flat, is_prior
from ..base import Draw, History, Info, Start
from ..objective import batch_nll, mean_nll
from .elbo import ElboPhase, mean_state, start_moments
from .score_function import learning_signals, mean_and_variance, no_coefficient, sample_gradients


class BlackBoxState(NamedTuple):
    """Variational parameters by name, control variates, the network's state, the optimiser's."""

    variational: dict[str, Any]
    coefficients: Any  # one for each array that has factors, or None
    state: Any
    optimizer: Any
    step: jax.Array


class BlackBoxPhase(ElboPhase):
    """Gradient descent on minus the evidence lower bound per data point."""

    title: ClassVar[str] = "black-box VI"

    def _factors(self) -> list[Factor]:
        return factors(self.model, self.method.family)

    def _priors(self) -> list[Prior]:
        return jax.tree.leaves(self.model.priors, is_leaf=is_prior)

    # -- where it starts

    def init(self, start: Start, data: Data | None, key: jax.Array) -> BlackBoxState:
        before: Any = start.posterior
        means, stds = (jax.tree.leaves(part) for part in start_moments(start))
        known = [None] * len(means)
        if hasattr(before, "marginals"):
            treedef: Any = jax.tree.structure(self.model.priors, is_leaf=is_prior)
            known = treedef.flatten_up_to(before.marginals())
        nodes = [
            self._first(*parts, bool(start.given))
            for parts in zip(self._factors(), self._priors(), means, stds, known, strict=True)
        ]
        names = ("mu", "rho", "logits") if self.method.family == "auto" else ("mu", "own")
        variational = by_name(self.model, nodes, names)
        if names[-1] == "own" and isinstance(before, Factorized):
            variational = self._taken_over(before, variational)
        coefficients = None
        if self.method.baseline == "control_variate":
            coefficients = [
                None if isinstance(factor, PointFactor) else no_coefficient(node)
                for factor, node in zip(self._factors(), nodes, strict=True)
            ]
        optimizer = self._optimizer().init(variational)
        step = jnp.zeros((), jnp.int32)
        return BlackBoxState(variational, coefficients, start.state, optimizer, step)

    def _taken_over(self, before: Factorized, fresh: dict[str, Any]) -> dict[str, Any]:
        """What the same family found; of other weights or components, only its means are left."""
        old = before.variational
        same = type(before.family) is type(self.method.family) and same_structure(old, fresh)
        if not same or any(jax.tree.leaves(jax.tree.map(_other_shape, old, fresh))):
            return fresh
        return jax.tree.map(lambda a, like: jnp.asarray(a, like.dtype), old, fresh)

    def _first(
        self, factor: Factor, prior: Prior, w: jax.Array, std: Any, marginals: Any, given: bool
    ) -> dict[str, Any]:
        """Variational parameters of one array, from the start's weights and what else it knows."""
        if isinstance(factor, PointFactor):
            return {"mu": w}
        if isinstance(factor, OwnFactor):
            return {"own": factor.family.init(prior, w)}
        if isinstance(factor, GaussianFactor):
            return {"mu": w, "rho": self._first_rho(prior, std)}
        assert isinstance(factor, CategoricalFactor)
        values = len(factor.grid)
        probs = jnp.broadcast_to(jnp.asarray(factor.grid.probs, w.dtype), (*w.shape, values))
        if marginals is not None and marginals.shape == probs.shape:
            # never less than a little of the prior: what has probability 0 has no finite logit
            probs = jnp.maximum(marginals, 1e-4 * probs)
        elif given:
            nearest = jax.nn.one_hot(factor.grid.index(w), values, dtype=w.dtype)
            probs = 0.5 * nearest + 0.5 * probs
        return {"logits": factor.logits(probs)}

    # -- steps

    def step(
        self, state: BlackBoxState, batch: Batch, key: jax.Array
    ) -> tuple[BlackBoxState, Info]:
        dtype = dtype_of(self.model.parameters)
        nll_scale, kl_scale = self._scales(state.step, batch, dtype)
        w, nll, point_grads, states = self._evaluate(state, batch, key)
        arrays, closed = self._arrays(state), self.method.kl == "auto"
        signals, kl = learning_signals(
            arrays, w, nll_scale * nll, kl_scale, closed=closed, alone=self.method.rao_blackwell
        )
        nodes: list[Any] = []
        coefficients: list[Any] = []
        variance, count = jnp.zeros((), dtype), 0
        for i, (factor, prior, v) in enumerate(arrays):
            coefficient = None if state.coefficients is None else state.coefficients[i]
            if isinstance(factor, PointFactor):
                nodes.append(jax.tree.map(lambda g: nll_scale * jnp.mean(g, 0), point_grads[i]))
                coefficients.append(None)
                continue
            g, coefficient = sample_gradients(
                factor, v, w[i], signals[i], self.method.baseline, coefficient
            )
            mean, spread = mean_and_variance(g, self.method.baseline)
            if closed and factor.kl(prior, v) is not None:
                own = jax.grad(partial(_total_kl, factor, prior))(v)
                mean = jax.tree.map(lambda g, k: g + kl_scale * k, mean, own)
            nodes.append(mean)
            coefficients.append(coefficient)
            variance += jax.tree.reduce(jnp.add, jax.tree.map(jnp.sum, spread))
            count += sum(part.size for part in jax.tree.leaves(spread))

        grads = by_name(self.model, nodes, state.variational)
        # weight decay of an optimiser is for means and points: others have no zero to go back to
        decayed = {
            name: part if name == "mu" else jax.tree.map(jnp.zeros_like, part)
            for name, part in state.variational.items()
        }
        updates, optimizer = self._optimizer().update(grads, state.optimizer, decayed)
        new = BlackBoxState(
            optax.apply_updates(state.variational, updates),
            None if state.coefficients is None else coefficients,
            states,
            optimizer,
            state.step + 1,
        )
        terms = {"nll": mean_nll(jnp.mean(nll), batch), "kl": kl / self.plan.total.astype(dtype)}
        # where one of those is not finite, that is to be named, and not what follows from it
        sound = jnp.isfinite(terms["nll"]) & jnp.isfinite(terms["kl"])
        return new, Info(terms | {"gradient_variance": jnp.where(sound, variance / count, 0)})

    def _arrays(self, state: BlackBoxState) -> list[Any]:
        nodes = by_array(self.model, state.variational)
        return list(zip(self._factors(), self._priors(), nodes, strict=True))

    def _evaluate(self, state: BlackBoxState, batch: Batch, key: jax.Array) -> Any:
        """Draws of every array, their NLL, its gradient for points alone, and the new state."""
        is_point = jax.tree.map(is_flat, self.model.priors, is_leaf=is_prior)

        def one(key: jax.Array) -> Any:
            weight_key, network_key = jax.random.split(key)
            drawn = draw(self.model, self.method.family, state.variational, weight_key)
            points, rest = eqx.partition(drawn, is_point)

            def nll_of(points: Parameters) -> tuple[jax.Array, Any]:
                w = eqx.combine(points, rest)
                return batch_nll(self.model, w, state.state, batch, network_key)

            # only points need a gradient of the likelihood
            if jax.tree.leaves(points):
                (nll, new), points = jax.value_and_grad(nll_of, has_aux=True)(points)
            else:
                nll, new = nll_of(points)
            return jax.tree.leaves(drawn), nll, points, new

        keys = jax.random.split(key, self.method.samples)
        w, nll, grads, states = map_samples(one, keys, batch.y.shape[0])
        return w, nll, by_array(self.model, {"mu": grads}), mean_state(states)

    def _rho(self, state: BlackBoxState) -> Any:
        return state.variational.get("rho")

    def explain(
        self, state: BlackBoxState, history: History, term: str | None = None
    ) -> str | None:
        if term == "gradient_variance":
            return "the gradient: lower the learning rate, or start with a larger initial_rho"
        if term == "kl" and self.method.family != "auto":
            return (
                "prior or entropy (kl): log p(w) or log q(w) is not finite at a draw of the "
                "family, which must have no draws where the prior has no density"
            )
        return super().explain(state, history, term)

    def finish(self, state: BlackBoxState, draws: Draw | None) -> Posterior:
        about = self.model, state.state, self.plan.targets
        v, family = state.variational, self.method.family
        if family == "auto" and not has_grids(self.model):
            return MeanFieldGaussian(*about, mu=v["mu"], rho=v["rho"])
        return Factorized(*about, family=family, variational=v)


def _other_shape(a: Any, b: Any) -> bool:
    return jnp.shape(a) != jnp.shape(b)


def _total_kl(factor: Factor, prior: Prior, v: dict[str, Any]) -> jax.Array:
    each: Any = factor.kl(prior, v)
    return jnp.sum(each)
