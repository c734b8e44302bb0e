"""Settings for doctests, which the fixtures of tests/ do not reach."""

import jax
import pytest


@pytest.fixture(autouse=True)
def hasty_examples(request):
    """Examples compile many programs and run each for a few steps only."""
    hasty = isinstance(request.node, pytest.DoctestItem)
    if hasty:
        jax.config.update("jax_disable_most_optimizations", True)
    yield
    if hasty:
        jax.config.update("jax_disable_most_optimizations", False)
