"""The checkpoint of another fit is refused, and the message names what differs."""

import dataclasses
import functools
import logging
import os
import subprocess
import sys
import types
import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pandas as pd
import pytest

import posterax as px
from posterax._util import machine
from posterax._util.identity import Unidentified, identify
from posterax.files import container
from posterax.fitting import checkpoint
from posterax.fitting import identity as fits

pytestmark = pytest.mark.usefixtures("hasty_compiler")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 2)).astype("float32")
Y = X[:, 0].astype("float32")
FACTOR = 1.0


def mlp(key=0, activation=jnp.tanh):
    return px.networks.MLP(2, 1, (3,), key=key, activation=activation)


class Own(eqx.Module):
    """A user's module with settings that are no arrays."""

    layer: eqx.nn.Linear
    power: int
    scale: float = eqx.field(static=True)

    def __init__(self, power=1, scale=1.0):
        self.layer = eqx.nn.Linear(2, 1, key=jax.random.key(0))
        self.power, self.scale = power, scale

    def __call__(self, x):
        return self.scale * self.layer(x**self.power)


class Batches:
    """A stream of three batches."""

    def __init__(self, shift=0.0, batches=3):
        self.shift, self.batches = shift, batches

    def __iter__(self):
        for i in range(self.batches):
            yield X[8 * i : 8 * i + 8] + self.shift, Y[8 * i : 8 * i + 8]


def likely(scale):
    return px.likelihoods.From(lambda outputs: dist.Normal(outputs[..., 0], scale))


def by_global():
    return px.likelihoods.From(lambda outputs: dist.Normal(outputs[..., 0], FACTOR))


def weights(share):
    return lambda i, batches: share / batches + 0.0 * i


def later(at):
    return optax.sgd(optax.piecewise_constant_schedule(1e-3, {at: 0.5}))


class Fitted(NamedTuple):
    """A posterior to start from, by its key."""

    key: int


@functools.cache
def earlier(key):
    return fit(px.MaximumAPosteriori(), key=key)


def fit(
    method=None, *, network=None, prior=None, likelihood=None, data=None, folder=None, **options
):
    model = px.Model(
        network if network is not None else mlp(),
        prior or px.priors.Gaussian(1.0),
        likelihood or px.likelihoods.Gaussian(0.1),
    )
    method = method or px.BayesByBackprop(schedule="constant")
    options = {"steps": 6, "key": 0} | options
    if type(method).__name__ != "NUTS" and not isinstance(data, Batches):
        options.setdefault("batch_size", 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return px.fit(model, data or (X, Y), method, checkpoint=folder, **options)


BBB = functools.partial(px.BayesByBackprop, schedule="constant")
MAP = px.MaximumAPosteriori
SHORT = {"steps": 4, "method": px.NUTS(chains=1, warmup=4)}
HELD = (X[:5], Y[:5])

# name of what differs: one fit, and another
OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "network.static": ({}, {"network": mlp(activation=jax.nn.relu)}),
    "network": ({"network": Own()}, {"network": Own(scale=2.0)}),
    "network .": ({"network": Own()}, {"network": Own(power=2)}),
    "start weights": ({}, {"network": mlp(key=1)}),
    "start weights .": ({}, {"init": mlp(key=1)}),
    "start weights ..": ({"init": Fitted(0)}, {"init": Fitted(1)}),
    "data.first 16 batches": ({"data": Batches()}, {"data": Batches(1.0)}),
    "data.batches": ({"data": Batches()}, {"data": Batches(batches=2)}),
    "data": ({}, {"data": (X, Y + 1)}),
    "data .": ({}, {"data": (X, Y, np.arange(24.0) + 1)}),
    "prior.scale": ({}, {"prior": px.priors.Gaussian(2.0)}),
    "likelihood": ({"likelihood": likely(1.0)}, {"likelihood": likely(2.0)}),
    "method.kl_weights": (
        {"method": BBB(kl_weights=weights(1.0))}, {"method": BBB(kl_weights=weights(2.0))},
    ),
    "method.schedule": ({}, {"method": BBB(schedule="cosine")}),
    "method.optimizer": (
        {"method": MAP(optimizer=later(4))}, {"method": MAP(optimizer=later(5))},
    ),
    "augment": (
        {"augment": lambda key, x: x + 1.0}, {"augment": lambda key, x: x + 2.0},
    ),
    "steps": ({}, {"steps": 3}),
    "steps .": ({}, {"steps": 12}),
    "batch_size": ({}, {"batch_size": 6}),
    "key": ({}, {"key": 1}),
    "validation": ({"validation": HELD}, {"validation": (X[:5], Y[:5] + 1)}),
    "validation .": (
        {"validation": px.Validation(*HELD, patience=3)},
        {"validation": px.Validation(*HELD, patience=4)},
    ),
    "thin": (SHORT, SHORT | {"thin": 2}),
    "draw_bytes": (SHORT, SHORT | {"draw_bytes": 100}),
    "resumed": (
        {"resume": Fitted(0), "method": MAP()}, {"resume": Fitted(1), "method": MAP()},
    ),
}  # fmt: skip


def made(options):
    """Posteriors to start from are fitted when they are needed."""
    return {n: earlier(v.key) if isinstance(v, Fitted) else v for n, v in options.items()}


@pytest.mark.parametrize("name", OTHERS)
def test_another_fits_checkpoint_is_refused_by_name(name, tmp_path):
    one, two = map(made, OTHERS[name])
    first = fit(folder=tmp_path, **one)
    again = fit(folder=tmp_path, **one)  # the same goes on
    np.testing.assert_array_equal(first.predict(X).mean, again.predict(X).mean)
    with pytest.raises(px.CheckpointError, match=f"its {name.strip(' .')}[. a-z_]* is"):
        fit(folder=tmp_path, **one | two)


def test_a_global_that_a_function_reads_counts(tmp_path, monkeypatch):
    fit(folder=tmp_path, likelihood=by_global())
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    with pytest.raises(px.CheckpointError, match="its likelihood"):
        fit(folder=tmp_path, likelihood=by_global())


@pytest.mark.parametrize("package", ["posterax", "jax"])
def test_another_version_is_refused(package, tmp_path, monkeypatch):
    fit(folder=tmp_path)
    versions = fits.versions() | {package: "0.0.1"}
    monkeypatch.setattr(fits, "versions", lambda: versions)
    with pytest.raises(px.CheckpointError, match=f"its versions.{package} is .*finish it with"):
        fit(folder=tmp_path)


def test_other_arithmetic_is_told(tmp_path, monkeypatch):
    """The same fit with another number of threads: its last digits may be others."""
    whole = fit(folder=tmp_path)
    there = machine.arithmetic()
    monkeypatch.setattr(checkpoint, "arithmetic", lambda: there | {"threads": 64})
    with pytest.warns(UserWarning, match=r"threads: \d+ before, 64 now.*last digits"):
        again = px.fit(whole.model, (X, Y), px.BayesByBackprop(schedule="constant"),
                       steps=6, key=0, batch_size=8, checkpoint=tmp_path)  # fmt: skip
    np.testing.assert_array_equal(whole.predict(X).mean, again.predict(X).mean)


def test_a_state_that_is_not_finite_is_refused(tmp_path):
    fit(folder=tmp_path)
    path = tmp_path / "state.safetensors"
    arrays, header = container.read(path)
    name = next(name for name in arrays if name.startswith("state/") and arrays[name].size > 1)
    arrays[name].flat[0] = np.nan
    container.write(path, arrays, header)
    with pytest.raises(px.CheckpointError, match="is nan where a finite number belongs"):
        fit(folder=tmp_path)


def test_more_steps_go_by_resume(tmp_path):
    short = fit(folder=tmp_path)
    with pytest.raises(px.CheckpointError, match="pass its posterior as resume="):
        fit(folder=tmp_path, steps=12)
    longer = fit(resume=short)
    np.testing.assert_array_equal(longer.predict(X).mean, fit(steps=12).predict(X).mean)


def test_steps_of_two_fits_have_a_limit():
    """Beyond it the sum was negative, and the fit ended at once without a word."""
    short = fit()
    with pytest.raises(ValueError, match="resume: 2147483647 more steps after 6"):
        fit(resume=short, steps=2**31 - 1)


def test_what_cannot_be_told_apart_is_refused_with_how_to_name_it(tmp_path):
    rng = np.random.default_rng(0)

    def jitter(key, x):
        return x + rng.normal()

    with pytest.raises(Unidentified, match=r"augment.*rng is a Generator.*fit_identity"):
        fit(folder=tmp_path / "a", augment=jitter)
    fit(augment=jitter)  # without a checkpoint nobody asks
    jitter.fit_identity = "jitter 1"
    fit(folder=tmp_path / "a", augment=jitter)
    jitter.fit_identity = "jitter 2"
    with pytest.raises(px.CheckpointError, match="its augment"):
        fit(folder=tmp_path / "a", augment=jitter)


SCRIPT = """
import jax, optax, numpy as np, numpyro.distributions as dist, posterax as px
from posterax._util.identity import identify
class Own:
    def __init__(self, by): self.by = by
    def __call__(self, x): return self.by * x
size = 3
def walk(key, w): return w + size * jax.random.normal(key, w.shape)
print(identify([
    optax.chain(optax.clip(1.0), optax.adamw(optax.cosine_decay_schedule(1e-3, 100))),
    px.networks.as_network(px.networks.MLP(2, 1, (3,), key=0, activation=jax.nn.gelu)),
    px.likelihoods.From(lambda o: dist.StudentT(3.0, o, 1.0)), Own(2.0), walk, {3, 1, 2},
    px.Metropolis(proposal=(walk, None)), px.DeepEnsemble(inside=px.MaximumAPosteriori()),
    dist.MultivariateNormal(np.zeros(2), np.eye(2)), px.priors.ScaleMixture(), np.float32,
]))
"""


@pytest.mark.slow
def test_another_process_finds_the_same():
    """Whatever the seed of Python's hashes."""
    found = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT], env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in (1, 2)
    }  # fmt: skip
    assert len(found) == 1


@dataclasses.dataclass
class Settings:
    a: Any


class Empty:
    """A function that keeps nothing."""

    def __call__(self, x):
        return x


def adder(n):
    def add(x, *, more=n):
        return [x + more + k for k in range(n)]

    return add


FRAME = pd.DataFrame({"a": [1.0, 2.0], "c": ["x", "y"]}, index=[3, 4])
PAIRS = {
    "numbers": (1, 1.0),
    "arrays": (np.ones(3), np.ones((3, 1))),
    "types": (np.ones(3, "int32"), np.ones(3, "int64")),
    "closures": (adder(1), adder(2)),
    "partial": (functools.partial(adder, 1), functools.partial(adder, 2)),
    "methods": (Settings(1).__repr__, Settings(2).__repr__),
    "settings": (Settings({"b": 1}), Settings({"b": 2})),
    "plain objects": (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2)),
    "jit": (jax.jit(adder(1)), jax.jit(adder(2))),
    "library": (jnp.sin, jnp.cos),
    "activations": (jax.nn.relu, jax.nn.relu6),
    "keys": (jax.random.key(0), jax.random.key(1)),
    "distributions": (dist.Normal(0, 1), dist.Normal(0, 2)),
    "text": ("a", b"a"),
    "frames": (FRAME, FRAME.assign(a=[1.0, 3.0])),
    "names of columns": (FRAME, FRAME.rename(columns={"a": "b"})),
    "names of rows": (FRAME, FRAME.set_index(pd.Index([3, 5]))),
    "a number for a name": (FRAME["a"].rename(1), FRAME["a"].rename(2)),
    "series": (FRAME["a"], FRAME["a"][::-1]),
    "what closes over a frame": (lambda x: x + FRAME["a"].std(), lambda x: x - FRAME["a"].std()),
    "nothing but code": (Empty(), Own),
    "code": (lambda x: x.sum(), lambda x: x.mean()),
}


@pytest.mark.parametrize("name", PAIRS)
def test_different_things_differ(name):
    one, two = PAIRS[name]
    assert identify(one) == identify(one) != identify(two)


def test_what_was_logged_changes_nothing():
    logger = logging.getLogger("test_identity")
    before = identify(logger)
    logger.debug("it remembers that this is not shown")
    assert identify(logger) == before != identify(logging.getLogger("another"))


def test_a_thing_that_holds_itself_is_looked_at_once():
    one: list[Any] = [1]
    one.append(one)
    assert identify(one) == identify(one)


def test_parts_know_their_fit_and_place(tmp_path):
    """Draws of another fit, or in another order, are not taken for this one's."""
    options = SHORT | {"steps": 40}

    def sampled(folder, key):
        return fit(folder=px.Checkpoint(folder, every=0), **options, key=key)

    sampled(tmp_path / "a", 0)
    sampled(tmp_path / "b", 1)
    parts = sorted((tmp_path / "a").glob("draws-*"))
    assert len(parts) > 1
    before = [part.read_bytes() for part in parts]
    other = sorted((tmp_path / "b").glob("draws-*"))[0]
    parts[0].write_bytes(other.read_bytes())
    with pytest.raises(px.CheckpointError, match=r"draws-000000.*belongs to another fit"):
        sampled(tmp_path / "a", 0)
    parts[0].write_bytes(before[1])
    with pytest.raises(px.CheckpointError, match=r"draws-000000.*another place"):
        sampled(tmp_path / "a", 0)
    arrays, header = container.read(parts[1])
    fewer = {name: array[:, :-1] for name, array in arrays.items()}
    parts[0].write_bytes(before[0])
    container.write(parts[1], fewer, header)
    with pytest.raises(px.CheckpointError, match=r"draws-000001.*draws where it counts"):
        sampled(tmp_path / "a", 0)
    container.write(parts[1], fewer, header | {"count": header["count"] - 1})
    with pytest.raises(px.CheckpointError, match=r"belongs to|its parts hold"):
        sampled(tmp_path / "a", 0)


def test_two_fits_do_not_share_a_directory(tmp_path):
    inside = []

    def second(event):
        try:
            fit(folder=tmp_path)
        except px.CheckpointError as error:
            inside.append(str(error))

    whole = fit(folder=tmp_path, callbacks=[second])
    assert inside
    assert "another fit is running in this directory (process " in inside[0]
    assert not (tmp_path / "lock").exists()
    np.testing.assert_array_equal(whole.predict(X).mean, fit(folder=tmp_path).predict(X).mean)


def test_what_a_killed_fit_left_is_removed(tmp_path):
    fit(folder=tmp_path, **SHORT)
    left = [tmp_path / "draws-000077.safetensors", tmp_path / ".state.safetensors.1.partial"]
    for path in left:
        path.write_text("half")
    fit(folder=tmp_path, **SHORT)
    assert not any(path.exists() for path in left)


def test_a_full_disk_ends_no_fit(tmp_path, monkeypatch):
    failing = []

    def write(path, arrays, header):
        if len(failing) < 3:
            failing.append(path)
            raise OSError(28, "No space left on device", str(path))
        container.write(path, arrays, header)

    monkeypatch.setattr(checkpoint, "write", write)
    model = px.Model(mlp(), px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
    options = {"steps": 40, "key": 0}
    method, often = px.ImportanceSampling(chains=2), px.Checkpoint(tmp_path, every=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*candidates count")
        with pytest.warns(UserWarning, match=r"state.safetensors could not be .* \(No space left"):
            posterior = px.fit(model, (X, Y), method, checkpoint=often, **options)
        assert len(failing) == 3
        again = px.fit(model, (X, Y), method, checkpoint=tmp_path, **options)
    np.testing.assert_array_equal(posterior.predict(X).mean, again.predict(X).mean)


@pytest.mark.parametrize("every", [-1, float("nan"), "15s", True, None])
def test_seconds_between_two_savings_are_checked(every, tmp_path):
    with pytest.raises(ValueError, match="checkpoint: every must be a number of seconds"):
        fit(folder=px.Checkpoint(tmp_path, every=every))


def test_a_directory_is_text_or_a_path():
    with pytest.raises(TypeError, match="checkpoint must be a directory"):
        fit(folder=3)
