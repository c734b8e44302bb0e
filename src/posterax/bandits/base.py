r"""The contract of contextual bandits: an environment that pays, a policy that chooses.

At interaction t the environment shows a context xₜ, the policy chooses an action aₜ and sees the
reward of that action alone. The cumulative regret after T interactions is

    R_T = Σₜ (max_a E[rₐ | xₜ] − E[r_{aₜ} | xₜ])

Both are pure, so that the course of a bandit is one compiled program.
"""

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, PyTree


class Interaction(NamedTuple):
    """What the environment has ready for one interaction; the policy sees the context only.

    Example:
        >>> import jax
        >>> import posterax as px
        >>> px.bandits.wheel(0.5).draw(jax.random.key(0), 0).context.shape
        (2,)
    """

    context: Array  # (features,)
    rewards: Array  # (actions,) what each action would pay this time
    expected: Array  # (actions,) the expected pay of each, for the regret


class Environment(eqx.Module):
    """A source of interactions. Its arrays are leaves; subclasses give ``draw`` and two numbers.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> class Second(px.bandits.Environment):
        ...     actions: int = 2
        ...     features: int = 1
        ...     def draw(self, key, t):
        ...         pay = jnp.array([0.0, 1.0])
        ...         return px.bandits.Interaction(jnp.ones(1), pay, pay)
        >>> played = px.bandits.play(Second(), px.bandits.Uniform(), 10, runs=1, key=0)
        >>> bool((played.regret == 1 - played.actions).all())
        True
    """

    if TYPE_CHECKING:  # fields or properties, as a subclass likes

        @property
        def actions(self) -> int:
            """How many there are to choose from."""

        @property
        def features(self) -> int:
            """Length of a context."""

    def draw(self, key: Array, t: Array) -> Interaction:
        """Interaction number ``t`` = 0, 1, …: pure and jittable, ``t`` may be traced."""
        raise NotImplementedError


class Policy(eqx.Module):
    """A way to choose actions: hyperparameters here, what was learned in a state of arrays.

    ``init``, ``choose`` and ``update`` are pure and jittable, and work under ``vmap`` over runs.
    A policy whose method has a loop of its own gives ``refit_every``: after so many interactions
    ``refit`` is called outside of any compiled program.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> class First(px.bandits.Policy):
        ...     def init(self, features, actions, key):
        ...         return jnp.zeros(())
        ...     def choose(self, state, context, key):
        ...         return jnp.zeros((), jnp.int32)
        ...     def update(self, state, context, action, reward, key):
        ...         return state + reward
        >>> int(px.bandits.play(px.bandits.wheel(0.5), First(), 10, runs=1, key=0).actions.sum())
        0
    """

    refit_every: ClassVar[int | None] = None

    def init(self, features: int, actions: int, key: Array) -> PyTree:
        """The state before the first interaction."""
        raise NotImplementedError

    def choose(self, state: PyTree, context: Array, key: Array) -> Array:
        """The action for a context, an int32 in 0 … actions − 1."""
        raise NotImplementedError

    def update(
        self, state: PyTree, context: Array, action: Array, reward: Array, key: Array
    ) -> PyTree:
        """The state after the action's reward."""
        raise NotImplementedError

    def refit(self, state: PyTree, key: Array) -> PyTree:
        """The state after learning from all that is remembered; see ``refit_every``."""
        raise NotImplementedError


def check_environment(environment: Environment) -> None:
    """Refuse what is no environment."""
    rule = "environment must be a px.bandits.Environment such as px.bandits.wheel(0.5)"
    check_kind(environment, Environment, rule)


def check_policy(policy: Policy) -> None:
    """Refuse what is no policy, or the class of one."""
    check_kind(policy, Policy, "policy must be a px.bandits.Policy such as px.bandits.Thompson()")


def check_kind(value: object, kind: type, rule: str) -> None:
    """Refuse what is not of this kind, or is the class of one."""
    if not isinstance(value, kind):
        given = f"{value.__name__}; call it" if isinstance(value, type) else type(value).__name__
        raise TypeError(f"{rule}, got {given}")
