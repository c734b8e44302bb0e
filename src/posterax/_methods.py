"""The table of methods by name: one for the command line, the estimators, the files and the docs.

Nothing here imports JAX, so that ``posterax --help`` is quick.
"""

# name: (class in ``posterax.infer``, what it is in a line)
METHODS: dict[str, tuple[str, str]] = {
    "bayes_by_backprop": ("BayesByBackprop", "a Gaussian for each weight, by Bayes by Backprop"),
    "black_box_vi": ("BlackBoxVI", "variational inference by the score function, any family"),
    "ivon": ("IVON", "a Gaussian posterior by the natural-gradient optimiser IVON"),
    "svgd": ("SVGD", "particles that repel each other (Stein variational gradient descent)"),
    "deep_ensemble": ("DeepEnsemble", "several networks, each fitted alone"),
    "mc_dropout": ("MCDropout", "one network whose dropout stays on"),
    "swag": ("SWAG", "a Gaussian from the last steps of the optimiser"),
    "laplace": ("Laplace", "a Gaussian around the most probable weights"),
    "nuts": ("NUTS", "the No-U-Turn Sampler: exact, for small tables"),
    "hmc": ("HMC", "Hamiltonian Monte Carlo with trajectories of a set length"),
    "mclmc": ("MCLMC", "microcanonical Langevin Monte Carlo, for small tables"),
    "metropolis": ("Metropolis", "random-walk Metropolis, Langevin, or flips of discrete weights"),
    "sghmc": ("SGHMC", "stochastic-gradient Hamiltonian Monte Carlo"),
    "sgld": ("SGLD", "stochastic-gradient Langevin dynamics"),
    "smc": ("SMC", "a population from the prior to the posterior, with the evidence"),
    "importance_sampling": ("ImportanceSampling", "prior draws weighted by the data"),
    "enumeration": ("Enumeration", "all states of discrete weights, one by one"),
    "conjugate": ("Conjugate", "linear regression in closed form"),
    "maximum_a_posteriori": ("MaximumAPosteriori", "one network, no posterior: a baseline"),
    "maximum_likelihood": ("MaximumLikelihood", "one network, no prior either: a baseline"),
    "simulated_annealing": ("SimulatedAnnealing", "one network, found by annealing"),
}
SHORT_NAMES = {
    "bbb": "bayes_by_backprop",
    "vi": "bayes_by_backprop",
    "bbvi": "black_box_vi",
    "ensemble": "deep_ensemble",
    "dropout": "mc_dropout",
    "map": "maximum_a_posteriori",
    "mle": "maximum_likelihood",
    "ml": "maximum_likelihood",
}
CLASSES = tuple(class_name for class_name, _ in METHODS.values())

# an estimator has neither the discrete prior of the one nor the linear model of the other
NOT_FOR_TABLES = ("enumeration", "conjugate")
ESTIMATOR_METHODS = tuple(name for name in METHODS if name not in NOT_FOR_TABLES)
AUTO = "auto"  # several of them, weighted: what estimators and the command line do by default
# those of them that the command line offers, in this order: they do well with settings of their own
COMMAND_METHODS = (
    AUTO,
    "bayes_by_backprop",
    "deep_ensemble",
    "mc_dropout",
    "laplace",
    "ivon",
    "swag",
    "nuts",
    "mclmc",
    "sghmc",
    "importance_sampling",
    "maximum_a_posteriori",
    "maximum_likelihood",
)


def method_name(name: str) -> str:
    """The name in ``METHODS`` that is meant: case, hyphens and short forms do not matter.

    A name of no method comes back as it would be written, for the caller to refuse.

    Example:
        >>> from posterax._methods import method_name
        >>> method_name("Deep-Ensemble"), method_name("map")
        ('deep_ensemble', 'maximum_a_posteriori')
    """
    key = name.strip().lower().replace("-", "_")
    return SHORT_NAMES.get(key, key)
