"""Doctests, which are beside the code: each compiles much and computes little."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def hasty_doctests(request: pytest.FixtureRequest) -> Iterator[None]:
    """The compiler may hurry."""
    hurried = isinstance(request.node, pytest.DoctestItem)
    if hurried:
        jax.config.update("jax_disable_most_optimizations", True)
    yield
    if hurried:
        jax.config.update("jax_disable_most_optimizations", False)
