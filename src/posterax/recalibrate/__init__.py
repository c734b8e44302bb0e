"""Recalibration: what held-out data say about a posterior's predictions, and predictions mended.

Each is fitted on the predictive of held-out data, and then acts on any other predictive:

    temperature = px.recalibrate.Temperature.fit(posterior.predict(x_held_out), y_held_out)
    predictive = temperature(posterior.predict(x_new))
"""

from .base import load
from .conformal import ConformalInterval
from .conformal_sets import ConformalSet
from .isotonic import Isotonic
from .recalibrated import RecalibratedPredictive
from .scaling import Spread, Temperature

__all__ = [
    "ConformalInterval",
    "ConformalSet",
    "Isotonic",
    "RecalibratedPredictive",
    "Spread",
    "Temperature",
    "load",
]
