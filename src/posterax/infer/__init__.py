"""Inference methods, one file each, on one contract (see ``base``)."""

from .base import Draw, Info, Method, Phase, Plan, Start
from .bayes_by_backprop import BayesByBackprop
from .ensemble import DeepEnsemble
from .hamiltonian import NUTS
from .importance import ImportanceSampling
from .point import MaximumAPosteriori, MaximumLikelihood

__all__ = [
    "NUTS",
    "BayesByBackprop",
    "DeepEnsemble",
    "Draw",
    "ImportanceSampling",
    "Info",
    "MaximumAPosteriori",
    "MaximumLikelihood",
    "Method",
    "Phase",
    "Plan",
    "Start",
]
