"""Inference methods, one file each, on one contract (see ``base``)."""

from .annealing import SimulatedAnnealing
from .base import Draw, Info, Method, Phase, Plan, Start
from .bayes_by_backprop import BayesByBackprop
from .ensemble import DeepEnsemble
from .enumeration import Enumeration
from .hamiltonian import HMC, NUTS
from .importance import ImportanceSampling
from .metropolis import Metropolis
from .microcanonical import MCLMC
from .point import MaximumAPosteriori, MaximumLikelihood
from .smc import SMC
from .stochastic_gradient import SGHMC, SGLD

__all__ = [
    "HMC",
    "MCLMC",
    "NUTS",
    "SGHMC",
    "SGLD",
    "SMC",
    "BayesByBackprop",
    "DeepEnsemble",
    "Draw",
    "Enumeration",
    "ImportanceSampling",
    "Info",
    "MaximumAPosteriori",
    "MaximumLikelihood",
    "Method",
    "Metropolis",
    "Phase",
    "Plan",
    "SimulatedAnnealing",
    "Start",
]
