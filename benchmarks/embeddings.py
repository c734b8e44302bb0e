"""What networks gain from seeing numbers as waves or as fillings of bins, on validation rows.

    POSTERAX_DATA=… python -m benchmarks.embeddings "bike sharing" covertype --steps 8000

Of the training rows of a split a fifth is held out; test rows are never read. Cells are NLL / RMSE,
or the share of wrong labels, with targets standardised and the width of the noise set on the rows
held out, as the default of the estimators does.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import posterax as px
from benchmarks.tables_peers.data import CLASSES, load
from posterax.posteriors import Blend
from posterax.tables.columns import Columns
from posterax.tables.portfolio import numbers_in, portfolio
from posterax.tables.standardise import standardiser
from posterax.tables.targets import likelihood_for

SETS = ("bike sharing", "airfoil", "concrete", "power", "protein", "covertype", "adult")
MOST_ROWS = {"protein": 10_000, "covertype": 20_000, "adult": 10_000}
HIDDEN = (100, 100)
WIDTHS = np.geomspace(0.4, 4.0, 15)


class Rows(NamedTuple):
    """Rows to learn from, and rows to judge by."""

    x: np.ndarray
    y: np.ndarray
    new_x: np.ndarray
    new_y: np.ndarray
    classes: int


def rows(name: str, split: int) -> Rows:
    """Four fifths of the training rows, and the rest of them."""
    table = load(name)
    index = table.splits[min(split, len(table.splits) - 1)][0]
    index = np.random.default_rng(100 + split).permutation(index)[: MOST_ROWS.get(name)]
    held, kept = np.split(index, [len(index) // 5])
    columns = Columns.learn(table.rows(kept))
    x, new_x = columns.transform(table.rows(kept), learning=True), table.rows(held)
    scale, y = standardiser(x, np.ones(len(x))), table.y.copy()
    if table.task != CLASSES:
        y = (y - y[kept].mean()) / y[kept].std()
    x, new_x = (scale(v).astype("float32") for v in (x, columns.transform(new_x)))
    classes = int(table.y.max()) + 1 if table.task == CLASSES else 0
    return Rows(x, y[kept], new_x, y[held], classes)


def networks(data: Rows, outputs: int) -> dict[str, Callable[[], Any]]:
    """Ways to see numbers."""
    box, inputs = px.networks, data.x.shape[1]
    numbers = numbers_in(data.x)
    return {
        "numbers": lambda: box.MLP(inputs, outputs, HIDDEN, key=0),
        "bins": lambda: box.PiecewiseLinear(box.quantile_bins(data.x), outputs, HIDDEN, key=0),
        "waves": lambda: box.Periodic(inputs, outputs, HIDDEN, numbers=numbers, key=0),
    }


def judge(posterior: Any, data: Rows) -> tuple[float, float]:
    """NLL at the best width of the noise, and the error."""
    views = [Blend.of([posterior], [1.0], widths=[width]) for width in (1.0, *WIDTHS)]
    said = [view.predict(data.new_x, samples=64, key=0) for view in views]
    nll = min(-float(np.mean(one.log_prob(data.new_y))) for one in said)
    mean = np.asarray(said[0].mean)
    if data.classes:
        return nll, float(np.mean(mean.argmax(-1) != data.new_y))
    return nll, float(np.sqrt(np.mean(np.square(mean.reshape(-1) - data.new_y))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8000)
    given = parser.parse_args()
    for name in given.sets:
        for split in range(given.splits):
            data = rows(name, split)
            real = likelihood_for("real", data.y) if not data.classes else None
            likelihood = real or px.likelihoods.Categorical()
            parts = portfolio(10_000, classes=data.classes, trees=False).parts
            for part in parts:
                for way, make in networks(data, data.classes or 2).items():
                    model = px.Model(make(), part.prior, likelihood)
                    began = time.perf_counter()
                    options = {"steps": given.steps, "batch_size": 256, "progress": False}
                    posterior = px.fit(model, (data.x, data.y), part.method, key=0, **options)
                    seconds = time.perf_counter() - began
                    nll, error = judge(posterior, data)
                    line = f"{nll:.3f} / {error:.4f}  {seconds:.0f} s"
                    print(f"{name}, split {split}: {part.name}, {way}: {line}", flush=True)


if __name__ == "__main__":
    main()
