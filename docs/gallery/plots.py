"""Every picture of px.plot on one page, from real fits.

    POSTERAX_DATA=… python docs/gallery/plots.py [--out FILE] [--seeds N]

Regression: the curve of Blundell et al. (2015), heteroscedastic, by a network that predicts its
noise. Classes: 5,000 MNIST digits, so that there is something to be unsure of, by three methods;
letters of notMNIST are the inputs that nobody has seen.
"""

import argparse
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import posterax as px
from posterax.demo import curve, curve_data

METHODS = {
    "one network": px.MaximumAPosteriori(),
    "deep ensemble": px.DeepEnsemble(5),
    "Bayes by Backprop": px.BayesByBackprop(learning_rate=3e-3),
}
Table = dict[str, dict[str, list[float]]]  # the scores of each method, a seed each
PLACES = np.linspace(-0.3, 0.9, 121).astype("float32")


class Digits(NamedTuple):
    """Pixels between 0 and 1, flat, and labels."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    letters: np.ndarray


class Fit(NamedTuple):
    """A posterior, and its predictives for test digits and for letters."""

    posterior: px.Posterior
    digits: px.Predictive
    letters: px.Predictive


def load(folder: Path) -> Digits:
    """5,000 digits to learn from, 2,000 to test with, 2,000 letters."""

    def pixels(x: np.ndarray) -> np.ndarray:
        return (x.reshape(len(x), -1) / 255).astype("float32")

    with np.load(folder / "mnist.npz") as mnist, np.load(folder / "notmnist_test.npz") as letters:
        return Digits(
            pixels(mnist["x_train"][:5000]), mnist["y_train"][:5000].astype(int),
            pixels(mnist["x_test"][:2000]), mnist["y_test"][:2000].astype(int),
            pixels(letters["x_test"][::5]),
        )  # fmt: skip


def fit_digits(data: Digits, name: str, key: int) -> Fit:
    """One method with one seed."""
    model = px.Model(
        px.networks.MLP(784, 10, (100,), key=key),
        px.priors.Gaussian(1.0), px.likelihoods.Categorical(),
    )  # fmt: skip
    posterior = px.fit(model, (data.x, data.y), METHODS[name], epochs=50, batch_size=100, key=key)
    return Fit(posterior, posterior.predict(data.x_test, key=1), posterior.predict(data.letters))


def scores(fit: Fit, data: Digits) -> dict[str, float]:
    """What the methods are compared by."""
    return {
        "NLL": px.metrics.negative_log_likelihood(fit.digits, data.y_test),
        "ECE": px.metrics.expected_calibration_error(fit.digits, data.y_test),
        "AUROC, letters": px.metrics.detection(fit.digits, fit.letters, score="total").auroc,
    }


def fit_curve() -> px.Posterior:
    """The curve, with a noise that the network predicts."""
    network = px.networks.MLP(1, 2, (30,), activation="silu", key=0)
    model = px.Model(
        network, px.priors.Gaussian(2.0, fan_in=True), px.likelihoods.Gaussian("predicted")
    )
    x, y = curve_data(200, key=0)
    return px.fit(model, (scaled(x), y), px.MCLMC(), steps=1000, key=0)


def scaled(x: Any) -> np.ndarray:
    """x as the network sees it."""
    return ((np.asarray(x, np.float32).reshape(-1, 1) - 0.25) / 0.15).astype("float32")


def draw(
    on_curve: px.Posterior, first: dict[str, Fit], table: Table, data: Digits, path: Path
) -> None:
    """Eleven panels, and a strip of digits."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 18), layout="constrained")
    rows = figure.subfigures(3, 1, height_ratios=[3.5, 1.15, 1.5])
    grid = rows[0].subplot_mosaic("abc;def;ghi") | rows[1].subplot_mosaic(
        "jkk", width_ratios=[1, 1, 1.2]
    )
    bayes, point = first["Bayes by Backprop"], first["one network"]

    x, y = curve_data(200, key=0)
    px.plot.regression_band(
        grid["a"], PLACES, on_curve.predict(scaled(PLACES)), data=(x, y), truth=curve(PLACES),
        title="regression_band",
    )  # fmt: skip
    grid["a"].set_ylim(-1.3, 1.8)
    x_new, y_new = curve_data(300, key=1)
    px.plot.quantile_calibration(
        grid["b"], on_curve.predict(scaled(x_new)), y_new, title="quantile_calibration"
    )
    px.plot.training(grid["c"], bayes.posterior, title="training")
    px.plot.reliability(
        grid["d"], point.digits, data.y_test, bins=10, title="reliability, one network"
    )
    px.plot.reliability(
        grid["e"], bayes.digits, data.y_test, bins=10, title="reliability, Bayes by Backprop"
    )
    px.plot.accuracy_rejection(
        grid["f"], {name: fit.digits for name, fit in first.items()}, data.y_test,
        title="accuracy_rejection",
    )  # fmt: skip
    px.plot.entropy_histogram(
        grid["g"], point.digits, point.letters, names=("digits", "letters"),
        title="entropy_histogram, one network",
    )  # fmt: skip
    px.plot.entropy_histogram(
        grid["h"], bayes.digits, bayes.letters, names=("digits", "letters"),
        title="entropy_histogram, Bayes by Backprop",
    )  # fmt: skip
    px.plot.signal_to_noise(grid["i"], bayes.posterior, title="signal_to_noise")
    px.plot.weights(grid["j"], bayes.posterior, where="layers.1.*", title="weights")
    px.plot.comparison(grid["k"], table, title="comparison")
    right = {"loc": "lower right", "bbox_to_anchor": (1, 0.185)}  # above the strip
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 3}
    legends = {
        "a": {"loc": "lower right"}, "b": right, "c": {"loc": "upper right"}, "d": right,
        "e": right, "f": {"loc": "lower right"}, "g": {}, "h": {}, "i": {"loc": "center left"},
        "j": below, "k": below,
    }  # fmt: skip
    for key, place in legends.items():
        grid[key].legend(**place, fontsize=7)
    unsure = np.argsort(-bayes.digits.total)[:8]
    sure = np.arange(8)
    shown = np.concatenate([sure, unsure])
    px.plot.images(
        rows[2], data.x_test[shown], bayes.posterior.predict(data.x_test[shown], key=1),
        data.y_test[shown], title="images: the first eight, and the eight of largest entropy",
    )  # fmt: skip
    figure.savefig(path, dpi=100)


def main() -> None:
    """Fit, draw, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".png"))
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    folder = os.environ.get("POSTERAX_DATA")
    if folder is None:
        raise SystemExit("POSTERAX_DATA must name the directory of mnist.npz and notmnist_test.npz")
    data = load(Path(folder))
    first, table = {}, {}
    for name in METHODS:
        fits = [fit_digits(data, name, key) for key in range(options.seeds)]
        found = [scores(fit, data) for fit in fits]
        first[name] = fits[0]
        table[name] = {key: [row[key] for row in found] for key in found[0]}
        print(name, {key: f"{np.mean(v):.4f}" for key, v in table[name].items()}, flush=True)
    draw(fit_curve(), first, table, data, options.out)


if __name__ == "__main__":
    main()
