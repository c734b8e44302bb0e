"""``play``: a policy in an environment, many interactions in one compiled program."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import PyTree

from .._util.checks import whole_number
from .._util.interrupts import interruptible, raise_on_interrupt
from .._util.keys import KeyLike, as_key
from .._util.progress import Bar
from ..program.compiled import compiled
from .base import Environment, Policy, check_environment, check_policy

MOST = 4096  # interactions per chunk: the size of the buffers for what happens in them
CHUNK_SECONDS = 1.0


class Played(NamedTuple):
    """What happened: arrays of shape (runs, steps), one row for each run.

    ``regret`` is of what was to be expected, max_a E[rₐ | x] − E[r_a | x]; ``realised`` of what
    was paid, by the best action in expectation less by the one that was taken. ``steps`` is lower
    than asked for after Ctrl-C. Within the loop it is of one run, in arrays of JAX.

    Example:
        >>> import numpy as np
        >>> from posterax.bandits import Played
        >>> one = np.ones((2, 3))
        >>> Played(one.astype(int), one, one, one).cumulative[:, -1]
        array([3., 3.])
    """

    actions: np.ndarray | jax.Array
    rewards: np.ndarray | jax.Array
    regret: np.ndarray | jax.Array
    realised: np.ndarray | jax.Array

    @property
    def runs(self) -> int:
        """How many runs."""
        return self.actions.shape[0]

    @property
    def steps(self) -> int:
        """How many interactions in each."""
        return self.actions.shape[1]

    @property
    def cumulative(self) -> np.ndarray:
        """Expected regret summed up to each interaction, (runs, steps)."""
        return np.cumsum(self.regret, axis=1, dtype=np.float64)


def step_keys(course: jax.Array, t: ArrayLike) -> jax.Array:
    """Of interaction t: keys for the environment, the choice and the update."""
    return jax.random.split(jax.random.fold_in(course, t), 3)


def refit_key(course: jax.Array, t: ArrayLike) -> jax.Array:
    """Of a fit after interaction t."""
    return jax.random.fold_in(step_keys(course, t)[2], 1)


Fixed = tuple[Environment, Policy, jax.Array, jax.Array, jax.Array]


def _chunk(fixed: Fixed, state: PyTree, played: Played) -> tuple[PyTree, Played]:
    """Interactions start … stop − 1 of one run; their number is no constant of the program."""
    environment, policy, course, start, stop = fixed
    # a posterior in the state has more than arrays
    arrays, others = eqx.partition(state, eqx.is_array)

    def one(t: jax.Array, carry: tuple[PyTree, Played]) -> tuple[PyTree, Played]:
        arrays, played = carry
        state = eqx.combine(arrays, others)
        for_world, for_choice, for_update = step_keys(course, t)
        context, rewards, expected = environment.draw(for_world, t)
        action = policy.choose(state, context, for_choice).astype(jnp.int32)
        paid, best = rewards[action], jnp.argmax(expected)
        state = policy.update(state, context, action, paid, for_update)
        new = Played(action, paid, expected[best] - expected[action], rewards[best] - paid)
        put = lambda b, v: b.at[t - start].set(v.astype(b.dtype))  # noqa: E731
        return eqx.filter(state, eqx.is_array), jax.tree.map(put, played, new)

    arrays, played = jax.lax.fori_loop(start, stop, one, (arrays, played))
    return eqx.combine(arrays, others), played


# State and buffers are donated: they are written in place. Everything else comes first.
_one_run = compiled(_chunk, donate="all-except-first")


@compiled(donate="all-except-first")
def _all_runs(fixed: Fixed, states: PyTree, played: Played) -> tuple[PyTree, Played]:
    environment, policy, courses, start, stop = fixed
    each = lambda c, s, b: _chunk((environment, policy, c, start, stop), s, b)  # noqa: E731
    return jax.vmap(each)(courses, states, played)


@compiled
def first_state(policy: Policy, features: int, actions: int, key: jax.Array) -> PyTree:
    """The policy's state before the first interaction, in types that the loop keeps."""
    strong = lambda a: jax.lax.convert_element_type(a, jnp.asarray(a).dtype)  # noqa: E731
    return jax.tree.map(strong, policy.init(features, actions, key))


class _Runs:
    """The runs of a bandit: side by side in one program, or a thread each on a CPU.

    A CPU's products of small matrices are slow in batches, and several runs are best done on
    several cores; a GPU minds the number of kernels.
    """

    def __init__(
        self, world: Environment, policy: Policy, keys: list[jax.Array], threads: ThreadPoolExecutor
    ):
        self.world, self.policy, self.threads = world, policy, threads
        # of a run: the key of the policy's first state, and that of all interactions
        starts, self.courses = zip(*map(jax.random.split, keys), strict=True)
        sizes = world.features, world.actions
        self.states: Any = [first_state(policy, *sizes, key) for key in starts]
        types = (jnp.int32, float, float, float)
        self.played: Any = [Played(*(jnp.zeros(MOST, kind) for kind in types)) for _ in keys]
        self.together = jax.default_backend() != "cpu" and policy.refit_every is None
        if self.together:
            stack = lambda *a: jnp.stack(a)  # noqa: E731
            self.states = jax.tree.map(stack, *self.states)
            self.played = jax.tree.map(stack, *self.played)

    def advance(self, start: int, stop: int) -> Played:
        """All runs from one interaction to another; what happened, (runs, stop − start)."""
        span = jnp.asarray(start, jnp.int32), jnp.asarray(stop, jnp.int32)
        if self.together:
            fixed = (self.world, self.policy, jnp.stack(self.courses), *span)
            self.states, self.played = _all_runs(fixed, self.states, self.played)
            return jax.tree.map(lambda a: np.asarray(a)[:, : stop - start], self.played)
        # the first chunk compiles, once for all of them
        each = map if start == 0 else self.threads.map
        done = list(each(lambda r: self._advance_one(r, *span), range(len(self.courses))))
        return jax.tree.map(lambda *a: np.stack([x[: stop - start] for x in a]), *done)

    def refit(self, stop: int) -> None:
        """A fit for every run, after ``stop`` interactions."""
        for r, course in enumerate(self.courses):
            self.states[r] = self.policy.refit(self.states[r], refit_key(course, stop - 1))

    def _advance_one(self, r: int, start: jax.Array, stop: jax.Array) -> Played:
        fixed = (self.world, self.policy, self.courses[r], start, stop)
        self.states[r], self.played[r] = _one_run(fixed, self.states[r], self.played[r])
        return jax.tree.map(np.asarray, self.played[r])


def play(
    environment: Environment,
    policy: Policy,
    steps: int,
    *,
    runs: int = 5,
    key: KeyLike,
    progress: bool | None = None,
) -> Played:
    """Let a policy learn in an environment, several times over.

    Environment, choice and learning are one compiled program: Python is asked only between chunks
    of about a second. On a GPU all runs go side by side under ``vmap``; on a CPU each has a thread.
    A policy with ``refit_every`` stops for its fits, one run after another.

    Args:
        environment: what pays; see [`Environment`][posterax.bandits.Environment].
        policy: what chooses; see [`Policy`][posterax.bandits.Policy].
        steps: interactions in each run.
        runs: how many runs; the key of run r is ``jax.random.fold_in(key, r)``, so that it is the
            same whatever their number (on a GPU up to rounding).
        key: an int or a JAX key.
        progress: show a bar (default: where someone is watching).

    Returns:
        What happened. Ctrl-C ends the play and returns what there is.

    Example:
        >>> import posterax as px
        >>> environment = px.bandits.wheel(0.5)
        >>> played = px.bandits.play(environment, px.bandits.Uniform(), 20, runs=2, key=0)
        >>> played.actions.shape
        (2, 20)
    """
    check_environment(environment)
    check_policy(policy)
    steps, runs = whole_number("steps", steps), whole_number("runs", runs)
    base = as_key(key)
    every = policy.refit_every
    parts: list[Played] = []
    t, length = 0, 1
    with Bar(progress) as bar, interruptible() as interrupted:
        bar.phase(type(policy).__name__, steps, 0)
        with ThreadPoolExecutor(runs) as threads:
            keys = [jax.random.fold_in(base, r) for r in range(runs)]
            all_runs = _Runs(environment, policy, keys, threads)
            while t < steps and not (interrupted() and parts):
                stop = min(t + length, steps)
                if every is not None:
                    stop = min(stop, t - t % every + every)
                began = time.monotonic()
                parts.append(all_runs.advance(t, stop))
                seconds, taken, t = time.monotonic() - began, stop - t, stop
                wanted = int(CHUNK_SECONDS * taken / max(seconds, 1e-6))
                # the first chunk compiles, so it says nothing about speed
                length = 8 if len(parts) == 1 else max(1, min(wanted, 4 * taken, MOST))
                bar.update(t, {"regret": np.asarray(parts[-1].regret)})
                if every is not None and t % every == 0 and t < steps and not interrupted():
                    try:
                        with raise_on_interrupt():
                            all_runs.refit(t)
                    except KeyboardInterrupt:
                        if not interrupted():  # whoever called wants all or nothing
                            raise
    return jax.tree.map(lambda *a: np.concatenate(a, axis=1), *parts)
