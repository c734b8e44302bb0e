"""Active learning: ask for the labels that tell most.

learner = px.active.Learner(model, px.MCDropout(), x, y, by="bald", steps=500)
ask = learner.query(pool, 10)  # numbers of inputs
learner.teach(pool[ask], labels_of(ask))
"""

from .batches import batch_bald, diverse
from .learner import Learner
from .loop import Curve, run
from .scores import bald, entropy, pick, random, variance, variation_ratio

__all__ = [
    "Curve", "Learner", "bald", "batch_bald", "diverse", "entropy", "pick", "random", "run",
    "variance", "variation_ratio",
]  # fmt: skip
