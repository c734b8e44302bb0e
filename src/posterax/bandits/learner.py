r"""What learns the rewards: a network, a method of inference, and the steps between interactions.

After each interaction come ``updates`` minibatches from the replay buffer, by the method's own
steps. On B of its rows they minimise, for Bayes by Backprop,

    (1/B) Σ_b −log p(r_b | x_b, a_b, w) + KL(q ‖ p) / N,  w ~ q

and other methods their own objective per data point, with the prior or its like by 1/N. N is the
number of interactions in the buffer, as if there had been no others, or, ``data_size="seen"``, of
all so far: those in the buffer then stand for all.
"""

import dataclasses
from functools import lru_cache, partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import PyTree

from .._util.checks import check_steps
from .._util.tree import is_key
from ..data import Batch
from ..infer.base import Draw, Method, Phase, Plan, Start
from ..likelihoods import Gaussian, Likelihood
from ..model import Model
from ..networks import MLP
from ..posteriors import Posterior
from ..posteriors.symmetric import Symmetric
from ..predictive import Targets
from ..priors import Gaussian as GaussianPrior
from .networks import PerAction, flat

if TYPE_CHECKING:
    from .neural import Neural, Replay

NOISE = 0.1  # of standardised rewards
SCALE = 0.3  # of the prior


class Learned(NamedTuple):
    """The state of a method's phase, and the last draw of a method that samples."""

    state: PyTree
    draw: Draw | None = None


class Learner(eqx.Module):
    """A model of rewards and the method that trains it, for contexts of one size.

    ``settings`` is the policy; it is made anew in every trace, and holds nothing that is learned.
    """

    settings: "Neural"
    features: int = eqx.field(static=True)
    actions: int = eqx.field(static=True)
    model: Model
    targets: Targets = eqx.field(static=True)
    method: Method

    def __init__(self, settings: "Neural", features: int, actions: int):
        self.settings, self.features, self.actions = settings, features, actions
        self.method = settings.inference()
        with jax.ensure_compile_time_eval():
            model = self._model()
            width, rows = features + actions, settings.batch_size
            y = np.zeros(rows, np.float32)
            try:
                inner = model.check(np.zeros((rows, width), np.float32), y)
            except ValueError as error:
                inputs, outputs = self._sizes()
                raise ValueError(
                    f"network must have {inputs} inputs (the context, and the action as zeros and "
                    f"a one unless heads='per_action') and {outputs} outputs: {error}"
                ) from error
            model = model.for_targets(inner, jnp.result_type(float))
            one_block = settings.refit_every is None and self.method.needs.elementwise
            self.model = flat(model) if one_block else model
            self.targets = Targets((), inner)
            if settings.refit_every is None:
                self._check_method()

    # -- the model

    def _likelihood(self) -> Likelihood:
        given = self.settings.network
        if isinstance(given, Model):
            return given.likelihood
        return Gaussian(NOISE) if self.settings.likelihood is None else self.settings.likelihood

    def _sizes(self) -> tuple[int, int]:
        each = prod(self._likelihood().outputs_for((1,)))  # two where it predicts its noise
        if self.settings.heads == "per_action":
            return self.features, each * self.actions
        return self.features + self.actions, each

    def _model(self) -> Model:
        settings, given = self.settings, self.settings.network
        if not isinstance(given, Model):
            made = self._mlp() if given is None else given
            prior = GaussianPrior(SCALE) if settings.prior is None else settings.prior
            given = Model(made, prior, self._likelihood())
        if settings.heads == "per_action":
            network = PerAction(given.network, self.features)
            given = eqx.tree_at(lambda m: m.network, given, network)
        return given

    def _mlp(self) -> MLP:
        make = partial(MLP, *self._sizes(), self.settings.hidden, key=0)
        if self.settings.refit_every is not None or not self.method.needs.elementwise:
            return make()
        # its weights come from ``start``: zeros compile nothing
        shapes = eqx.filter_eval_shape(make)
        is_shape = lambda a: isinstance(a, jax.ShapeDtypeStruct)  # noqa: E731
        zeros = lambda a: jnp.asarray(np.zeros(a.shape, a.dtype)) if is_shape(a) else a  # noqa: E731
        return jax.tree.map(zeros, shapes)

    def start(self, key: jax.Array) -> Start:
        """Initial weights at random."""
        if self.settings.network is None:  # drawn anew, and not only put into another order
            made = MLP(*self._sizes(), self.settings.hidden, key=key)
            leaves = eqx.filter(made, eqx.is_inexact_array)
            fresh = getattr(self.model.network, "flatten", lambda tree: tree)(leaves)
            parameters = self.model.parameters._replace(network=fresh)
        else:
            parameters = self.model.init(key)
        return Start(parameters, self.model.network.state, None, given=False)

    # -- training, within a compiled program

    def _phases(self, filled: ArrayLike, seen: ArrayLike) -> list[Phase]:
        settings = self.settings
        counted = seen if settings.data_size == "seen" else filled
        total = jnp.maximum(jnp.asarray(counted, jnp.result_type(float)), 1)
        held = jnp.maximum(jnp.asarray(filled, jnp.int32), 1)
        shape = (settings.batch_size, self.features + self.actions)
        updates = check_steps(settings.updates * settings.buffer, "updates × buffer")
        steps = jnp.asarray(updates, jnp.int32)
        inputs = jax.ShapeDtypeStruct(shape, total.dtype)
        batches = -(-held // settings.batch_size)
        plan = Plan(total, batches, steps, settings.batch_size, self.targets, inputs=inputs)
        return self.method.phases(self.model, plan)

    def phase(self, filled: ArrayLike, seen: ArrayLike) -> Phase:
        """The method's one phase, for so many interactions in the buffer and so many in all."""
        return self._phases(filled, seen)[0]

    def _check_method(self) -> None:
        """Refuse what has more than one phase, or needs all data at each step."""
        buffer, needs = self.settings.buffer, self.method.needs
        phases = self._phases(buffer, buffer)
        if needs.counts != "epochs" or needs.all_data or len(phases) > 1:
            raise ValueError(
                f"method: {repr(self.method).removesuffix('()')} does not learn from minibatches "
                "alone; give refit_every=, after how many interactions to fit it anew to the buffer"
            )

    def init(self, key: jax.Array) -> Learned:
        """Before the first interaction."""
        start_key, init_key = jax.random.split(key)
        phase = self.phase(1, 1)
        # a method of several members or chains makes a start for each, of the network's own
        state = phase.init(self.start(start_key), None, init_key)
        if phase.retained(jnp.ones((), jnp.int32), 1) is None:  # the plan may be traced
            return Learned(state)
        shape = (self.settings.batch_size, self.features + self.actions)
        nothing = Batch(
            jnp.zeros(shape), jnp.zeros((shape[0], *self.targets.inner)), jnp.zeros(shape[0]),
            jnp.zeros((), jnp.int32), jnp.arange(shape[0]),
        )  # fmt: skip
        state, info = phase.step(state, nothing, init_key)
        return Learned(state, info.draw)

    def train(
        self, learned: Learned, replay: "Replay", shift: ArrayLike, scale: ArrayLike, key: jax.Array
    ) -> Learned:
        """All minibatches of one interaction."""
        settings = self.settings
        rows_key, steps_key = jax.random.split(key)
        phase = self.phase(replay.filled, replay.seen)
        size, batches = settings.batch_size, phase.plan.batches
        rows = replay.rows((settings.updates, size), rows_key)
        # gathered for all steps at once: fewer, larger kernels
        x, y = replay.inputs[rows], (replay.rewards[rows] - shift) / scale
        y = y.reshape(*y.shape, *self.targets.inner)
        # whatever N is, the mean over the minibatch counts
        weight = jnp.full(size, phase.plan.total / (batches * size))
        keys = jax.random.split(steps_key, settings.updates)
        given = (x, y, rows, replay.numbers(settings.updates, batches), keys)

        def step(learned: Learned, given: PyTree) -> tuple[Learned, None]:
            x, y, rows, i, key = given
            state, info = phase.step(learned.state, Batch(x, y, weight, i, rows), key)
            return Learned(state, info.draw), None

        return jax.lax.scan(step, learned, given)[0]

    # -- what is believed

    def posterior(self, learned: Learned | Posterior, replay: "Replay") -> Posterior:
        """Of the phase's state; or what a fit has found."""
        if isinstance(learned, Posterior):
            return learned
        draws = learned.draw
        if draws is not None:
            draws = Draw(*jax.tree.map(lambda a: a[:, None], tuple(draws)))
        return self.phase(replay.filled, replay.seen).finish(learned.state, draws)

    def values(
        self, posterior: Posterior, context: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """What each action is expected to pay under each of several draws, and their weights."""
        settings = self.settings
        ids, weights = pick(posterior, settings.samples, key, at_random=settings.at_random)
        repeated = jnp.broadcast_to(context, (self.actions, self.features))
        x = jnp.concatenate([repeated, jnp.eye(self.actions, dtype=context.dtype)], axis=1)
        # the shared products of a symmetric posterior are for opposite pairs, which are no choice
        by = Posterior if isinstance(posterior, Symmetric) else type(posterior)
        outputs, own = by.evaluate(posterior, ids, x)
        mean = lambda f, p: posterior.model.likelihood.distribution(f, p, None).mean  # noqa: E731
        return jax.vmap(mean)(outputs, own).reshape(len(weights), self.actions), weights


def learner_of(settings: "Neural", features: int, actions: int) -> Learner:
    """The learner of a policy; kept where the policy is all numbers, since each trace asks for it.

    Example:
        >>> import posterax as px
        >>> from posterax.bandits.learner import learner_of
        >>> learner_of(px.bandits.Thompson(hidden=(8,)), 3, 2).model.parameters.network.shape
        (1, 128)
    """
    try:
        hash(settings)
    except TypeError:  # it has arrays
        return Learner(settings, features, actions)
    return _stored(settings, features, actions)


_stored = lru_cache(maxsize=8)(Learner)


def pick(
    posterior: Posterior, samples: int, key: jax.Array, *, at_random: bool
) -> tuple[Any, jax.Array]:
    """Identities of draws, and their weights.

    Of posteriors that are draws already all are taken, with their weights; or ``at_random`` some
    of them, each as often as it weighs.
    """
    pick_key, draw_key = jax.random.split(key)
    ids, weights = posterior.particles(draw_key, samples)
    if any(is_key(leaf) for leaf in jax.tree.leaves(ids)):
        return ids, weights
    ids, weights = posterior.particles(draw_key, None)
    if len(weights) == 1 or not at_random:  # of a point every draw is the same network again
        return ids, weights
    index = jax.random.choice(pick_key, len(weights), (samples,), p=weights)
    return jax.tree.map(lambda a: a[index], ids), jnp.full(samples, 1 / samples)


def constant_rate(method: Method) -> Method:
    """The method without a schedule: in a loop without end there is nothing to fall to.

    Example:
        >>> import posterax as px
        >>> from posterax.bandits.learner import constant_rate
        >>> constant_rate(px.DeepEnsemble(inside=px.MaximumAPosteriori())).inside.schedule
        'constant'
    """
    inside = getattr(method, "inside", None)
    changed: dict[str, Any] = {}
    if isinstance(inside, Method):  # it brings its own
        changed = {"inside": constant_rate(inside)}
    elif (schedule := getattr(method, "schedule", "constant")) in ("hold", "cosine"):
        changed = {"schedule": "constant"}
    elif schedule != "constant":
        raise ValueError(
            f"method: schedule={schedule!r} of {type(method).__name__} goes by the length of a "
            "fit, and a bandit has none: give it schedule='constant', or give refit_every="
        )
    return dataclasses.replace(method, **changed) if changed else method
