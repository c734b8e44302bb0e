"""The policies by name: at random, and with a network: Thompson, UCB, greedy and ε-greedy."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..infer import MaximumLikelihood
from ..infer.base import Method
from ..infer.settings import FractionOrZero, Positive, Whole
from .base import Policy
from .neural import Neural


class Uniform(Policy):
    """Every action with the same probability: what any policy has to beat.

    Example:
        >>> import posterax as px
        >>> played = px.bandits.play(px.bandits.wheel(0.5), px.bandits.Uniform(), 50, key=0)
        >>> sorted(set(played.actions.ravel().tolist()))
        [0, 1, 2, 3, 4]
    """

    def init(self, features: int, actions: int, key: Array) -> Array:
        return jnp.zeros(actions, jnp.int32)  # how often each was chosen

    def choose(self, state: Array, context: Array, key: Array) -> Array:
        return jax.random.randint(key, (), 0, len(state))

    def update(
        self,
        state: Array,
        context: Array,
        action: Array,
        reward: Array,
        key: Array,
    ) -> Array:
        return state.at[action].add(1)


class Thompson(Neural):
    r"""Thompson sampling: draw weights from the posterior, take what is best under them.

        a = argmax_a (1/k) Σᵢ E[r | x, a, wᵢ],  wᵢ ~ q(w | replay buffer)

    An action is taken as often as it may be the best one, so that what is uncertain is tried and
    what is known to be bad is not. ``samples=1`` is Thompson's rule; the paper averages two.

    The defaults of prior, noise, rate and first deviations are from mushrooms, chosen with other
    random numbers than those of the results: six combinations of noise 0.1 and 0.3, priors 0.1 and
    0.3, rates 3e-4 and 1e-3 were tried there, on ``wheel(0.95)`` and on ``adult()``; none was best
    on all three.

    Args:
        network: shown the context and the action as zeros and a one, says what to expect: any
            network that ``px.Model`` takes, or a ``px.Model``. Its weights are started anew in
            every run. Default: an MLP with ``hidden`` units.
        method: any method of inference (default: ``px.BayesByBackprop``). Those that learn from
            minibatches in one phase (BayesByBackprop, IVON, MCDropout, DeepEnsemble, SGLD, SGHMC,
            MaximumAPosteriori, …) go on learning within the compiled loop; a rate that would fall
            stays as it is. All others need ``refit_every``.
        samples: draws that are averaged for a choice.
        heads: ``"joint"``; or ``"per_action"``: the network is shown the context alone and has an
            output for each action, of which that of the action taken is trained.
        hidden: of the default network.
        prior: of the weights (default: N(0, 0.3²)).
        likelihood: of standardised rewards (default: ``px.likelihoods.Gaussian(0.1)``); Bernoulli
            or Poisson where rewards are such.
        buffer: how many of the last interactions are remembered.
        batch_size: of the minibatches after each interaction.
        updates: how many they are; ``updates · batch_size = buffer`` is one pass over a full one.
        data_size: N, by which the KL or the prior is divided next to the mean NLL of the buffer:
            ``"buffer"``, the interactions it holds; or ``"seen"``, all so far, of which it is taken
            as a sample: the posterior goes on narrowing once the buffer is full, and what was
            learned from interactions that have left it fades more slowly.
        random_first: actions are taken at random until so many rewards have been seen. Where a
            large reward is rare, a network that never met it does not look for it.
        reward_scale: what rewards are divided by. Default: they are standardised by the mean and
            deviation of all rewards so far.
        refit_every: instead of minibatches, fit the method anew to the buffer after every so many
            interactions: slower, for Python is asked each time. Actions before the first fit are
            random.
        epochs: of those fits.

    Example:
        >>> import posterax as px
        >>> environment = px.bandits.wheel(0.5)
        >>> policy = px.bandits.Thompson(hidden=(8,), buffer=64, batch_size=8, updates=4)
        >>> px.bandits.play(environment, policy, 20, runs=1, key=0).rewards.shape
        (1, 20)

    References:
        Thompson, *On the likelihood that one unknown probability exceeds another*, Biometrika 1933;
        with networks: Blundell, Cornebise, Kavukcuoglu and Wierstra, *Weight uncertainty in neural
        networks*, ICML 2015 (section 4); heads by action: Riquelme, Tucker and Snoek, *Deep
        Bayesian bandits showdown*, ICLR 2018.
    """

    network: object = None
    method: Method | None = None

    at_random: ClassVar[bool] = True


class _Certain(Neural):
    """Policies that act on what is expected: one set of weights will do."""

    samples: Whole = eqx.field(default=1, kw_only=True)

    def default_method(self) -> Method:
        return MaximumLikelihood(learning_rate=1e-3, schedule="constant")


class Greedy(_Certain):
    """What is expected to pay most, whatever is not known.

    Args:
        network: as in [`Thompson`][posterax.bandits.Thompson], like all that is not listed here.
        method: default: ``px.MaximumLikelihood``.
        samples: draws that are averaged, where the method gives a posterior (default: 1); of one
            that is draws already (an ensemble, a chain) all are averaged.

    Example:
        >>> import posterax as px
        >>> px.bandits.Greedy(method=px.DeepEnsemble(members=5)).method.members
        5
    """

    network: object = None
    method: Method | None = None


class EpsilonGreedy(_Certain):
    """Greedy, but for a random action now and then.

    Args:
        epsilon: how often: the probability of an action at random, each with the same.
        network: a keyword as all others are; see [`Thompson`][posterax.bandits.Thompson].
        method: default: ``px.MaximumLikelihood``.

    Example:
        >>> import posterax as px
        >>> px.bandits.EpsilonGreedy(0.01).epsilon
        0.01
    """

    epsilon: FractionOrZero = 0.05

    def among(self, preference: Array, key: Array) -> Array:
        coin, which = jax.random.split(key)
        random = jax.random.randint(which, (), 0, len(preference))
        best = jnp.argmax(preference).astype(jnp.int32)
        return jnp.where(jax.random.uniform(coin) < self.epsilon, random, best)


class UCB(Neural):
    r"""Upper confidence bounds: what may pay most, by the epistemic deviation.

        a = argmax_a mean_i vᵢ(a) + scale · std_i vᵢ(a),  vᵢ(a) = E[r | x, a, wᵢ],  wᵢ ~ q

    Args:
        scale: how many deviations to hope for.
        samples: draws by which mean and deviation are estimated (default: 16); of a posterior that
            is draws already (an ensemble, a chain) all count.
        network: a keyword as all others are; see [`Thompson`][posterax.bandits.Thompson].
        method: default: ``px.BayesByBackprop``; a point estimate has no deviation.

    Example:
        >>> import posterax as px
        >>> px.bandits.UCB(2.0, heads="per_action").scale
        2.0

    Reference:
        Auer, *Using confidence bounds for exploitation-exploration trade-offs*, JMLR 2002.
    """

    scale: Positive = 1.0
    samples: Whole = eqx.field(default=16, kw_only=True)

    def preference(self, values: Array, weights: Array) -> Array:
        mean = weights @ values
        return mean + self.scale * jnp.sqrt(weights @ jnp.square(values - mean))
