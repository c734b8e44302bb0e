"""The same bits: what they depend on is recorded, and fixed threads make cores not matter."""

import json
import os
import subprocess
import sys

import jax
import pytest

import posterax as px
from posterax._util import machine

PROGRAM = """
import hashlib, json, os, sys
cores, threads = int(sys.argv[1]), int(sys.argv[2])
os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
import posterax as px
if threads:
    px.fix_threads(threads)
import jax
import jax.numpy as jnp
import numpy as np
from posterax._util.machine import arithmetic

rng = np.random.default_rng(0)
x = rng.normal(size=(10_000, 13)).astype("float32")
matrix = rng.normal(size=(400, 400)).astype("float32")
if "fit" in sys.argv:
    network = px.networks.MLP(13, 1, (50,), key=0)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
    point = px.fit(model, (x, x.sum(1)), px.MaximumAPosteriori(), steps=3, batch_size=10_000)
    numbers = [leaf for leaf in jax.tree.leaves(point.parameters) if hasattr(leaf, "dtype")]
else:
    gradient = jax.jit(jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2)))
    numbers = [gradient(matrix[:13, :50]), jnp.linalg.cholesky(matrix @ matrix.T + 400)]
digest = hashlib.blake2b(b"".join(np.asarray(leaf).tobytes() for leaf in numbers)).hexdigest()
print(json.dumps({"bits": digest, **arithmetic()}))
"""
LINUX = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores are set on Linux")


SEVERAL = pytest.mark.skipif(
    machine.xla_threads() < 2, reason="one core has nothing to be compared with"
)


def run(cores: int, threads: int, *what: str) -> dict:
    """What the program prints with so many cores; ``threads`` of 0 fixes nothing."""
    env = {k: v for k, v in os.environ.items() if "NPROC" not in k and "_NUM_THREADS" not in k}
    command = [sys.executable, "-c", PROGRAM, str(cores), str(threads), *what]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@LINUX
@SEVERAL
@pytest.mark.parametrize("what", ["sums", pytest.param("fit", marks=pytest.mark.slow)])
def test_fixed_threads_give_the_same_bits_on_any_number_of_cores(what):
    one, two = run(1, 2, what), run(2, 2, what)
    assert one == two
    assert (one["threads"], one["threads_of_blas"]) == (2, 1)


@LINUX
@SEVERAL
@pytest.mark.slow
@pytest.mark.parametrize("what", ["sums", "fit"])
def test_without_them_the_bits_are_others_and_the_arithmetic_says_why(what):
    one, two = run(1, 0, what), run(2, 0, what)
    assert one["bits"] != two["bits"]
    assert "threads: 1 before, 2 now" in machine.differences(one, two)


def test_too_late():
    jax.numpy.ones(1)
    started = machine.xla_threads()
    with pytest.raises(RuntimeError, match=rf"JAX has started with {started} threads; call it"):
        px.fix_threads(started + 1)
    with pytest.raises(ValueError, match="threads must be a whole number"):
        px.fix_threads(0)


def test_the_arithmetic_is_plain_and_repeats(monkeypatch):
    found = machine.arithmetic()
    assert json.loads(json.dumps(found)) == machine.arithmetic()
    assert found["settings"]["jax_enable_x64"] is False
    flags = "--xla_a=1 --xla_dump_to=here --xla_b --xla_a=2"
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert machine.arithmetic()["xla_flags"] == ["--xla_a=2", "--xla_b"]
    assert len(machine.differences(found, machine.arithmetic())) == 1


def test_settings_of_jax_count():
    before = machine.arithmetic()
    with jax.default_matmul_precision("highest"):
        assert machine.differences(before, machine.arithmetic())


@pytest.mark.parametrize(("name", "value"), [("PJRT_NPROC", "7"), ("NPROC", "3")])
def test_threads_before_the_start(monkeypatch, name, value):
    monkeypatch.setattr(machine, "_running_threads", lambda: 0)
    for other in machine.XLA_THREADS:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, value)
    assert machine.xla_threads() == int(value)
    monkeypatch.setenv(name, "many")
    assert machine.xla_threads() == len(os.sched_getaffinity(0))
