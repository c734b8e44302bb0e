r"""Which mushrooms to eat: Thompson sampling by Bayes by Backprop beside ε-greedy.

The bandit of Blundell, Cornebise, Kavukcuoglu and Wierstra (2015): an agent sees the attributes of
a mushroom and eats it or not; it learns from its last 4096 interactions, by 64 minibatches of 64
after each. Bayes by Backprop acts on the mean of two weight samples; ε-greedy on a network of the
same size trained by maximum likelihood on the same minibatches, or, with probability ε, at random.
Linear Thompson sampling, which needs no training, and a coin stand beside them.

A second part plays other tables, the wheel, and mushrooms that change sides, with fewer
interactions. Settings were chosen with other random numbers than those that are reported.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np

from posterax import bandits, priors
from posterax.bandits import Environment, Policy
from posterax.bandits.tables import OPENML, table
from posterax.infer import MaximumLikelihood
from posterax.infer.objective import adam
from posterax.likelihoods import Gaussian

from .methods import bayes_by_backprop
from .store import Store

MARKS = (100, 1_000, 5_000, 10_000, 20_000, 50_000)  # where the regret is tabled
POINTS = 100  # of a curve that is kept


class Settings(NamedTuple):
    """Of a policy with a network."""

    learning_rate: float = 3e-4
    noise: float = 0.03  # deviation of rewards / scale, in the likelihood
    scale: float | None = 10.0  # rewards are divided by it; None: by their own deviation
    prior: tuple[float, ...] = (1.0,)  # σ of a Gaussian, or π, σ₁, σ₂ of the mixture
    initial_rho: float = -3.0
    eps: float = 0.1  # of Adam: gradients well below it move a weight little
    # what the KL is divided by: all interactions so far, or those in the buffer
    data_size: Literal["buffer", "seen"] = "seen"
    decay: float | None = 1_000  # interactions after which the rate begins to fall
    power: float = 1.0  # by which it does
    random_first: int = 0  # actions at random before the first choice

    def rate(self, updates: int) -> Callable[[Any], Any]:
        """The learning rate after so many minibatches, ``updates`` of them an interaction."""
        if self.decay is None:
            return lambda step: self.learning_rate
        after = self.decay * updates
        return lambda step: self.learning_rate * (1 + step / after) ** -self.power


CHOSEN = Settings()
POINT = Settings(decay=5_000, power=0.5)  # of the ε-greedy networks: its rate and scale count
# of the second part
OTHERS = Settings(noise=0.1, scale=None, prior=(0.3,), eps=1e-8, data_size="buffer", decay=None)
KEY = 1  # of the reported runs


class Budget(NamedTuple):
    """How large a run is."""

    steps: int  # interactions with the mushrooms
    updates: int  # minibatches after each
    other_steps: int  # the same of the second part
    other_updates: int
    width: int = 100
    buffer: int = 4096
    batch_size: int = 64
    worlds: tuple[str, ...] = ("adult", "covertype", "wheel", "changing mushrooms")


BUDGETS = {
    "quick": Budget(200, 2, 60, 2, width=20, buffer=128, batch_size=32, worlds=("wheel",)),
    "cpu": Budget(5_000, 16, 2_000, 8),
    "full": Budget(50_000, 64, 10_000, 16),
}


class World(NamedTuple):
    """An environment of the second part, and which policies play there."""

    make: Callable[[int], Environment]  # of the number of interactions
    policies: tuple[str, ...]
    random_first: int = 0  # of policies with a network


FORGETTING = "linear Thompson, forgetting"
USUAL = ("Bayes by Backprop", "greedy", "linear Thompson", "uniform")
WORLDS = {
    "adult": World(lambda steps: bandits.adult(), USUAL),
    "covertype": World(lambda steps: bandits.covertype(), USUAL),
    # beyond the radius lie 9.75 % of contexts, where one action of five pays 50: of 250 at random
    # none is that one with a chance of 0.7 %
    "wheel": World(lambda steps: bandits.wheel(0.95), USUAL, 250),
    "changing mushrooms": World(
        lambda steps: bandits.switching(bandits.mushroom(), max(1, steps // 4), what="classes"),
        (*USUAL[:3], FORGETTING, "uniform"),
    ),
}
MUSHROOM = (
    "Bayes by Backprop", "greedy", "1 % greedy", "5 % greedy", "linear Thompson", "uniform"
)  # fmt: skip
GREEDY = {"greedy": 0.0, "1 % greedy": 0.01, "5 % greedy": 0.05}


def policy(name: str, settings: Settings, size: Budget, updates: int) -> Policy:
    """A policy by its name.

    Example:
        >>> from experiments.bandit import BUDGETS, CHOSEN, policy
        >>> policy("5 % greedy", CHOSEN, BUDGETS["quick"], 2).epsilon
        0.05
    """
    if name == "uniform":
        return bandits.Uniform()
    if name == "linear Thompson":
        return bandits.LinearThompson()
    if name == FORGETTING:
        return bandits.LinearThompson(forgetting=0.999)
    shared: dict[str, Any] = {
        "hidden": (size.width, size.width), "buffer": size.buffer, "updates": updates,
        "batch_size": size.batch_size, "reward_scale": settings.scale,
        "random_first": settings.random_first,
    }  # fmt: skip
    if name in GREEDY:
        learn = MaximumLikelihood(optimizer=adam(settings.rate(updates)))
        return bandits.EpsilonGreedy(method=learn, epsilon=GREEDY[name], **shared)
    method = bayes_by_backprop(
        optimizer=adam(settings.rate(updates), eps=settings.eps),
        initial_rho=settings.initial_rho,
    )
    make = priors.ScaleMixture if len(settings.prior) == 3 else priors.Gaussian
    return bandits.Thompson(
        method=method,
        prior=make(*settings.prior),
        likelihood=Gaussian(settings.noise),
        data_size=settings.data_size,
        **shared,
    )


def run(budget: str, seeds: int, keep: Callable[[dict[str, Any]], Store]) -> Store:
    """The mushrooms by all policies, then the other environments."""
    size = BUDGETS[budget]
    for name in OPENML.keys() & {"mushroom", *size.worlds}:
        table(name)  # what is missing is told before anything is trained
    used = {"chosen": CHOSEN, "point": POINT, "others": OTHERS}
    chosen = {name: settings._asdict() for name, settings in used.items()}
    store = keep({"budget": budget, "runs": seeds, "key": KEY, **size._asdict(), **chosen})
    asked: dict[str, Callable[[], dict[str, Any]]] = {}
    make = cache(bandits.mushroom)  # read when it is needed, and once
    for name in MUSHROOM:
        settings = POINT if name in GREEDY else CHOSEN
        asked[f"mushroom/{name}"] = partial(
            one, make, policy(name, settings, size, size.updates), size.steps, seeds, KEY
        )
    for title in size.worlds:
        world = WORLDS[title]
        build = cache(partial(world.make, size.other_steps))
        for name in world.policies:
            settings = OTHERS._replace(random_first=world.random_first)
            asked[f"{title}/{name}"] = partial(
                one, build, policy(name, settings, size, size.other_updates),
                size.other_steps, seeds, KEY,
            )  # fmt: skip
    store.expect(asked)
    for name, ask in asked.items():
        store.get(name, ask)
    return store


def one(
    make: Callable[[], Environment], chooser: Policy, steps: int, runs: int, key: int
) -> dict[str, Any]:
    """Some runs of a policy: regret at the marks, and the curve of each run at fewer points."""
    played = bandits.play(make(), chooser, steps, runs=runs, key=key, progress=False)
    return thinned(played.cumulative)


def thinned(cumulative: np.ndarray) -> dict[str, Any]:
    """Cumulative regret (runs, interactions) at a few places, closer together at the start.

    Example:
        >>> import numpy as np
        >>> from experiments.bandit import thinned
        >>> curve = thinned(np.arange(1.0, 301.0)[None])
        >>> curve["regret"]
        {'100': [100.0], '300': [300.0]}
        >>> len(curve["after"]) <= 200
        True
    """
    steps = cumulative.shape[1]
    marks = sorted({*(m for m in MARKS if m < steps), steps})
    spread = np.geomspace(1, steps, POINTS).round().astype(int)
    after = np.unique(np.concatenate([spread, np.linspace(1, steps, 30).astype(int), marks]))
    return {
        "after": after.tolist(),
        "curves": cumulative[:, after - 1].round(2).tolist(),
        "regret": {str(mark): cumulative[:, mark - 1].round(2).tolist() for mark in marks},
    }
