"""The loop: what it compiles, how it stops, how it survives."""

import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import jax
import numpy as np
import pytest

import posterax as px
from posterax.callbacks import CSVWriter, StopFit, TensorBoardWriter


def toy(n=64, width=4):
    x = np.linspace(-1, 1, n)[:, None].astype("float32")
    model = px.Model(
        px.networks.MLP(1, 1, (width,), key=0),
        px.priors.Gaussian(1.0),
        px.likelihoods.Gaussian(0.1),
    )
    return model, (x, np.sin(3 * x))


@contextmanager
def compilations():
    """Names of everything JAX compiles within."""
    names = []

    class Handler(logging.Handler):
        def emit(self, record):
            message = record.getMessage()
            if message.startswith("Compiling "):
                names.append(message.split()[1])

    logger, handler = logging.getLogger("jax"), Handler()
    logger.addHandler(handler)
    try:
        with jax.log_compiles():
            yield names
    finally:
        logger.removeHandler(handler)


METHODS = [px.BayesByBackprop(), px.DeepEnsemble(members=2), px.ImportanceSampling(chains=2)]


@pytest.mark.filterwarnings("ignore:.*candidates count")
@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_each_step_function_compiles_once_and_a_second_fit_compiles_nothing(method):
    model, data = toy(n=70, width=5)
    options = {"batch_size": 16} if method.needs.counts == "epochs" else {}
    with compilations() as first:
        px.fit(model, data, method, steps=300, key=0, **options)
    assert sum("run_chunk" in name for name in first) == 1
    # fewer steps of optimisation are no other shape; fewer draws would be
    steps = 123 if method.needs.counts == "epochs" else 300
    with compilations() as second:
        px.fit(model, data, method, steps=steps, key=1, **options)
    assert second == []
    # the same shapes in a model made anew, with another rate and another prior scale
    again = px.Model(
        px.networks.MLP(1, 1, (5,), key=1), px.priors.Gaussian(0.5), px.likelihoods.Gaussian(0.2)
    )
    if isinstance(method, px.BayesByBackprop):
        method = px.BayesByBackprop(learning_rate=0.02, temperature=0.1)
    with compilations() as third:
        px.fit(again, data, method, steps=123, key=1, **options)
    assert not [name for name in third if "run_chunk" in name]


def test_same_key_same_bits_another_key_other_bits():
    model, data = toy()
    runs = [px.fit(model, data, px.BayesByBackprop(), epochs=3, key=k) for k in (0, 0, 1)]
    first, same, other = (np.asarray(r.mu.network.layers[0].weight) for r in runs)
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_the_model_given_is_left_as_it_was():
    model, data = toy()
    before = np.array(model.network.params.layers[0].weight)
    px.fit(model, data, px.MaximumAPosteriori(), epochs=2)
    np.testing.assert_array_equal(model.network.params.layers[0].weight, before)


def test_early_stopping_returns_the_best_state(rng):
    model, (x, y) = toy(32, 16)
    noisy = (x + 0 * y, rng.normal(size=y.shape).astype("float32"))  # nothing to learn
    watch = px.Validation(x, rng.normal(size=y.shape).astype("float32"), patience=3, every=5)
    posterior = px.fit(
        model, noisy, px.MaximumLikelihood(0.05), epochs=2000, batch_size=32, validation=watch
    )
    seen = posterior.history["validation_nll"]
    assert len(seen) < 400  # it stopped
    assert seen.argmin() == len(seen) - 4  # three looks after the best
    best = -np.mean(posterior.predict(watch.x, samples=16).log_prob(watch.y))
    assert best == pytest.approx(seen.min(), rel=1e-4)


def test_validation_only_watches_without_patience():
    model, (x, y) = toy()
    posterior = px.fit(model, (x, y), px.BayesByBackprop(), epochs=4, validation=(x, y))
    assert len(posterior.history["validation_nll"]) == 4
    assert len(posterior.history["nll"]) == 4


def test_continuing_with_a_constant_rate_equals_one_longer_fit():
    model, data = toy()
    method = px.BayesByBackprop(schedule="constant")
    whole = px.fit(model, data, method, epochs=20, batch_size=16, key=0)
    half = px.fit(model, data, method, epochs=10, batch_size=16, key=0)
    rest = px.fit(model, data, method, epochs=10, batch_size=16, key=0, resume=half)
    for name in ("mu", "rho"):
        a, b = (jax.tree.leaves(getattr(p, name)) for p in (whole, rest))
        for left, right in zip(a, b, strict=True):
            np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(whole.history["nll"], rest.history["nll"])


def test_callbacks_write_csv_and_tensorboard_and_can_stop(tmp_path):
    model, data = toy()

    def stop(event):
        if event.step >= 50:
            raise StopFit

    csv = CSVWriter(tmp_path / "run.csv")
    board = TensorBoardWriter(tmp_path / "board")
    posterior = px.fit(
        model, data, px.BayesByBackprop(), steps=100_000, callbacks=[csv, board, stop]
    )
    taken = len(posterior.history["nll"])
    assert 50 <= taken < 100_000
    lines = (tmp_path / "run.csv").read_text().splitlines()
    assert lines[0] == "phase,step,nll,kl"
    assert len(lines) == taken + 1
    assert float(lines[-1].split(",")[2]) == pytest.approx(posterior.history["nll"][-1], rel=1e-6)
    assert any((tmp_path / "board").iterdir())


def test_ctrl_c_returns_what_there_is():
    model, data = toy()

    def press():
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGINT)

    px.fit(model, data, px.BayesByBackprop(), steps=10)  # compiled before the clock runs
    threading.Thread(target=press, daemon=True).start()
    began = time.monotonic()
    posterior = px.fit(model, data, px.BayesByBackprop(), steps=50_000_000)
    assert time.monotonic() - began < 10
    assert 0 < len(posterior.history["nll"]) < 50_000_000


TRAINED_FIRST = [px.Laplace("diagonal"), px.SWAG(rank=2)]


@pytest.mark.parametrize("method", TRAINED_FIRST, ids=lambda m: type(m).__name__)
def test_a_training_that_others_follow_can_be_ended(method, tmp_path):
    model, data = toy()

    def run(*callbacks, **options):
        settings = {"steps": 400, "batch_size": 16, "key": 0} | options
        return px.fit(model, data, method, callbacks=callbacks, **settings)

    def press(event):
        if event.phase == "optimising" and event.step > 1:
            signal.raise_signal(signal.SIGINT)

    # Ctrl-C: the network so far; the same call goes on to the same bits
    with pytest.warns(UserWarning, match="stopped while optimising: this is a Point.*train=False"):
        point = run(press, checkpoint=tmp_path)
    assert point.record.interrupted
    taken = len(point.history["optimising/nll"])
    assert 1 < taken < 300
    whole = run()
    on = run(checkpoint=tmp_path)
    assert type(on) is type(whole)
    for a, b in zip(*(jax.tree.leaves(p.mu) for p in (on, whole)), strict=True):
        np.testing.assert_array_equal(a, b)
    share = 0.75 if isinstance(method, px.SWAG) else 1
    longer = run(resume=point)
    assert len(longer.history["optimising/nll"]) == pytest.approx(share * (400 + taken), abs=1)

    # a callback that is content ends the training; what follows is whole, whatever it says then
    def content(event):
        if event.terms["nll"].size and event.step > 1:
            raise StopFit

    stopped = run(content)
    assert not stopped.record.interrupted
    assert type(stopped) is type(whole)
    assert len(stopped.history["optimising/nll"]) < 300
    assert len(stopped.history["nll"]) == len(whole.history["nll"])


@pytest.mark.filterwarnings("ignore:.*candidates count")
def test_thinning_keeps_every_kth_draw():
    model, data = toy(16)
    method = px.ImportanceSampling(chains=2)
    full = px.fit(model, data, method, steps=12, key=0)
    thin = px.fit(model, data, method, steps=12, key=0, thin=3)
    assert thin.shape == (2, 4)
    for a, b in zip(jax.tree.leaves(full.draws), jax.tree.leaves(thin.draws), strict=True):
        np.testing.assert_array_equal(a[:, 2::3], b)


KILLED = """
import sys
import numpy as np
import jax
import posterax as px

name, folder, out = sys.argv[1:4]
x = np.linspace(-1, 1, 64)[:, None].astype("float32")
model = px.Model(
    px.networks.MLP(1, 1, (8,), key=0), px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1)
)
method, steps = {
    "bbb": (px.BayesByBackprop(), 150_000),
    "nuts": (px.NUTS(chains=2, warmup=150, max_doublings=6), 1_000),
}[name]
checkpoint = None if folder == "none" else px.Checkpoint(folder, every=0.1)
batch = 16 if name == "bbb" else None
p = px.fit(model, (x, np.sin(3 * x)), method, steps=steps, batch_size=batch, key=5,
           checkpoint=checkpoint)
arrays = jax.tree.leaves((p.mu, p.rho) if name == "bbb" else (p.draws, p.stats))
np.savez(out, *[np.asarray(a) for a in arrays], *p.history.values())
"""


@pytest.mark.parametrize("name", ["bbb", pytest.param("nuts", marks=pytest.mark.slow)])
def test_killed_fits_resume_bit_for_bit(name, tmp_path):
    """``kill -9`` at three random moments, then the same call to the end."""
    script = tmp_path / "run.py"
    script.write_text(KILLED)

    def start(folder, out):
        command = [sys.executable, str(script), name, str(folder), str(out)]
        return subprocess.Popen(command)

    reference = start("none", tmp_path / "reference.npz")
    assert reference.wait(timeout=300) == 0
    folder, moment = tmp_path / "checkpoint", random.Random(name)
    state = folder / "state.safetensors"
    kills, steps = 0, []
    for _ in range(3):
        process = start(folder, tmp_path / "resumed.npz")
        before = state.stat().st_mtime_ns if state.exists() else 0
        deadline = time.monotonic() + 120
        # wait until this process has saved at least once, then a random moment more
        while (not state.exists() or state.stat().st_mtime_ns == before) and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(moment.uniform(0, 0.35))
        if process.poll() is None:
            process.kill()
            kills += 1
        process.wait()
        steps.append(header_of(state)["step"] + 10**9 * header_of(state)["phase"])
    assert kills == 3, "the fit was too short to be killed three times"
    assert steps == sorted(steps)
    last = start(folder, tmp_path / "resumed.npz")
    assert last.wait(timeout=300) == 0
    with np.load(tmp_path / "reference.npz") as a, np.load(tmp_path / "resumed.npz") as b:
        assert a.files == b.files
        for array in a.files:
            np.testing.assert_array_equal(a[array], b[array])


def header_of(path):
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return json.loads(json.loads(file.read(length))["__metadata__"]["posterax"])
