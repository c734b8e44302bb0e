"""Callbacks: what ``fit`` tells the outside between two chunks of steps."""

from .fitting.callbacks import CSVWriter, Event, RunningPredictive, StopFit, TensorBoardWriter

__all__ = ["CSVWriter", "Event", "RunningPredictive", "StopFit", "TensorBoardWriter"]
