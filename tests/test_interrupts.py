"""Ctrl-C is never lost: not in a destructor, a weak reference, or a callback of JAX."""

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref

import jax
import numpy as np
import pytest

import posterax as px
from posterax._util.interrupts import (
    _presses,
    check_interrupt,
    heeded,
    interruptible,
    raise_on_interrupt,
)
from posterax.commands import one_line_errors
from posterax.commands.scoring import learn
from posterax.commands.targets import Parts

X = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]
pytestmark = [
    pytest.mark.usefixtures("ctrl_c"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True, scope="module")
def small_heap():
    """Collections here look at what is made here, not at all that was compiled before: seconds."""
    gc.freeze()
    yield
    gc.unfreeze()


def press():
    os.kill(os.getpid(), signal.SIGINT)


class Dying:
    """An object in whose destructor Ctrl-C is pressed."""

    def __del__(self):
        press()
        for _ in range(10):  # Python looks for signals between lines
            pass


def in_destructor():
    Dying()
    gc.collect()


def in_weak_reference():
    class Thing:
        pass

    thing = Thing()
    reference = weakref.ref(thing, lambda _: press())
    del thing
    assert reference() is None


def in_jax_callback():
    def host(value):
        press()
        for _ in range(10):
            pass
        return value

    shape = jax.ShapeDtypeStruct((), np.float32)
    jax.jit(lambda v: jax.pure_callback(host, shape, v))(np.float32(1)).block_until_ready()


LOST = [in_destructor, in_weak_reference, in_jax_callback]
everywhere = pytest.mark.parametrize("lose", LOST, ids=lambda f: f.__name__)


def model():
    network = px.networks.MLP(1, 1, (4,), key=0)
    return px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))


def once(lose, at=1):
    """A callback of a fit that presses once, when the fit is at a step."""
    left = [1]

    def callback(event):
        if event.step >= at and left[0]:
            left[0] = 0
            lose()

    return callback


def fit(lose, steps=10**7, **options):
    return px.fit(
        model(), (X, X), px.MaximumAPosteriori(1e-3), steps=steps, callbacks=[once(lose)], **options
    )


@everywhere
def test_a_press_ends_a_fit(lose):
    posterior = fit(lose)
    assert posterior.record.interrupted
    assert not _presses.count


@everywhere
def test_a_press_that_is_lost_raises_where_half_a_fit_is_of_no_use(lose):
    """Python prints "Exception ignored in", and the fit of ten million steps used to go on."""
    with pytest.raises(KeyboardInterrupt), raise_on_interrupt():
        fit(lose)
    assert not _presses.count


@everywhere
def test_a_second_press_that_is_lost_raises_too(lose):
    def twice(event):
        press()
        lose()

    with pytest.raises(KeyboardInterrupt):
        px.fit(model(), (X, X), px.MaximumAPosteriori(1e-3), steps=10**7, callbacks=[twice])


def test_a_press_between_two_fits_ends_the_second():
    """After the last look of the first: nobody has heeded it yet."""
    with interruptible():
        first = px.fit(model(), (X, X), px.MaximumAPosteriori(1e-3), steps=2)
        in_destructor()
        second = px.fit(model(), (X, X), px.MaximumAPosteriori(1e-3), steps=10**7)
    assert not first.record.interrupted
    assert second.record.interrupted


def test_a_press_between_the_fits_of_an_estimator(monkeypatch):
    from posterax.tables import regressor

    measure = regressor.measure

    def pressed(*arguments):
        in_destructor()
        return measure(*arguments)

    monkeypatch.setattr(regressor, "measure", pressed)
    x = np.random.default_rng(0).normal(size=(120, 1))
    estimator = px.BayesianRegressor(
        "maximum_a_posteriori", hidden_layer_sizes=(4,), steps=10**7, verbose=False
    )
    one = iter([20, 10**7])

    def budget(*arguments, make=regressor.settings.make_budget):
        return make(*arguments) | {"steps": next(one), "epochs": None}

    monkeypatch.setattr(regressor.settings, "make_budget", budget)
    estimator.fit(x, x[:, 0])
    assert estimator.posterior_.record.interrupted


@everywhere
def test_a_press_that_is_lost_ends_a_command(lose, monkeypatch, capsys):
    from posterax.tables.base import BayesianEstimator

    def several(self, X, y, sample_weight=None):
        fit(lose, steps=2)  # too short to look again
        self.posterior_ = fit(lambda: None, steps=10**7)

    monkeypatch.setattr(BayesianEstimator, "fit", several)
    parts = Parts(X, X[:, 0])
    with pytest.raises(Exception) as end, one_line_errors():  # noqa: PT011
        learn(parts, "regression", {}, 0)
    assert end.value.exit_code == 130
    assert capsys.readouterr().err.startswith("error: stopped")


def test_what_was_heeded_or_came_too_late_for_a_command_does_not_raise():
    with raise_on_interrupt():
        in_destructor()
        heeded()
        check_interrupt()
    with raise_on_interrupt(at_end=False):
        in_destructor()
    with interruptible() as interrupted:  # and the next begins anew
        assert not interrupted()


def test_errors_stay_what_they_are():
    def fail():
        in_destructor()
        return 1 / 0

    with pytest.raises(ZeroDivisionError), raise_on_interrupt():
        fail()


def test_ignored_in_the_background_it_stays_ignored():
    code = (
        "import os, signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from posterax._util.interrupts import raise_on_interrupt\n"
        "with raise_on_interrupt(): os.kill(os.getpid(), signal.SIGINT)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_other_threads_have_no_part_in_it():
    seen = []

    def work():
        with interruptible() as interrupted, raise_on_interrupt():
            seen.append(interrupted())

    with interruptible():
        press()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == [False]
