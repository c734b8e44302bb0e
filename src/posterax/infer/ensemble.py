r"""Deep ensembles (Lakshminarayanan et al. 2017): networks from different starts, side by side."""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from .._checks import whole
from .._noise import noise_key
from ..data import Batch, Data
from ..model import Model
from ..posteriors import Draws, GaussianMixture, Posterior
from .base import Draw, Info, Method, Phase, Plan, Start, check_optimizer, choose
from .bayes_by_backprop import BayesByBackprop, VariationalPhase, VariationalState
from .point import MaximumAPosteriori, MaximumLikelihood


class EnsemblePhase(Phase):
    """The phase of one member, vmapped over all of them."""

    member: Phase
    members: int = eqx.field(static=True)
    temperatures: Any = None  # (members,), where they differ

    title: ClassVar[str] = "training members"

    def init(self, previous: Start, data: Data | None, key: jax.Array) -> Any:
        def one(index: jax.Array, key: jax.Array) -> Any:
            if previous.given:
                return self.member.init(self._start_of(index, previous), data, key)
            fresh = previous._replace(parameters=self.model.init(key))
            return self.member.init(fresh, data, key)

        return jax.vmap(one)(jnp.arange(self.members), jax.random.split(key, self.members))

    def _start_of(self, index: jax.Array, previous: Start) -> Start:
        """A member begins where the same member of an earlier ensemble is."""
        posterior, found = previous.posterior, 0
        if isinstance(posterior, GaussianMixture):
            found, part = posterior.members, posterior.component(index)
            start = Start(part.mu, part.state, part, given=True)
        elif isinstance(posterior, Draws) and posterior.own_state:
            found = posterior.shape[1]
            params, state = posterior.parameters(index), posterior.network_state(index)
            start = Start(params, state, None, given=True)
        if found != self.members:
            what = f"one of {found}" if found else "something else"
            raise ValueError(
                f"init: an ensemble of {self.members} members starts from an earlier ensemble of "
                f"{self.members} members, got {what}; leave init out for random starts"
            )
        return start

    def step(self, state: Any, batch: Batch, key: jax.Array) -> tuple[Any, Info]:
        def one(state: Any, key: jax.Array, temperature: Any) -> Any:
            member: Any = self.member
            if temperature is not None:
                member = eqx.tree_at(lambda m: m.temperature, member, temperature)
            return member.step(state, batch, key)

        keys = jax.random.split(noise_key(key), self.members)
        state, info = jax.vmap(one)(state, keys, self.temperatures)
        return state, Info(jax.tree.map(jnp.mean, info.terms))

    def report(self, state: Any, key: jax.Array) -> dict[str, jax.Array]:
        keys = jax.random.split(noise_key(key), self.members)
        return jax.tree.map(jnp.mean, jax.vmap(self.member.report)(state, keys))

    def blame(self, state: Any, term: str) -> str:
        return self.member.blame(state, term)

    def finish(self, state: Any, draws: Draw | None) -> Posterior:
        model, targets = self.model, self.plan.targets
        if isinstance(state, VariationalState):
            return GaussianMixture(model, state.state, targets, mu=state.mu, rho=state.rho)
        params, network_state = jax.tree.map(lambda a: a[None], (state.params, state.state))
        return Draws(model, network_state, targets, draws=params, own_state=True)


class DeepEnsemble(Method):
    """M networks with different starts, trained as one program.

    A member starts from the network's weights in a new random order, array by array: another draw
    of its initialisation, and nothing of what a trained network knew. With ``init=`` an earlier
    ensemble its members start where they were.

    Args:
        members: number of networks.
        inside: how each is trained: ``"map"`` (with the prior), ``"ml"``, or a method such as
            ``px.BayesByBackprop(…)``, which makes every member a posterior around its own mode.
        temperatures: with Bayes by Backprop inside, the weight of each member's KL: cold members
            follow the data, warm ones the prior, and the mixture is wrong where neither is.
        learning_rate: the step size of Adam; a method inside brings its own.
        schedule: ``"cosine"`` or ``"constant"``.
        optimizer: any optax transformation instead of Adam.

    Example:
        >>> import posterax as px
        >>> px.DeepEnsemble(members=5).members
        5
        >>> px.DeepEnsemble(members=3, inside=px.BayesByBackprop(temperature=0.5)).members
        3
    """

    members: int = 5
    inside: Any = "map"
    temperatures: tuple[float, ...] | None = None
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    optimizer: Any = None

    def __check_init__(self) -> None:
        whole("members", self.members)
        check_optimizer(self.optimizer, self.learning_rate, self.schedule)
        self._check_temperatures()
        if not isinstance(self.inside, Method):
            choose("inside", self.inside, ("map", "ml"))
        elif not isinstance(self.inside, BayesByBackprop | MaximumLikelihood):
            raise TypeError(
                "inside must be 'map', 'ml', or a method that optimises (px.BayesByBackprop, "
                "px.MaximumAPosteriori, px.MaximumLikelihood), got "
                f"{type(self.inside).__name__}"
            )
        elif (self.learning_rate, self.schedule, self.optimizer) != (1e-3, "cosine", None):
            raise ValueError(
                "learning_rate, schedule and optimizer belong to the method inside: give them to "
                f"{type(self.inside).__name__}(…)"
            )

    def _check_temperatures(self) -> None:
        if self.temperatures is None:
            return
        if not isinstance(self.inside, BayesByBackprop):
            raise ValueError("temperatures are for inside=px.BayesByBackprop(…); leave them out")
        fits = len(self.temperatures) == self.members and min(self.temperatures) >= 0
        if not fits:
            raise ValueError(
                f"temperatures must be {self.members} numbers of 0 or more, one for each member, "
                f"got {self.temperatures!r}"
            )

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        method = self.inside
        if not isinstance(method, Method):
            kind = MaximumAPosteriori if method == "map" else MaximumLikelihood
            method = kind(self.learning_rate, self.schedule, self.optimizer)
        (member,) = method.phases(model, plan)
        if isinstance(member, VariationalPhase):
            member = dataclasses.replace(member, alone=False)
        ladder = None if self.temperatures is None else jnp.asarray(self.temperatures)
        return [EnsemblePhase(model, plan, member, self.members, ladder)]
