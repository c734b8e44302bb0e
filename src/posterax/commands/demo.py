"""``posterax demo``: every method on a curve and on digits, then a table and its report."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import Refused, method_arguments, say
from .options import Quick, Seed
from .showing import console, table

if TYPE_CHECKING:
    from .. import demo as tasks

PERCENT = ("error", "cover")


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where the picture and the report go.")
    ] = Path("demo"),
    seed: Seed = 0,
    quick: Quick = False,
) -> None:
    """Fit every method to the paper's curve and to digits, then a table, with a report.

    About a minute and a half on two cores. The last line is the report's path.

    Examples:
        posterax demo
        posterax demo --out pictures --seed 1
    """
    from .. import demo as tasks

    few = slice(tasks.BATCH) if quick else slice(None)
    train, test = tasks.curve_data(key=2 * seed), tasks.curve_data(key=2 * seed + 1)
    train = (train[0][few], train[1][few])
    entries = tasks.curve_entries(seed, quick=quick)
    say(f"regression curve: {len(train[1]):,} points to fit, {len(test[1]):,} to test")
    results = list(tasks.run(entries, train, test, tasks.curve_scores, seed, say))
    legend = "cover: by the 90 % interval; sd: epistemic, at x inside and outside the data"
    _show("Regression curve", results, legend)
    picture = out / "regression.png"
    tasks.draw_curve({r.name: r.posterior for r in results[:3]}, train, picture)

    train, _, test = tasks.digits_data()
    train = (train[0][few], train[1][few])
    entries = tasks.digits_entries(seed, quick=quick)
    say(f"digits: {len(train[1]):,} images to fit, {len(test[1]):,} to test")
    results = list(tasks.run(entries, train, test, tasks.digits_scores, seed, say))
    _show("Digits", results, "ECE: expected calibration error")
    typer.echo(picture)
    typer.echo(_report(out / "diabetes.html", seed, quick=quick))


def _report(path: Path, seed: int, *, quick: bool) -> Path:
    """Fit scikit-learn's table of diabetes patients and write what a reader should know of it."""
    from sklearn.datasets import load_diabetes
    from sklearn.model_selection import train_test_split

    from ..report import write_report
    from ..tables import BayesianRegressor

    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    y = y.rename("progression")
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=seed)
    say(f"diabetes: {len(X)} patients to fit, {len(X_test)} to test, then a report")
    # a fifth of the estimator's own number: enough for this table
    arguments = method_arguments("bayes_by_backprop", quick=quick)
    regressor = BayesianRegressor(**{"steps": 1500, **arguments}, random_state=seed, verbose=False)
    regressor.fit(X, y)
    return write_report(
        path, regressor, X, y, held_out=(X_test, y_test), title="Progression of diabetes",
        card={"target": "progression", "data": "scikit-learn's load_diabetes", "seed": seed},
    )  # fmt: skip


def _show(title: str, results: Sequence["tasks.Result"], legend: str) -> None:
    """A table of results on standard output."""
    notes = [f"{r.name}: {r.note}" for r in results if r.note]
    caption = "\n".join([legend, "seconds: to fit, compilation included", *notes])
    rows = []
    for r in results:
        scores = [f"{v:.1%}" if k in PERCENT else f"{v:.3f}" for k, v in r.scores.items()]
        rows.append([r.name, f"{r.weights:,}", *scores, f"{r.seconds:.1f}"])
    page = console()
    page.print(table(title, ("method", "weights", *results[0].scores, "seconds"), rows, caption))
    page.print()


def reproduce(
    name: Annotated[str, typer.Argument(help="Name of an experiment.")] = "mnist",
    out: Annotated[str | None, typer.Option("--out", "-o", hidden=True)] = None,
    budget: Annotated[str | None, typer.Option(hidden=True)] = None,
    seeds: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Say where the experiments of the documentation are: in the repository.

    Examples:
        posterax reproduce mnist
        posterax reproduce uci
    """
    raise Refused(
        "the experiments are in the repository of posterax, not in the package: "
        f"run make reproduce NAME={name} there"
    )
