r"""Bayes by Backprop (Blundell et al. 2015): variational inference with reparameterised draws.

Minimise, per data point, minus the evidence lower bound

    F(φ) = E_q[−log p(D | w)] + KL(q(w | φ) ‖ p(w)),  w = μ ± δ(ε; φ)

The paper's q, independent Gaussians, has a fast phase of its own (``mean_field``); other families,
bounds and gradients share a general one (``reparameterized``).
"""

from typing import Literal

import jax

from ...model import Model
from ...priors import is_flat, is_prior
from ..base import Method, Needs, Phase, Plan, with_arrays
from ..objective import holds, is_elementwise, need_prior
from ..settings import (
    Copies,
    Optimizer,
    Positive,
    Rate,
    Runs,
    Schedule,
    ZeroOrMore,
    check_settings,
)
from .elbo import KLWeights
from .estimators import Estimator, settled
from .mean_field import VariationalPhase
from .reparameterized import DISCRETE, FamilyPhase, make_family

_RANK = 8


class BayesByBackprop(Method):
    r"""Variational inference with the reparameterization trick; by default mean-field Gaussian.

    The objective is minus the ELBO per data point, mean NLL + KL / N: batch size, data size and
    reduction never have to be balanced by hand.

    Args:
        family: the distributions q to choose from. ``"mean_field"``: independent Gaussians (the
            paper's); ``"full"``: a Gaussian with all correlations, for small networks;
            ``"low_rank"``: with the correlations that ``rank`` common factors make (Ong, Nott and
            Smith 2018); ``"radial"``: for each array a direction at random and the distance of a
            single Gaussian (Farquhar, Osborne and Gal 2020).
        rank: of ``family="low_rank"`` (default: 8).
        objective: ``"elbo"``; or ``"iwae"``, the importance-weighted bound of K = ``samples``
            draws, log (1/K) Σ p(D, w_k)/q(w_k) (Burda, Grosse and Salakhutdinov 2016). It needs
            all data at each step: the weights of a minibatch are not those of the data.
        gradient: ``"total"``; or ``"sticking_the_landing"``, without the score of log q, whose
            mean is zero (Roeder, Wu and Duvenaud 2017): no variance at all where q is the
            posterior. With ``"iwae"`` it is the doubly reparameterised one (Tucker et al. 2019).
        estimator: how the likelihood's gradient is sampled. ``"weight"``: one weight sample for
            the whole batch (the paper's); ``"local"``: pre-activations are sampled, example by
            example, with less variance; ``"flipout"``: weight samples decorrelated between
            examples by signs; ``"auto"``: local where it is exact, for weights that are used once
            in a product whose rows are the examples, and a weight sample elsewhere. All but
            ``"weight"`` are for the mean-field ELBO and its total gradient.
        samples: weight samples per step.
        antithetic: use ε and −ε in pairs (``samples`` even).
        kl: ``"auto"``, closed form where there is one and Monte Carlo otherwise; or
            ``"monte_carlo"``, with the same sample as the likelihood (the paper's).
        kl_weights: how minibatch i of M shares the KL: ``"uniform"`` 1/M, ``"blundell"``
            2^(M−i)/(2^M−1), or a function of (i, M) whose values sum to 1.
        temperature: weight of the KL; 1 is the posterior, below 1 a colder one.
        kl_warmup: epochs over which the KL's weight grows from 0.
        initial_rho: where ρ starts, σ = softplus(ρ); or ``"prior"``, at the prior's deviation.
        learning_rate: the step size of Adam for the means, or an optax schedule.
        rho_rate: how many times as fast the deviations' ρ moves: Adam moves no number by more than
            about its rate in a step, and from where ρ starts to the prior's is a long way.
        schedule: ``"hold"`` (the rate stays for half of the steps, and then falls to zero in a
            straight line), ``"cosine"`` (it falls from the start) or ``"constant"``.
        optimizer: any optax transformation instead of Adam; it sees the tree {mu, rho}, with
            ``lower`` of a full and ``factor`` of a low-rank family.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 64)[:, None].astype("float32")
        >>> network = px.networks.MLP(1, 1, (16,), key=0)
        >>> prior = px.priors.ScaleMixture(pi=0.5, sigma1=1.0, sigma2=0.1)
        >>> model = px.Model(network, prior, px.likelihoods.Gaussian(noise=0.1))
        >>> posterior = px.fit(model, (x, x**2), px.BayesByBackprop(samples=2), epochs=3, key=0)
        >>> sorted(posterior.history)
        ['kl', 'nll']
        >>> method = px.BayesByBackprop(family="full", gradient="sticking_the_landing")
        >>> px.fit(model, (x, x**2), method, epochs=3, key=0).covariance().shape
        (49, 49)

    Reference:
        Blundell, Cornebise, Kavukcuoglu and Wierstra, *Weight uncertainty in neural networks*,
        ICML 2015. Departures by default: the KL is in closed form, pre-activations are sampled
        (Kingma, Salimans and Welling, *Variational dropout and the local reparameterization
        trick*, NeurIPS 2015), and ρ has a rate of its own. The algorithm as published is
        ``BayesByBackprop(estimator="weight", kl="monte_carlo", kl_weights="blundell",
        optimizer=optax.sgd(1e-3))``.
    """

    estimator: Estimator = "auto"
    samples: Runs = 1
    antithetic: bool = False
    kl: Literal["auto", "monte_carlo"] = "auto"
    kl_weights: KLWeights = "uniform"
    temperature: ZeroOrMore = 1.0
    kl_warmup: ZeroOrMore = 0.0
    initial_rho: float | Literal["prior"] = -5.0
    learning_rate: Rate = 5e-3
    schedule: Schedule = "hold"
    optimizer: Optimizer = None
    family: Literal["mean_field", "full", "low_rank", "radial"] = "mean_field"
    rank: Copies | None = None
    objective: Literal["elbo", "iwae"] = "elbo"
    gradient: Literal["total", "sticking_the_landing"] = "total"
    rho_rate: Positive = 6.0

    def __check_init__(self) -> None:
        if self.family in DISCRETE:
            raise ValueError(
                f"family={self.family!r}: a discrete draw has no derivative; use px.BlackBoxVI() "
                "with a px.priors.Grid prior"
            )
        check_settings(self)
        if self.antithetic and self.samples % 2:
            raise ValueError(f"antithetic pairs need an even number of samples, got {self.samples}")
        if self.rank is not None and self.family != "low_rank":
            raise ValueError(f"rank={self.rank} is for family='low_rank', got {self.family!r}")
        if self.estimator not in ("auto", "weight") and not self.shifts_and_scales:
            raise ValueError(
                f"estimator={self.estimator!r} is for family='mean_field', objective='elbo' and "
                "gradient='total'; use estimator='weight'"
            )
        if self.objective == "iwae" and self.samples == 1:
            raise ValueError("objective='iwae' with one sample is the ELBO: give samples=K above 1")
        if self.objective == "iwae" and self.antithetic and self.gradient != "total":
            raise ValueError(
                "antithetic=True: the doubly reparameterised gradient of objective='iwae' needs "
                "independent draws; leave antithetic out, or use gradient='total'"
            )

    @property
    def shifts_and_scales(self) -> bool:
        """Whether it is the paper's: the mean-field ELBO and its total gradient."""
        return (self.family, self.objective, self.gradient) == ("mean_field", "elbo", "total")

    @property
    def needs(self) -> Needs:
        alone = self.shifts_and_scales and self.estimator == "weight"
        elementwise = alone and is_elementwise(self.optimizer)
        return Needs(
            all_data=self.objective == "iwae",  # weights are of all data, or of another posterior
            elementwise=elementwise,
            mixes=self.shifts_and_scales,
            bound=self.objective == "elbo",
            anytime=self.objective == "elbo" and self.kl_warmup == 0 and holds(self),
            instead="objective='elbo'",
        )

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        need_prior(model, "BayesByBackprop")
        if self.initial_rho == "prior":
            for prior in jax.tree.leaves(model.priors, is_leaf=is_prior):
                if not is_flat(prior) and prior.deviation() is None:
                    raise ValueError(
                        f"initial_rho='prior': {type(prior).__name__} has no deviation to start "
                        "from; give initial_rho a number, or use a Gaussian prior"
                    )
        method = with_arrays(self, model)
        if self.shifts_and_scales:
            return [VariationalPhase(model, plan, settled(method, model, plan))]
        family = make_family(self.family, self.rank or _RANK)
        family.check(model)
        return [FamilyPhase(model, plan, method, family)]
