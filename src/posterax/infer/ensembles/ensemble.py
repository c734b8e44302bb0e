r"""Deep ensembles (Lakshminarayanan et al. 2017): networks from different starts, side by side."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..._util.checks import one_of
from ..._util.noise import noise_key
from ..._util.tree import tree_size
from ...data import Batch, Data
from ...model import Model
from ...posteriors import Posterior
from ..base import Draw, History, Info, Method, Needs, Phase, Plan, Start, with_arrays
from ..points.point import MaximumAPosteriori, MaximumLikelihood
from ..settings import (
    Copies,
    Flag,
    Folds,
    Optimizer,
    Rate,
    Schedule,
    check_folds,
    check_settings,
)
from .ensemble_variants import Own, Variant

UNROLLED_WORK = 500_000  # products of a member's pass from which a CPU gains by single members
UNROLLED_ARRAYS = 96  # of all members: each is code to compile
VARIANT = 2**31 - 1  # number of the key for what is a member's own


class Member(NamedTuple):
    """The state of a member's phase, and what is its own."""

    state: PyTree
    own: Own


class EnsemblePhase(Phase):
    """The phase of one member, for all of them.

    The state is a ``Member`` whose arrays have a leading axis, stepped under ``vmap``; or,
    ``unrolled``, a tuple of members whose steps follow one another in the program, which a CPU
    runs in parallel where it can.
    """

    member: Phase
    members: int = eqx.field(static=True)
    variant: Variant
    temperatures: PyTree = None  # (members,), where they differ
    unrolled: bool = eqx.field(static=True, default=False)

    title: ClassVar[str] = "training members"
    axis: ClassVar[str] = "members"

    def length(self) -> int | None:
        return self.member.length()

    def init(self, start: Start, data: Data | None, key: jax.Array) -> PyTree:
        if start.given:
            count = 0 if start.posterior is None else start.posterior.members
            if count != self.members:
                raise ValueError(
                    f"init: an ensemble of {self.members} members starts from an earlier ensemble "
                    f"of as many, got {count or 'none'}; leave init out for random starts"
                )

        def one(index: jax.Array, key: jax.Array) -> Member:
            own_key = jax.random.fold_in(key, VARIANT)
            own = self.variant.draw(self.model, data, own_key, index)
            return Member(self.member.init(self._start_of(index, start, key), data, key), own)

        all_ = jax.vmap(one)(jnp.arange(self.members), jax.random.split(key, self.members))
        if not self.unrolled:
            return all_
        return tuple(jax.tree.map(lambda a, i=i: a[i], all_) for i in range(self.members))

    def _start_of(self, index: jax.Array, start: Start, key: jax.Array) -> Start:
        """A fresh start; or where the same member of an earlier ensemble is."""
        if start.posterior is None:
            return start._replace(parameters=self.model.init(key))
        part = start.posterior.member(index)
        return Start(part.moments()[0], part.state, part, given=True)

    def _each(self, function: Callable, state: PyTree, *more: PyTree) -> PyTree:
        """``function`` of every member; what it returns is laid out as the state is."""
        if not self.unrolled:
            return jax.vmap(function)(state, *more)
        given = [jax.tree.map(lambda a, i=i: a[i], more) for i in range(self.members)]
        return tuple(function(one, *rest) for one, rest in zip(state, given, strict=True))

    def _together(self, state: PyTree) -> PyTree:
        """What ``_each`` returned, as arrays with a leading axis of members."""
        return jax.tree.map(lambda *a: jnp.stack(a), *state) if self.unrolled else state

    def step(self, state: PyTree, batch: Batch, key: jax.Array) -> tuple[PyTree, Info]:
        def one(now: Member, key: jax.Array, temperature: PyTree) -> PyTree:
            member: Any = self.variant.phase(self.member, now.own)
            if temperature is not None:
                member = eqx.tree_at(lambda m: m.method.temperature, member, temperature)
            own_batch = self.variant.batch(self.model, batch, now.own)
            new, info = member.step(now.state, own_batch, key)
            return Member(new, now.own), info.terms

        keys = jax.random.split(noise_key(key), self.members)
        each = self._each(one, state, keys, self.temperatures)
        state, terms = zip(*each, strict=True) if self.unrolled else each
        return state, Info(jax.tree.map(jnp.mean, self._together(terms)))

    def between(self, state: PyTree) -> PyTree:
        def one(now: Member) -> Member:
            return Member(self.variant.phase(self.member, now.own).between(now.state), now.own)

        return self._each(one, state)

    def report(self, state: PyTree, key: jax.Array) -> dict[str, jax.Array]:
        def one(now: Member, key: jax.Array) -> dict[str, jax.Array]:
            return self.variant.phase(self.member, now.own).report(now.state, key)

        keys = jax.random.split(noise_key(key), self.members)
        return jax.tree.map(jnp.mean, self._together(self._each(one, state, keys)))

    def explain(self, state: PyTree, history: History, term: str | None = None) -> str | None:
        return self.member.explain(self._together(state).state, history, term)

    def finish(self, state: PyTree, draws: Draw | None) -> Posterior:
        # that of a member, with a leading axis on all its arrays
        return self.member.finish(self._together(state).state, None).mixture()


def faster_unrolled(model: Model, plan: Plan, members: int) -> bool:
    """Whether members are faster one by one than under ``vmap``.

    On a CPU products of single members run beside one another, and a batched product of small
    matrices does not run in parallel; a step must have enough to do for that to show, and the
    program grows with the members. Convolutions gain nothing. A GPU wants one large kernel.
    """
    weights = jax.tree.leaves(model.parameters)
    return (
        jax.default_backend() == "cpu"
        and jax.device_count() == 1
        and 1 < members <= UNROLLED_ARRAYS / len(weights)
        and all(w.ndim <= 2 for w in weights)
        and plan.batch_size * tree_size(weights) >= UNROLLED_WORK
    )


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
        learning_rate: the step size of Adam, or an optax schedule; a method inside brings its own.
        schedule: ``"cosine"``, ``"hold"`` or ``"constant"``.
        optimizer: any optax transformation instead of Adam.
        bootstrap: every member sees a resample of the data, drawn with replacement.
        anchored: every member has its prior around a draw of its own from the prior; with
            ``"targets"`` each has noisy targets of its own as well. For ``inside="map"`` and
            Gaussian priors.
        folds: K above 1: member m does not see the rows whose number leaves the remainder m mod K
            when divided by K, and so predicts them as it will predict new ones.

    Example:
        >>> import posterax as px
        >>> px.DeepEnsemble(members=5).members
        5
        >>> px.DeepEnsemble(members=3, inside=px.BayesByBackprop(temperature=0.5)).members
        3
        >>> px.DeepEnsemble(members=10, anchored="targets").anchored
        'targets'

    Reference:
        Lakshminarayanan, Pritzel and Blundell, *Simple and scalable predictive uncertainty
        estimation using deep ensembles*, NeurIPS 2017; anchors: Pearce, Leibfried and Brintrup,
        *Uncertainty in neural networks: approximately Bayesian ensembling*, AISTATS 2020. The
        adversarial training of the first is not included.
    """

    members: Copies = 5
    inside: Any = "map"
    temperatures: tuple[float, ...] | None = None
    learning_rate: Rate = 1e-3
    schedule: Schedule = "cosine"
    optimizer: Optimizer = None
    bootstrap: Flag = False
    anchored: bool | str = False
    folds: Folds = 0

    def __check_init__(self) -> None:
        check_settings(self)
        if not isinstance(self.inside, Method):
            one_of("inside", self.inside, ("map", "ml"))
        elif not self.inside.needs.mixes:
            raise TypeError(
                "inside must be 'map', 'ml' or a method whose posteriors can be mixed, such as "
                f"px.IVON(…) or px.BayesByBackprop(…) by default, got {self.inside!r}"
            )
        elif (self.learning_rate, self.schedule, self.optimizer) != (1e-3, "cosine", None):
            raise ValueError(
                "learning_rate, schedule and optimizer belong to the method inside: give them to "
                f"{type(self.inside).__name__}(…)"
            )
        if self.temperatures is not None:
            self._check_temperatures(self.temperatures)
        if not isinstance(self.anchored, bool) and self.anchored != "targets":
            raise ValueError(f"anchored must be True, False or 'targets', got {self.anchored!r}")
        if self.anchored and not getattr(self._inside(), "with_prior", False):
            raise ValueError(
                "anchored members are maxima a posteriori: take inside='map', or bootstrap=True "
                "in its place"
            )
        if self.anchored == "targets" and self.bootstrap:
            raise ValueError(
                "anchored='targets' and bootstrap=True both make the data random: take one of them"
            )
        check_folds(self.folds, "members", self.members)

    def _inside(self) -> Method:
        """The method of each member."""
        if isinstance(self.inside, Method):
            return self.inside
        kind = MaximumAPosteriori if self.inside == "map" else MaximumLikelihood
        return kind(self.learning_rate, self.schedule, self.optimizer)

    @property
    def needs(self) -> Needs:
        # members of one temperature and the same data climb one ELBO, that of the method inside
        inside = self._inside().needs
        alike = self.temperatures is None and not self.bootstrap and not self.folds
        return Needs(
            bound=alike and inside.bound,
            anytime=alike and inside.anytime,
            overfits=inside.overfits,
        )

    def _check_temperatures(self, values: tuple[float, ...]) -> None:
        if not hasattr(self.inside, "temperature"):
            raise ValueError("temperatures are for inside=px.BayesByBackprop(…); leave them out")
        if len(values) != self.members or min(values) < 0:
            raise ValueError(
                f"temperatures must be {self.members} numbers of 0 or more, one for each member, "
                f"got {values!r}"
            )

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        inside = self._inside().phases(model, dataclasses.replace(plan, members=self.members))
        variant = Variant(
            self.bootstrap, bool(self.anchored), self.anchored == "targets", self.folds
        )
        variant.check(model)
        ladder = with_arrays(self, model).temperatures
        unrolled = faster_unrolled(model, plan, self.members)
        return [
            EnsemblePhase(model, plan, phase, self.members, variant, ladder, unrolled)
            for phase in inside
        ]
