"""Bad input is refused before anything compiles, by a message that says what came and what fits."""

import json
import re
import shutil
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import posterax as px
from posterax import likelihoods as lk
from posterax._util.memory import explain_out_of_memory
from posterax.files import container as checkpoint
from posterax.fitting import loop
from posterax.posteriors import Point
from posterax.predictive import Targets

pytestmark = pytest.mark.usefixtures("hasty_compiler")

N = 6
X = np.linspace(-1, 1, 2 * N, dtype="float32").reshape(N, 2)
Y = X.sum(1)
NAN = np.array([0, 1, np.nan, 3, 4, 5])
INF_X = np.where(np.arange(12).reshape(N, 2) == 7, np.inf, X)


def model_of(likelihood=None, outputs=1, prior=None):
    network = {"w": jnp.ones((2, outputs))}, lambda p, x: x @ p["w"]
    return px.Model(network, prior, likelihood or lk.Gaussian(0.1))


def fit(x=X, y=Y, *, likelihood=None, outputs=1, method=None, data=None, **options):
    model = model_of(likelihood, outputs)
    return px.fit(model, data or (x, y), method or px.BayesByBackprop(), **options)


@pytest.fixture
def no_compiling(monkeypatch):
    """Fail where the compiled part of a fit, or a prediction, is reached."""

    def reached(*_, **__):
        pytest.fail("compiled before refusing")

    monkeypatch.setattr(loop, "run_chunk", reached)
    monkeypatch.setattr(loop, "first_state", reached)


DATA = {
    "x of rank 1": (lambda: fit(X[:, 0]), r"x of shape \(6,\).*network"),
    "x of rank 3": (lambda: fit(X[:, None]), r"y has shape \(6,\).*output \(6, 1, 1\).*\(6, 1\)"),
    "x with other columns": (lambda: fit(np.ones((N, 3))), r"x of shape \(6, 3\).*network"),
    "x a number": (lambda: fit(1.0, Y), r"x of shape \(\) and y of shape \(6,\)"),
    "y a number": (lambda: fit(X, 1.0), r"y must have one entry per example, got a single"),
    "y of rank 2": (lambda: fit(X, np.ones((N, 3))), r"y has shape \(6, 3\).*output \(6, 1\)"),
    "y of rank 3": (lambda: fit(X, np.ones((N, 1, 1))), r"y has shape \(6, 1, 1\)"),
    "lengths": (lambda: fit(X[:4]), r"x of shape \(4, 2\) and y of shape \(6,\)"),
    "lengths of pairs": (
        lambda: fit((X, np.ones(4)), Y, likelihood=lk.Poisson(exposure=True)),
        r"x of shape \(4,\) and y of shape \(6,\)",
    ),
    "NaN in y": (lambda: fit(X, NAN), r"y holds 1 NaN or infinite values, the first at \(2,\)"),
    "infinity in x": (lambda: fit(INF_X), r"x holds 1 NaN or infinite.*\(3, 1\): inf"),
    "empty": (lambda: fit(X[:0], Y[:0]), r"data is empty: x has shape \(0, 2\)"),
    "no x": (lambda: fit({}, Y), r"x holds no array"),
    "ragged x": (lambda: fit([[1.0, 2.0], [3.0]], Y[:2]), r"x must be an array, got \[\[1.0"),
    "weights negative": (lambda: fit(data=(X, Y, -Y)), r"weight must be 0 or more.*from -\d"),
    "weights zero": (lambda: fit(data=(X, Y, 0 * Y)), r"weight must be .*not all 0.*from 0 to 0"),
    "weights too few": (lambda: fit(data=(X, Y, Y[:2])), r"weight must have shape \(6,\).*\(2,\)"),
    "weights NaN": (lambda: fit(data=(X, Y, NAN)), r"weight holds 1 NaN.*\(2,\)"),
    "batches with other columns": (
        lambda: fit(data=[(X, Y), (np.ones((2, 3)), Y[:2])]), r"batch 1 has .*\(3,\).*\(2,\)",
    ),
    "a stream for a sampler": (
        lambda: fit(data=[(X, Y)], method=px.NUTS()), "data: NUTS needs all data at each step",
    ),
    "validation for a sampler": (
        lambda: fit(method=px.NUTS(), validation=(X, Y)), "validation.*NUTS keeps draws",
    ),
    "validation NaN": (lambda: fit(validation=(X, NAN)), r"validation y holds 1 NaN.*\(2,\)"),
    "validation shape": (lambda: fit(validation=(X, X)), r"y has shape \(6, 2\)"),
    "patience": (
        lambda: fit(validation=px.Validation(X, Y, patience=0)), "patience must be .*got 0",
    ),
}  # fmt: skip

K3 = {"likelihood": lk.Categorical(), "outputs": 3}
LABELS = np.array([0, 1, 2, 0, 1, 2])
TARGETS = {
    "labels above": (lambda: fit(X, LABELS + 1, **K3), r"y must hold labels 0 … 2.*got 3 at \(2,"),
    "labels below": (lambda: fit(X, LABELS - 1, **K3), r"y must hold labels 0 … 2.*got -1 at \(0,"),
    "labels fractional": (lambda: fit(X, LABELS / 2, **K3), r"y must hold whole.*got 0.5 at \(1,"),
    "labels in a column": (lambda: fit(X, LABELS[:, None], **K3), r"y has shape \(6, 1\).*\(N,\)"),
    "labels in a stream": (
        lambda: fit(data=[(X, LABELS), (X, LABELS + 1)], **K3), r"y must hold labels 0 … 2.*got 3",
    ),
    "one class": (lambda: fit(X, LABELS, likelihood=lk.Categorical()), r"\(6, 1\): Categorical"),
    "never broadcast": (lambda: fit(X, Y, outputs=2), r"y has shape \(6,\).*output \(6, 2\)"),
    "more targets than outputs": (
        lambda: fit(X, X, likelihood=lk.StudentT()), r"y has shape \(6, 2\).*StudentT .*\(6, 2\)",
    ),
    "predicted noise": (
        lambda: fit(X, Y, likelihood=lk.Gaussian("predicted"), outputs=3),
        r"output \(6, 3\): Gaussian needs an output of shape \(6, 2\)",
    ),
    "bernoulli outputs": (
        lambda: fit(X, 0 * Y, likelihood=lk.Bernoulli(), outputs=2), r"\(6, 2\): Bernoulli needs",
    ),
    "bernoulli labels": (
        lambda: fit(X, LABELS, likelihood=lk.Bernoulli()), r"y must hold 0 and 1.*got 2 at \(2,\)",
    ),
    "poisson outputs": (
        lambda: fit(X, LABELS, likelihood=lk.Poisson(), outputs=2), r"\(6, 2\): Poisson needs",
    ),
    "counts negative": (
        lambda: fit(X, LABELS - 1, likelihood=lk.Poisson()), r"y must hold counts.*got -1 at \(0,",
    ),
    "counts fractional": (
        lambda: fit(X, LABELS / 2, likelihood=lk.Poisson()), r"y must hold counts.*got 0.5 at",
    ),
    "exposure": (
        lambda: fit((X, Y), LABELS, likelihood=lk.Poisson(exposure=True)),
        r"exposure must be positive.*smallest value of -",
    ),
    "covariance of other size": (
        lambda: fit(X, X, likelihood=lk.MultivariateGaussian(np.eye(3)), outputs=2),
        r"\(6, 2\): MultivariateGaussian with a 3 × 3 covariance",
    ),
    "covariance and a vector": (
        lambda: fit(X, Y, likelihood=lk.MultivariateGaussian(np.eye(2)), outputs=2),
        r"y has shape \(6,\).*\(6, 2\)",
    ),
    "noise of other size": (
        lambda: fit(X, X, likelihood=lk.Gaussian([1.0] * 3), outputs=2),
        r"noise must be .*\(2,\), got shape \(3,\)",
    ),
    "from": (
        lambda: fit(X, X, likelihood=lk.From(lambda f: dist.Normal(f, 1.0))),
        r"y has shape \(6, 2\).*draws \(6, 1\)",
    ),
    "from, without examples": (
        lambda: fit(likelihood=lk.From(lambda f: dist.Normal(f.mean(0), 1.0))),
        r"y has shape \(6,\).*draws \(1,\)",
    ),
}  # fmt: skip

STUDENT = lk.StudentT
OPTIONS = {
    "batch_size above": (lambda: fit(batch_size=7), "batch_size=7 is larger than the data, 6"),
    "batch_size zero": (lambda: fit(batch_size=0), "batch_size must be a whole number.*got 0"),
    "batch_size fractional": (lambda: fit(batch_size=2.5), "batch_size must be .*got 2.5"),
    "batch_size text": (lambda: fit(batch_size="all"), "batch_size must be .*got 'all'"),
    "batch_size of a sampler": (
        lambda: fit(method=px.NUTS(), batch_size=2), "batch_size=2: NUTS uses all 6 examples",
    ),
    "epochs zero": (lambda: fit(epochs=0), "epochs must be .*got 0"),
    "epochs infinite": (lambda: fit(epochs=np.inf), "epochs must be a finite.*got inf"),
    "steps fractional": (lambda: fit(steps=2.5), "steps must be .*got 2.5"),
    "steps beyond 32 bits": (lambda: fit(steps=2**31), "steps must be below 2"),
    "epochs and steps": (lambda: fit(epochs=1, steps=1), "epochs or steps, not both"),
    "epochs of a sampler": (lambda: fit(method=px.NUTS(), epochs=1), "NUTS counts steps.*steps="),
    "thin": (lambda: fit(thin=0), "thin must be .*got 0"),
    "thin keeps nothing": (
        lambda: fit(method=px.NUTS(), steps=5, thin=6), "thin=6 keeps none of 5 steps",
    ),
    "estimator": (lambda: px.BayesByBackprop(estimator="loc"), "estimator.*'local'.*got 'loc'"),
    "kl": (lambda: px.BayesByBackprop(kl="exact"), "kl must be one of 'auto'.*got 'exact'"),
    "kl_weights": (lambda: px.BayesByBackprop(kl_weights="paper"), "kl_weights.*'blundell'.*'pap"),
    "schedule": (lambda: px.BayesByBackprop(schedule="step"), "schedule.*'cosine'.*got 'step'"),
    "schedule of an ensemble": (lambda: px.DeepEnsemble(schedule="step"), "schedule.*'cosine'"),
    "inside": (lambda: px.DeepEnsemble(inside="vi"), "inside must be .*'map', 'ml', got 'vi'"),
    "learning_rate": (lambda: px.MaximumLikelihood(-1.0), "learning_rate must be .*got -1.0"),
    "antithetic": (
        lambda: px.BayesByBackprop(antithetic=True, samples=3), "antithetic.*even.*got 3",
    ),
    "chains": (lambda: px.NUTS(chains=1.5), "chains must be .*got 1.5"),
    "members": (lambda: px.DeepEnsemble(members=0), "members must be .*got 0"),
    "activation": (
        lambda: px.networks.MLP(1, 1, activation="rleu", key=0), "activation.*relu.*got 'rleu'",
    ),
    "out_size": (lambda: px.networks.MLP(1, 0, key=0), "out_size must be .*got 0"),
    "noise word": (lambda: lk.Gaussian("known"), "noise must be .*'learned'.*got 'known'"),
    "noise zero": (lambda: lk.Gaussian(0.0), "noise must be positive.*got 0.0"),
    "noise of a student": (lambda: STUDENT(noise=-1.0), "noise must be positive.*got -1.0"),
    "df": (lambda: STUDENT(df=2.0), "df must be above 2.*got 2.0"),
    "covariance": (lambda: lk.MultivariateGaussian([[1.0, 2.0], [2.0, 1.0]]), "covariance must"),
    "kind": (lambda: lk.From(lambda f: f, kind="other"), "kind must be .*got 'other'"),
    "scale": (lambda: px.priors.Gaussian(-1.0), "scale must be positive.*got -1.0"),
    "scale in an array": (lambda: px.priors.Gaussian(jnp.array(0.0)), "scale must be positive"),
    "scale infinite": (lambda: px.priors.Laplace(np.inf), "scale must be .*finite.*got inf"),
    "sigma2": (lambda: px.priors.ScaleMixture(sigma2=0.0), "sigma2 must be positive.*got 0.0"),
    "pi": (lambda: px.priors.ScaleMixture(pi=1.0), "pi must lie strictly .*got 1.0"),
    "bounded prior": (
        lambda: model_of(prior=dist.HalfNormal(1.0)), "prior must have the whole real line.*Half",
    ),
    "prior of many": (
        lambda: model_of(prior=dist.Normal(jnp.zeros(3), 1.0)), r"prior must be .*batch \(3,\)",
    ),
    "keys": (lambda: fit(key=jax.random.split(jax.random.key(0))), r"key must be a single key"),
    "raw key": (lambda: fit(key=np.zeros(3, np.uint32)), r"key .*shape \(3,\)"),
    "init with another tree": (
        lambda: fit(init=px.networks.MLP(2, 1, (3,), key=0)), r"init has other .*instead of \[\(2,",
    ),
}  # fmt: skip

TYPES = {
    "unknown option": (lambda: fit(epoch=1), "'epoch'"),
    "unknown hyperparameter": (lambda: px.BayesByBackprop(sample=1), "'sample'"),
    "method a class": (lambda: fit(method=px.NUTS), "method must be .*got NUTS; call it"),
    "method a word": (lambda: fit(method="NUTS"), "method must be .*got str"),
    "model a network": (
        lambda: px.fit(px.networks.MLP(1, 1, key=0), (X, Y), px.NUTS()), "model must be .*got MLP",
    ),
    "likelihood a class": (lambda: model_of(lk.Gaussian), "likelihood must be one of px.like"),
    "prior a number": (lambda: model_of(prior=1.0), "prior must be .*got float"),
    "scale a word": (lambda: px.priors.Gaussian("wide"), "scale must be a number, got 'wide'"),
    "network": (lambda: px.Model(3, None, lk.Gaussian()), "network must be .*got int"),
    "key": (lambda: fit(key="0"), "key must be an int or a JAX key.*got str"),
    "key of True": (lambda: fit(key=True), "key must be .*got a bool"),
    "data one array": (lambda: fit(data=(X,)), r"data must be \(x, y\).*tuple of length 1"),
    "data a number": (lambda: fit(data=5), r"data must be \(x, y\).*got int"),
    "data an iterator": (lambda: fit(data=iter([(X, Y)])), "data must be re-iterable"),
    "text": (lambda: fit(X, np.array(["a"] * N)), "y must be numeric.*dtype <U1"),
    "objects": (lambda: fit(np.array([["a", 1.0]] * N, object)), "x must be numeric.*'a' at"),
    "no exposure": (
        lambda: fit(X, LABELS, likelihood=lk.Poisson(exposure=True)), r"x must be a pair .*ndarray",
    ),
    "optimizer": (lambda: px.BayesByBackprop(optimizer="adam"), "optimizer must be .*got str"),
    "init": (lambda: fit(init="best"), "init must be .*got str"),
    "resume": (lambda: fit(resume="best"), "resume must be a posterior, got str"),
    "validation": (lambda: fit(validation=X), "validation must be .*got ndarray"),
    "load with a network": (lambda: px.load("none", model=3), "model must be a px.Model, got int"),
}  # fmt: skip


@pytest.mark.usefixtures("no_compiling")
@pytest.mark.parametrize(
    ("call", "message"),
    [pytest.param(*case, id=name) for name, case in (DATA | TARGETS | OPTIONS).items()],
)
def test_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.usefixtures("no_compiling")
@pytest.mark.parametrize(
    ("call", "message"), [pytest.param(*case, id=name) for name, case in TYPES.items()]
)
def test_types(call, message):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.fixture(scope="module")
def posterior():
    return fit(steps=2, key=0)


@pytest.fixture(scope="module")
def classes():
    model = model_of(**K3)
    return Point(model, (), Targets((), ()), point=model.parameters)


PREDICTIONS = {
    "columns": (lambda p, c: p.predict(np.ones((3, 4))), r"x of shape \(3, 4\) .*network"),
    "rank": (lambda p, c: p.predict(np.ones(2)), r"network: the output for 2 .*\(1,\)"),
    "a number": (lambda p, c: p.predict(1.0), r"x must have one row per example, got shape \(\)"),
    "empty": (lambda p, c: p.predict(X[:0]), "x is empty"),
    "NaN": (lambda p, c: p.predict(INF_X), r"x holds 1 NaN.*\(3, 1\)"),
    "samples": (lambda p, c: p.predict(X, samples=0), "samples must be .*got 0"),
    "n": (lambda p, c: p.sample(0, 1.5), "n must be .*got 1.5"),
    "quantile": (lambda p, c: p.predict(X).quantile(1.5), "q must lie between 0 and 1, got 1.5"),
    "quantile NaN": (lambda p, c: p.predict(X).quantile(np.nan), "q must lie .*got nan"),
    "level": (lambda p, c: p.predict(X).interval(1.0), "level must lie .*got 1.0"),
    "y too short": (lambda p, c: p.predict(X).log_prob(Y[:3]), r"y must have shape \(6,\).*\(3,\)"),
    "y too wide": (lambda p, c: p.predict(X).log_prob(X), r"y must have shape \(6,\).*\(6, 2\)"),
    "y a number": (lambda p, c: p.predict(X).log_prob(1.0), r"y must have shape \(6,\), got \(\)"),
    "y NaN": (lambda p, c: p.predict(X).log_prob(NAN), r"y holds 1 NaN.*\(2,\)"),
    "labels": (lambda p, c: c.predict(X).log_prob(LABELS + 1), "y must hold labels 0 … 2.*got 3"),
    "mode": (lambda p, c: p.predict(X).mode, "mode is for classification"),
}  # fmt: skip


@pytest.mark.parametrize("name", PREDICTIONS)
def test_predictions(name, posterior, classes):
    call, message = PREDICTIONS[name]
    with pytest.raises(ValueError, match=message):
        call(posterior, classes)


def test_resume_needs_the_optimisers_state(posterior, tmp_path):
    posterior.save(tmp_path / "saved.px")
    loaded = px.load(tmp_path / "saved.px", model=posterior.model)
    with pytest.raises(ValueError, match="resume: this posterior does not hold its optimiser's"):
        fit(resume=loaded, steps=1)
    with pytest.raises(ValueError, match=r"resume: .*another model or method \(BayesByBackprop\)"):
        fit(resume=posterior, method=px.MaximumAPosteriori(), steps=1)


# -- what turns non-finite while running


def finite(posterior):
    leaves = jax.tree.leaves((posterior.sample(0, 3), posterior.moments()))
    return all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves)


def poisoned(threshold):
    """A density that is NaN as soon as an output lies above the threshold."""

    def function(f):
        return dist.Normal(jnp.where(jnp.max(f) > threshold, jnp.nan, f), 1.0)

    return lk.From(function)


@pytest.mark.filterwarnings("ignore:noise=0.1 is known")  # and y ten times as wide as it might be
@pytest.mark.parametrize(
    ("method", "likelihood", "term", "word"),
    [
        (px.MaximumLikelihood(optimizer=optax.sgd(1e30)), None, "nll", "likelihood"),
        (px.MaximumAPosteriori(0.1, "constant"), poisoned(2.5), "nll", "likelihood"),
        (px.BayesByBackprop(learning_rate=0.1), poisoned(2.5), "nll", "likelihood"),
        (px.BayesByBackprop(optimizer=optax.sgd(1e30)), None, "(nll|kl)", "(likelihood|prior)"),
        (px.BayesByBackprop(initial_rho=-200.0), None, "kl", "entropy"),
        (px.DeepEnsemble(2, learning_rate=0.1), poisoned(2.5), "nll", "likelihood"),
    ],
    ids=["ml", "map", "bbb", "bbb, far", "bbb, no spread", "ensemble"],
)
def test_a_fit_that_blows_up_keeps_what_was_finite(method, likelihood, term, word):
    with pytest.raises(px.NonFiniteError, match=rf"{term} is not finite. {word}") as caught:
        fit(X, 10 * Y, likelihood=likelihood, method=method, steps=300, key=0)
    error = caught.value
    assert re.fullmatch(term, error.term)
    assert f"step {error.step} of" in str(error)
    assert finite(error.posterior)
    assert len(error.posterior.history["nll"]) == error.step - 1


def test_a_prior_without_density_is_blamed():
    class Cliff(px.priors.Gaussian):
        def log_prob(self, w):
            return jnp.where(w > 1.5, -jnp.inf, super().log_prob(w))

    network = {"w": jnp.ones((2, 1))}, lambda p, x: x @ p["w"]
    model = px.Model(network, Cliff(1.0), lk.Gaussian(0.1))
    for method in (
        px.MaximumAPosteriori(0.1),
        px.BayesByBackprop(kl="monte_carlo", learning_rate=1.0),
    ):
        with pytest.raises(px.NonFiniteError, match="prior") as caught:
            px.fit(model, (X, 5 * Y), method, steps=100, key=0)
        assert caught.value.term in ("prior", "kl")
        assert finite(caught.value.posterior)


def test_a_sampler_without_a_density_says_so():
    with pytest.raises(px.NonFiniteError, match=r"warming up.*likelihood") as caught:
        fit(likelihood=poisoned(-100.0), method=px.NUTS(1, 20), steps=5, key=0)
    assert caught.value.term == "log_density"
    assert caught.value.posterior is None  # there is no draw yet
    with pytest.raises(FloatingPointError, match="no candidate explains the data"):
        fit(likelihood=poisoned(-100.0), method=px.ImportanceSampling(4), steps=5, key=0)


# -- files and checkpoints


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    model = px.Model(px.networks.MLP(2, 1, (3,), key=0), None, lk.Gaussian(0.1))
    path = tmp_path_factory.mktemp("saved") / "fit.px"
    px.fit(model, (X, Y), px.MaximumAPosteriori(), steps=1, key=0).save(path)
    return path


def edited(path, change):
    """The same file with another header, its digest made right again."""
    arrays, header = checkpoint.read(path)
    checkpoint.write(path, arrays, change(header) or header)


def with_metadata(path, **metadata):
    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        save_file(arrays, path, metadata=file.metadata() | metadata)


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(bytes(content))


DAMAGE = {
    "truncated": lambda p: p.write_bytes(p.read_bytes()[:-10]),
    "cut to nothing": lambda p: p.write_bytes(b""),
    "a bit of the length": lambda p: flip(p, 2),
    "a bit of the header": lambda p: flip(p, 30),
    "a bit of a weight": lambda p: flip(p, -3),
    "text": lambda p: p.write_text("posterior"),
    "another safetensors file": lambda p: save_file({"a": np.ones(3)}, p),
    "no JSON": lambda p: with_metadata(p, posterax="{"),
    "JSON edited": lambda p: with_metadata(p, posterax=json.dumps({"format": 1})),
    "a later version": lambda p: with_metadata(p, posterax=json.dumps({"format": 99})),
    "another posterior": lambda p: edited(p, lambda h: h | {"posterior": "Draws"}),
    "an unknown posterior": lambda p: edited(p, lambda h: h | {"posterior": "os.system"}),
    "another network": lambda p: edited(
        p, lambda h: h["model"]["network"]["config"].update(hidden_sizes=[10**9])
    ),
    "an unknown network": lambda p: edited(p, lambda h: h["model"]["network"].update(name="eval")),
    "an impossible likelihood": lambda p: edited(
        p, lambda h: h["model"]["likelihood"]["arguments"].update(noise=-1)
    ),
    "no targets": lambda p: edited(p, lambda h: h.pop("targets") and None),
    "a checkpoint": lambda p: edited(p, lambda h: {"format": 1, "phase": 0, "step": 1}),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files_are_refused(name, saved, tmp_path):
    path = tmp_path / "damaged.px"
    shutil.copy(saved, path)
    assert px.load(path).predict(X).mean.shape == (N,)
    DAMAGE[name](path)
    with pytest.raises(px.CheckpointError, match=r"damaged\.px: .{10}"):
        px.load(path)


def test_a_file_for_another_model_is_refused(saved):
    with pytest.raises(px.CheckpointError, match="model= has another network"):
        px.load(saved, model=model_of())
    with pytest.raises(FileNotFoundError, match="no such file"):
        px.load(saved.with_name("other.px"))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A directory with the checkpoint of a sampler: a state, and draws in parts."""
    path = tmp_path_factory.mktemp("kept") / "fit"
    sample(path)
    return path


def sample(path, *, y=Y, key=0, chains=2, prior=None, likelihood=None, thin=1):
    model = model_of(likelihood, prior=prior)
    method = px.ImportanceSampling(chains)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*candidates count")  # a few are enough for a file
        # what is made for a whole module is made with all of the compiler's optimisations
        warnings.filterwarnings("ignore", ".*other arithmetic")
        return px.fit(model, (X, y), method, steps=4, key=key, checkpoint=path, thin=thin)


FOREIGN = {
    "method": {"chains": 3},
    "data": {"y": Y + 1},
    "key": {"key": 1},
    "prior": {"prior": px.priors.Gaussian(2.0)},
    "likelihood": {"likelihood": lk.Gaussian(0.2)},
    "thin": {"thin": 2},
}


@pytest.mark.usefixtures("no_compiling")
@pytest.mark.parametrize("name", FOREIGN)
def test_the_checkpoint_of_another_fit_is_refused(name, kept):
    with pytest.raises(px.CheckpointError, match=rf"state\.safetensors: .*its {name}[.a-z]* is"):
        sample(kept, **FOREIGN[name])


SPOILED = {
    "truncated": ("state", lambda p: p.write_bytes(p.read_bytes()[:-10])),
    "a bit of the state": ("state", lambda p: flip(p, -3)),
    "text": ("state", lambda p: p.write_text("state")),
    "no step": ("state", lambda p: edited(p, lambda h: h.pop("step") and None)),
    "a step of words": ("state", lambda p: edited(p, lambda h: h | {"step": "four"})),
    "a phase that is not": ("state", lambda p: edited(p, lambda h: h | {"phase": 3})),
    "no identity": ("state", lambda p: edited(p, lambda h: h | {"identity": []})),
    "more parts than files": ("state", lambda p: edited(p, lambda h: h | {"parts": 99})),
    "draws truncated": ("draws-000000", lambda p: p.write_bytes(p.read_bytes()[:-10])),
    "draws missing": ("draws-000000", lambda p: p.unlink()),
}


@pytest.mark.usefixtures("no_compiling")
@pytest.mark.parametrize("name", SPOILED)
def test_a_damaged_checkpoint_is_refused(name, kept, tmp_path):
    path = tmp_path / "fit"
    shutil.copytree(kept, path)
    file, damage = SPOILED[name]
    damage(path / f"{file}.safetensors")
    with pytest.raises(px.CheckpointError, match=r"\.safetensors: .{10}"):
        sample(path)


def test_a_checkpoint_is_a_directory(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(px.CheckpointError, match="file: checkpoint must be a directory"):
        sample(tmp_path / "file")


# -- memory


@pytest.mark.usefixtures("no_compiling")
def test_draws_beyond_memory_are_refused_before_the_first_step():
    began = time.monotonic()
    with pytest.raises(
        MemoryError, match=r"keeping 1000000000 draws of 4 chains .*32,000,000,000 b"
    ):
        fit(method=px.NUTS(), steps=10**9)
    assert time.monotonic() - began < 5


def test_an_allocators_failure_names_the_bytes():
    def explained(error):
        with explain_out_of_memory("sampling", 3 * 2**30):
            raise error

    with pytest.raises(
        MemoryError, match=r"out of memory: sampling needs about 3,221,225,472 b.*99"
    ):
        explained(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 99 bytes."))
    with pytest.raises(MemoryError, match="sampling needs about"):
        explained(MemoryError("numpy could not allocate"))
    with pytest.raises(RuntimeError, match="something else"):
        explained(RuntimeError("something else"))
