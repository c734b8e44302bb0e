"""Shared settings: where the real data is, and small models every test file can use."""

import gc
import hashlib
import json
import os
import signal
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import settings

from posterax._util.memory_maps import make_room

# the same examples in every run, whatever a slow machine makes of their time
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")

# tracing makes many small objects that live on: a collector that looks at them every 700 finds
# nothing and takes a twentieth of the time
gc.set_threshold(100_000, 50, 50)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The directory of real data sets; tests that need it are skipped where it is absent."""
    folder = os.environ.get("POSTERAX_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("POSTERAX_DATA does not name a directory with the data sets")
    return Path(folder)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what ``slow.txt`` lists."""
    lines = Path(__file__).with_name("slow.txt").read_text().splitlines()
    lines = [line for line in lines if line and not line.startswith("#")]
    names = tuple(line if line.startswith("src/") else f"tests/{line}" for line in lines)
    for item in items:
        if item.nodeid.startswith(names):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def hurry():
    """For tests that compile many programs and run each for a few steps only."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


hasty_compiler = pytest.fixture(hurry, name="hasty_compiler")
# for all of a file, what its fixtures compile for several tests among it
hasty_module = pytest.fixture(hurry, name="hasty_module", scope="module")


@pytest.fixture(autouse=True, scope="module")
def few_memory_maps():
    """Between two files already at half of the maps: tests that count programs are left alone."""
    yield
    make_room(share=0.5)


@pytest.fixture
def ctrl_c():
    """Ctrl-C raises, also where the tests run in the background, in which it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def calibration():
    """Compare a figure with its bound, and keep it for docs/calibration.md.

    It is kept where ``CALIBRATION`` names a directory, as in ``make test-all``.
    """

    def record(method, compared, figure, *, least=None, most=None, seed="0"):
        bound = {"least": least} if most is None else {"most": most}
        right = figure >= least if most is None else figure <= most
        words = f"at least {least}" if most is None else f"at most {most}"
        assert right, f"{method}: {compared}: {figure}, and {words} is right"
        if folder := os.environ.get("CALIBRATION"):
            row = {"method": method, "compared": compared, "figure": float(figure), **bound}
            name = hashlib.blake2b(f"{method} {compared}".encode(), digest_size=8).hexdigest()
            path = Path(folder) / f"{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(row | {"seed": seed}))

    return record
