r"""Policies that learn with a network what actions pay, and choose by what they know of it.

The network is shown the context and the action and says what to expect; a posterior over its
weights, by any method of posterax, says how far that is known.
"""

import dataclasses
from functools import partial
from math import prod
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array

from .._util.checks import whole_number
from .._util.memory import refuse_draws
from ..data import Padded, bucket, shuffle
from ..infer import BayesByBackprop
from ..infer.base import Method
from ..infer.settings import Positive, Whole, check_settings
from ..likelihoods import Likelihood
from ..model import Model
from ..posteriors import Posterior
from .base import Policy, check_kind
from .learner import Learner, constant_rate, learner_of


class Moments(NamedTuple):
    """Running mean of all rewards, and sum of squared deviations from it (Welford 1962)."""

    mean: Array
    squares: Array

    def add(self, reward: Array, seen: Array) -> "Moments":
        """With one more reward, the ``seen``-th."""
        away = reward - self.mean
        mean = self.mean + away / seen
        return Moments(mean, self.squares + away * (reward - mean))

    def scale(self, seen: Array) -> Array:
        """The standard deviation; 1 as long as all rewards are the same."""
        variance = self.squares / jnp.maximum(seen, 1)
        return jnp.where(variance > 0, jnp.sqrt(jnp.where(variance > 0, variance, 1)), 1)


class Replay(NamedTuple):
    """A ring: interaction t lies in row t mod capacity, over what was there before."""

    inputs: Array  # (capacity, …) what the network is shown: the context and the action taken
    rewards: Array  # (capacity,)
    seen: Array  # interactions so far, int32

    @property
    def capacity(self) -> int:
        """How many interactions it holds."""
        return len(self.rewards)

    @property
    def filled(self) -> Array:
        """How many it holds by now."""
        return jnp.minimum(self.seen, self.capacity)

    def push(self, inputs: Array, reward: Array) -> "Replay":
        """With one more interaction; the oldest gives way once it is full."""
        row = self.seen % self.capacity
        put = jax.lax.dynamic_update_index_in_dim
        return Replay(
            put(self.inputs, inputs.astype(self.inputs.dtype), row, 0),
            put(self.rewards, reward.astype(self.rewards.dtype), row, 0),
            self.seen + 1,
        )

    def rows(self, shape: tuple[int, ...], key: Array) -> Array:
        """Rows for minibatches: a random order of what is filled, gone through again and again.

        So many minibatches as the buffer holds are one pass over it, without repetition; all rows
        of a half-filled one come equally often, but for one time.
        """
        filled = jnp.maximum(self.filled, 1)
        position = jnp.arange(prod(shape), dtype=jnp.int32) % filled
        return shuffle(position, filled, key).reshape(shape)

    def numbers(self, count: int, batches: ArrayLike) -> Array:
        """Which minibatch of a pass each of the next ``count`` is, from 0 to ``batches`` − 1.

        Counted on from one interaction to the next: each number comes equally often whether or
        not ``count`` is a multiple of ``batches``, so that shares of the KL by number add up to 1.
        """
        return (self.seen % batches * count + jnp.arange(count, dtype=jnp.int32)) % batches


def empty(capacity: int, inputs: int, dtype: DTypeLike = jnp.float32) -> Replay:
    """A buffer before the first interaction.

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.bandits.neural import empty
        >>> replay = empty(2, 3)
        >>> for reward in (1.0, 2.0, 3.0):
        ...     replay = replay.push(jnp.ones(3), jnp.asarray(reward))
        >>> sorted(replay.rewards.tolist())
        [2.0, 3.0]
    """
    return Replay(
        jnp.zeros((capacity, inputs), dtype), jnp.zeros(capacity, dtype), jnp.zeros((), jnp.int32)
    )


class NeuralState(NamedTuple):
    """What was learned, the last interactions, and how often each action was chosen."""

    learned: Any  # of the method's phase, or the last fit's posterior, or None before it
    replay: Replay
    moments: Moments
    chosen: Array  # (actions,)


class Neural(Policy):
    """What policies with a network share; a subclass says how to choose (``preference``)."""

    _: dataclasses.KW_ONLY
    network: Any = None
    method: Method | None = None
    samples: Whole = 2
    heads: Literal["joint", "per_action"] = "joint"
    hidden: tuple[int, ...] = (100, 100)
    prior: Any = None
    likelihood: Likelihood | None = None
    buffer: Whole = 4096
    batch_size: Whole = 64
    updates: Whole = 64
    data_size: Literal["buffer", "seen"] = "buffer"
    random_first: Annotated[int, partial(whole_number, least=0)] = 0
    reward_scale: Positive | None = None
    refit_every: Whole | None = None  # type: ignore[misc]
    epochs: Positive | None = None

    at_random: ClassVar[bool] = False  # whether stored draws are chosen among, or all averaged

    def __check_init__(self) -> None:
        check_settings(self)
        if self.method is not None:
            rule = "method must be an inference method such as px.BayesByBackprop()"
            check_kind(self.method, Method, rule)
        if self.refit_every is None and self.epochs is not None:
            raise ValueError("epochs: of the fits of refit_every, which is not given")
        for name in ("prior", "likelihood"):
            if isinstance(self.network, Model) and getattr(self, name) is not None:
                raise ValueError(f"{name}: the model has its own, leave {name} out")
        self.inference()  # refuses a schedule that the loop cannot follow

    def default_method(self) -> Method:
        """What trains the network where no method is given."""
        return BayesByBackprop(
            learning_rate=3e-4, rho_rate=1.0, schedule="constant", initial_rho=-5.0,
            estimator="weight",
        )  # fmt: skip

    def inference(self) -> Method:
        """The method, as the loop uses it."""
        method = self.default_method() if self.method is None else self.method
        return method if self.refit_every is not None else constant_rate(method)

    def _learner(self, state: NeuralState) -> Learner:
        actions = len(state.chosen)
        return learner_of(self, state.replay.inputs.shape[1] - actions, actions)

    # -- the contract

    def init(self, features: int, actions: int, key: Array) -> NeuralState:
        refuse_draws("samples", self.samples, 4 * actions)
        for name in ("buffer", "batch_size"):
            refuse_draws(name, getattr(self, name), 4 * (features + actions))
        learner = learner_of(self, features, actions)
        zero = jnp.zeros(())
        return NeuralState(
            learner.init(key) if self.refit_every is None else None,
            empty(self.buffer, features + actions, zero.dtype),
            Moments(zero, zero),
            jnp.zeros(actions, jnp.int32),
        )

    def choose(self, state: NeuralState, context: Array, key: Array) -> Array:
        draw_key, luck = jax.random.split(key)
        random = jax.random.randint(luck, (), 0, len(state.chosen))
        if state.learned is None:  # nothing is known before the first fit
            return random
        learner = self._learner(state)
        posterior = learner.posterior(state.learned, state.replay)
        values, weights = learner.values(posterior, context, draw_key)
        chosen = self.among(self.preference(values, weights), luck)
        if self.random_first == 0:
            return chosen
        return jnp.where(state.replay.seen < self.random_first, random, chosen)

    def preference(self, values: Array, weights: Array) -> Array:
        """What speaks for each action, by its values under several draws (draws, actions)."""
        return weights @ values

    def among(self, preference: Array, key: Array) -> Array:
        """An action, by what speaks for each."""
        return jnp.argmax(preference).astype(jnp.int32)

    def update(
        self, state: NeuralState, context: Array, action: Array, reward: Array, key: Array
    ) -> NeuralState:
        actions = len(state.chosen)
        shown = jnp.concatenate([context, jax.nn.one_hot(action, actions, dtype=context.dtype)])
        replay = state.replay.push(shown, jnp.asarray(reward))
        moments = state.moments.add(jnp.asarray(reward, replay.rewards.dtype), replay.seen)
        learned = state.learned
        if self.refit_every is None:
            shift, scale = self.standard(moments, replay.seen)
            learned = self._learner(state).train(learned, replay, shift, scale, key)
        return NeuralState(learned, replay, moments, state.chosen.at[action].add(1))

    def standard(self, moments: Moments, seen: Array) -> tuple[Any, Any]:
        """What is taken from rewards and what they are divided by, for the network to see."""
        likelihood = self.network.likelihood if isinstance(self.network, Model) else self.likelihood
        if likelihood is not None and likelihood.kind != "regression":
            return 0.0, 1.0
        if self.reward_scale is not None:
            return 0.0, self.reward_scale
        return moments.mean, moments.scale(seen)

    def refit(self, state: NeuralState, key: Array) -> NeuralState:
        from ..fitting.fit import fit
        from ..fitting.prepare import SHARED_ROWS

        learner = self._learner(state)
        filled, seen = int(state.replay.filled), int(state.replay.seen)
        shift, scale = self.standard(state.moments, state.replay.seen)
        x = np.asarray(state.replay.inputs)[:filled]
        y = (np.asarray(state.replay.rewards)[:filled] - np.asarray(shift)) / np.asarray(scale)
        options: dict[str, Any] = {} if self.epochs is None else {"epochs": self.epochs}
        # with room to grow, so that few fits compile anew
        room = bucket(filled) if filled > SHARED_ROWS else 1 << (filled - 1).bit_length()
        if not learner.method.needs.all_data:
            options["batch_size"], room = self.batch_size, max(room, 2 * self.batch_size)
        counted = seen if self.data_size == "seen" else filled
        data = Padded((x, y, np.full(filled, counted / filled, y.dtype)), room)
        posterior = fit(learner.model, data, learner.method, key=key, progress=False, **options)
        return state._replace(learned=own_copy(posterior.bare()))


def own_copy(posterior: Posterior) -> Any:
    """With arrays that nobody else has: the loop writes over what it is given."""
    return jax.tree.map(lambda a: jnp.array(a, copy=True) if eqx.is_array_like(a) else a, posterior)
