"""Draws on the host, within a limit of memory."""

from typing import Any

import jax
import numpy as np

from .._util.tree import tree_bytes


class RetainedDraws:
    """Every ``stride``-th of the draws offered; at the limit every other one goes.

    What is kept depends on how many were offered and on the limit alone, so that a fit that was
    interrupted and resumed keeps the same ones.

    Args:
        limit: bytes (default: none).

    Example:
        >>> import numpy as np
        >>> draws = RetainedDraws(limit=64)
        >>> for i in range(10):
        ...     draws.add(np.full((1, 4), i, np.float32) + np.arange(4) / 10)
        >>> print(draws.stride, draws.joined())
        8 [[0. 2. 4. 6. 8.]]
    """

    def __init__(self, limit: int | None = None):
        self.limit, self.stride, self.offered = limit, 1, 0
        self.parts: list[Any] = []

    def __bool__(self) -> bool:
        return bool(self.parts)

    def add(self, part: Any, stride: int = 1, offered: int | None = None) -> None:
        """Offer draws with axes (chain, draw, …); or all that an earlier fit kept of so many."""
        if offered is not None:
            self.parts, self.stride, self.offered = [part], stride, offered
            return
        count = jax.tree.leaves(part)[0].shape[1]
        chosen = np.arange(-self.offered % self.stride, count, self.stride)
        self.offered += count
        if len(chosen):
            self.parts.append(jax.tree.map(lambda a: a[:, chosen], part))
        while self._beyond():
            self.parts = [jax.tree.map(lambda a: a[:, ::2].copy(), self.joined())]
            self.stride *= 2

    def _beyond(self) -> bool:
        if self.limit is None or sum(map(tree_bytes, self.parts)) <= self.limit:
            return False
        return len(self.parts) > 1 or jax.tree.leaves(self.parts[0])[0].shape[1] > 1

    def continued(self, limit: int | None) -> "RetainedDraws":
        """The same draws to add to, apart from these, perhaps with another limit."""
        again = RetainedDraws(limit)
        again.stride, again.offered, again.parts = self.stride, self.offered, list(self.parts)
        return again

    def joined(self) -> Any:
        """All of them, (chain, draw, …)."""
        return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *self.parts)
