"""Errors that users can catch."""

from typing import Any


class NonFiniteError(FloatingPointError):
    """A term of the objective turned NaN or infinite; ``posterior`` is the last finite state."""

    def __init__(self, message: str, step: int, term: str, posterior: Any):
        super().__init__(message)
        self.step, self.term, self.posterior = step, term, posterior


class StuckError(RuntimeError):
    """Chains that never move or always diverge; ``posterior`` holds the draws there are."""

    def __init__(self, message: str, posterior: Any):
        super().__init__(message)
        self.posterior = posterior


class ConvergenceWarning(UserWarning):
    """A fit whose result should not be used as it is; ``posterior.diagnose()`` has the numbers."""


class CheckpointError(ValueError):
    """A checkpoint or file that cannot be used; the message has its path and the reason."""
