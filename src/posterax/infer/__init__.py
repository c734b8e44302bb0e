"""Inference methods, one file each, on one contract (see ``base``)."""

from .base import Draw, Info, Method, Needs, Phase, Plan, Start
from .chains.hamiltonian import HMC, NUTS
from .chains.metropolis import Metropolis
from .chains.microcanonical import MCLMC
from .chains.smc import SMC
from .chains.stochastic_gradient import SGHMC, SGLD
from .ensembles.dropout import MCDropout
from .ensembles.ensemble import DeepEnsemble
from .ensembles.swag import SWAG
from .exact.conjugate import Conjugate
from .exact.enumeration import Enumeration
from .exact.importance import ImportanceSampling
from .laplace.laplace import Laplace
from .points.annealing import SimulatedAnnealing
from .points.point import MaximumAPosteriori, MaximumLikelihood
from .variational.bayes_by_backprop import BayesByBackprop
from .variational.black_box import BlackBoxVI
from .variational.ivon import IVON
from .variational.svgd import SVGD

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
    "Needs",
    "Phase",
    "Plan",
    "SimulatedAnnealing",
    "Start",
]
