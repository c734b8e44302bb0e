"""Inference methods, one file each, on one contract (see ``base``)."""

from .annealing import SimulatedAnnealing
from .base import Draw, Info, Method, Phase, Plan, Start
from .bayes_by_backprop import BayesByBackprop
from .black_box import BlackBoxVI
from .conjugate import Conjugate
from .dropout import MCDropout
from .ensemble import DeepEnsemble
from .enumeration import Enumeration
from .hamiltonian import HMC, NUTS
from .importance import ImportanceSampling
from .ivon import IVON
from .laplace import Laplace
from .metropolis import Metropolis
from .microcanonical import MCLMC
from .point import MaximumAPosteriori, MaximumLikelihood
from .smc import SMC
from .stochastic_gradient import SGHMC, SGLD
from .svgd import SVGD
from .swag import SWAG

__all__ = [
    "HMC",
    "IVON",
    "MCLMC",
    "NUTS",
    "SGHMC",
    "SGLD",
    "SMC",
    "SVGD",
    "SWAG",
    "BayesByBackprop",
    "BlackBoxVI",
    "Conjugate",
    "DeepEnsemble",
    "Draw",
    "Enumeration",
    "ImportanceSampling",
    "Info",
    "Laplace",
    "MCDropout",
    "MaximumAPosteriori",
    "MaximumLikelihood",
    "Method",
    "Metropolis",
    "Phase",
    "Plan",
    "SimulatedAnnealing",
    "Start",
]
