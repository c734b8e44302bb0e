"""The demo: every method on the paper's regression curve and on scikit-learn's digits.

Settings were chosen on validation data; the scores are of test data. The tests call the same
functions.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from . import infer, likelihoods, networks, priors
from ._util.keys import KeyLike, as_key
from ._util.tree import tree_size
from ._util.writing import written
from .fitting.fit import fit
from .infer import Method
from .metrics import evaluate
from .model import Model
from .posteriors import Draws, Point, Posterior
from .posteriors.draws import effective
from .predictive import Predictive

Arrays = tuple[np.ndarray, np.ndarray]

POINTS = 1000  # in every set of the curve: equal shapes share one compiled program
SAMPLES = 256
CURVE_EPOCHS = 600
DIGITS_EPOCHS = 300
BATCH = 128


class Entry(NamedTuple):
    """A row to fill: a method, its model, and how long to fit it."""

    name: str
    model: Model
    method: Method
    options: dict[str, Any]


class Result(NamedTuple):
    """A row of a table, and the posterior behind it."""

    name: str
    weights: int
    scores: dict[str, float]
    seconds: float
    posterior: Posterior
    note: str


def run(
    entries: Sequence[Entry],
    train: Arrays,
    test: Arrays,
    score: Callable[[Posterior, Arrays], dict[str, float]],
    key: KeyLike = 0,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[Result]:
    """Fit every entry and score it on test data; ``say`` hears what is being fitted."""
    for entry in entries:
        weights = tree_size(entry.model.parameters)
        say(f"fitting {entry.name} ({weights:,} weights)")
        began = time.perf_counter()
        with warnings.catch_warnings():  # what they warn of is what the table shows
            warnings.simplefilter("ignore", UserWarning)
            posterior = fit(entry.model, train, entry.method, key=key, **entry.options)
        seconds = time.perf_counter() - began
        scores = score(posterior, test)
        yield Result(entry.name, weights, scores, seconds, posterior, _note(posterior))


def _predict(posterior: Posterior, x: np.ndarray) -> Predictive:
    # more samples of a single network would be the same network again
    return posterior.predict(x, samples=1 if isinstance(posterior, Point) else SAMPLES, key=1)


def _note(posterior: Posterior) -> str:
    """What a reader must know of weighted draws: how few of them count."""
    if not isinstance(posterior, Draws) or posterior.log_weights is None:
        return ""
    size = effective(posterior.log_weights)
    return f"effective sample size {size:.1f} of {np.size(posterior.log_weights):,} candidates"


# -- the regression curve of Blundell et al. (2015)


def curve(x: np.ndarray, noise: np.ndarray | float = 0.0) -> np.ndarray:
    """y = x + 0.3 sin 2π(x + ε) + 0.3 sin 4π(x + ε) + ε: the size of the noise depends on x."""
    phase = 2 * np.pi * (x + noise)
    return x + 0.3 * np.sin(phase) + 0.3 * np.sin(2 * phase) + noise


def curve_data(n: int = POINTS, key: KeyLike = 0) -> Arrays:
    """``n`` points with x uniform on [0, 0.5] and ε ~ N(0, 0.02²).

    Example:
        >>> from posterax.demo import curve_data
        >>> x, y = curve_data(5, key=0)
        >>> x.shape, y.shape
        ((5, 1), (5,))
    """
    for_x, for_noise = jax.random.split(as_key(key))
    x = np.asarray(jax.random.uniform(for_x, (n,), maxval=0.5))
    return x[:, None], curve(x, 0.02 * np.asarray(jax.random.normal(for_noise, (n,))))


def curve_model(
    key: KeyLike = 0, *, heteroscedastic: bool = False, hidden_sizes: Sequence[int] = (50, 50)
) -> Model:
    """A ReLU network with standard Gaussian weights and one learned noise scale.

    A heteroscedastic one has a second output, which predicts the noise at every x.

    Example:
        >>> from posterax.demo import curve_model
        >>> curve_model(heteroscedastic=True).likelihood
        Gaussian(noise='predicted', initial=None)
    """
    network = networks.MLP(1, 1 + heteroscedastic, hidden_sizes, key=key)
    noise = "predicted" if heteroscedastic else "learned"
    return Model(network, priors.Gaussian(1.0), likelihoods.Gaussian(noise=noise))


def curve_method() -> infer.BayesByBackprop:
    """Bayes by Backprop for the curve: ``CURVE_EPOCHS`` epochs of batches of ``BATCH``."""
    return infer.BayesByBackprop(estimator="local", learning_rate=1e-2)


def curve_entries(key: KeyLike = 0, *, quick: bool = False) -> list[Entry]:
    """All methods on the curve; the exact ones with networks small enough for them."""
    model = curve_model(key)
    small, tiny = (curve_model(key, hidden_sizes=(width,)) for width in (10, 2))
    passes = {"epochs": 2 if quick else CURVE_EPOCHS, "batch_size": BATCH}
    nuts = infer.NUTS(chains=2, warmup=4 if quick else 500, max_doublings=6)
    blind = infer.ImportanceSampling(chains=256)
    entries = [
        Entry("maximum likelihood", model, infer.MaximumLikelihood(1e-2), passes),
        Entry("maximum a posteriori", model, infer.MaximumAPosteriori(1e-2), passes),
        Entry("Bayes by Backprop", model, curve_method(), passes),
        Entry("deep ensemble", model, infer.DeepEnsemble(5, learning_rate=1e-2), passes),
        Entry("NUTS", small, nuts, {"steps": 4 if quick else 100}),
        Entry("importance sampling", tiny, blind, {"steps": 2 if quick else 200}),
    ]
    if not quick:  # the same method again, and as long to compile
        predicted = curve_model(key, heteroscedastic=True)
        entries.insert(3, Entry("Bayes, noise predicted", predicted, curve_method(), passes))
    return entries


def curve_scores(posterior: Posterior, test: Arrays) -> dict[str, float]:
    """Scores inside the data, and the epistemic deviation inside and far outside of it."""
    x, y = test
    names = {"RMSE": "rmse", "NLL": "nll", "cover": "coverage"}
    scored = evaluate(_predict(posterior, x), y, only=tuple(names.values()), resamples=0)
    inside, outside = epistemic_deviation(posterior, (0.25, 1.0))
    scores = {short: scored[name].value for short, name in names.items()}
    return scores | {"sd 0.25": inside, "sd 1": outside}


def epistemic_deviation(posterior: Posterior, at: Sequence[float]) -> list[float]:
    """The epistemic standard deviation at each of these x."""
    x = np.resize(np.asarray(at, np.float32), POINTS)
    predictive = _predict(posterior, x[:, None])
    return np.sqrt(predictive.epistemic[: len(at)]).tolist()


def draw_curve(posteriors: dict[str, Posterior], data: Arrays, path: Path) -> None:
    """Save a picture with one panel a posterior, over a range wider than the data."""
    from matplotlib.figure import Figure

    from .plot import regression_band

    x = np.linspace(-0.3, 1.2, POINTS, dtype=np.float32)
    few = data[0][::2], data[1][::2]
    figure = Figure(figsize=(3.4 * len(posteriors), 3.7), layout="constrained")
    panels = figure.subplots(1, len(posteriors), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (name, posterior) in zip(panels, posteriors.items(), strict=True):
        predictive = _predict(posterior, x[:, None])
        regression_band(axes, x, predictive, data=few, truth=curve(x), title=name)
        axes.set(xlim=(x[0], x[-1]), ylim=(-1.25, 2.25), xlabel="x", xticks=(0, 0.25, 0.5, 0.75, 1))
        axes.label_outer()
    panels[0].set_ylabel("y")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, markerscale=2
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with written(path, binary=True) as file:
        figure.savefig(file, format="png", dpi=110)


# -- digits


def digits_data(split: int = 0) -> tuple[Arrays, Arrays, Arrays]:
    """scikit-learn's 8 × 8 digits in [0, 1]: training, validation and test data, stratified.

    Example:
        >>> from posterax.demo import digits_data
        >>> [len(y) for _, y in digits_data()]
        [1221, 216, 360]
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.2, stratify=y, random_state=split)
    x, x_held, y, y_held = train_test_split(x, y, test_size=0.15, stratify=y, random_state=split)
    return (x, y), (x_held, y_held), (x_test, y_test)


def digits_model(key: KeyLike = 0) -> Model:
    """A ReLU network from 64 pixels to 10 classes."""
    network = networks.MLP(64, 10, (100,), key=key)
    return Model(network, priors.Gaussian(2.0), likelihoods.Categorical())


def digits_method(temperature: float = 1.0) -> infer.BayesByBackprop:
    """Bayes by Backprop for the digits: ``DIGITS_EPOCHS`` epochs of batches of ``BATCH``."""
    return infer.BayesByBackprop(
        learning_rate=1e-2, rho_rate=1.0, schedule="cosine", estimator="weight",
        temperature=temperature,
    )  # fmt: skip


def digits_entries(key: KeyLike = 0, *, quick: bool = False) -> list[Entry]:
    """The methods that scale to the weights of this network."""
    model = digits_model(key)
    passes = {"epochs": 2 if quick else DIGITS_EPOCHS, "batch_size": BATCH}
    entries = [
        Entry("maximum likelihood", model, infer.MaximumLikelihood(1e-2), passes),
        Entry("maximum a posteriori", model, infer.MaximumAPosteriori(1e-2), passes),
        Entry("Bayes by Backprop", model, digits_method(), passes),
        # of 1, 0.3, 0.1, 0.03 and 0.01, the lowest NLL on validation data
        Entry("Bayes, temperature 0.1", model, digits_method(0.1), passes),
        Entry("deep ensemble", model, infer.DeepEnsemble(5, learning_rate=1e-2), passes),
    ]
    return entries[:1] if quick else entries


def digits_scores(posterior: Posterior, test: Arrays) -> dict[str, float]:
    """Error, NLL and expected calibration error."""
    x, y = test
    scored = evaluate(_predict(posterior, x), y, resamples=0)
    names = {"error": "error", "NLL": "nll", "ECE": "calibration_error"}
    return {short: scored[name].value for short, name in names.items()}
