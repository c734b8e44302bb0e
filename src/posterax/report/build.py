"""One self-contained page about a fitted model: no script, no request, nothing to install."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from .._util.writing import write_file
from .._version import __version__
from ..diagnostics.course import temperatures
from ..metrics import Evaluation
from ..posteriors import GaussianMixture, Posterior
from ..tables.base import BayesianEstimator
from . import checks, classes, data, influence, recipe, regression
from . import scores as scoring
from .page import Finding
from .settled import settled
from .subject import Subject, make_subject
from .verdict import VERDICTS, judge, worst
from .words import TEXTS, cut, many

HERE = Path(__file__).parent


def write_report(
    path: str | os.PathLike[str],
    estimator: BayesianEstimator | Posterior,
    X: PyTree,
    y: ArrayLike,
    *,
    held_out: Sequence[PyTree] | None = None,
    sample_weight: ArrayLike | None = None,
    scores: Mapping[str, Any] | None = None,
    card: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> Path:
    """Write a report about a fitted model: one HTML file that needs no network.

    What was fitted, the data, scores with intervals, calibration, uncertainty, the most and least
    certain rows, what drives the predictions (of an estimator), diagnostics, pruning, and the
    settings to repeat the run, each with plain words.
    The same arguments give the same bytes.

    Args:
        path: where the file goes. It is written completely or not at all.
        estimator: a fitted ``BayesianRegressor`` or ``BayesianClassifier``, or a posterior.
        X: the rows it was trained on, a data frame or an array.
        y: their targets. A name of theirs (a pandas ``Series``) is used in the text.
        held_out: ``(X, y)`` of rows it was *not* trained on, or ``(X, y, weight)``. Without them
            everything is measured on the training rows, which flatters the model, and the report
            says so.
        sample_weight: how often each training row counts.
        scores: ``{name: (value, low, high)}``, in place of those measured here.
        card: facts about the run: ``"command"``, ``"versions"``, ``"columns"``, ``"target"``,
            ``"sha256"`` and whatever else; all of it is shown. A ``"drift"`` is how many times as
            wide the intervals became by a second fit to all rows, and is judged.
        title: of the page.

    Returns:
        The path.

    Example:
        >>> import tempfile, numpy as np
        >>> import posterax as px
        >>> from posterax.report import write_report
        >>> X = np.linspace(-1, 1, 40)[:, None]
        >>> model = px.BayesianRegressor("maximum_a_posteriori", steps=5).fit(X, X[:, 0])
        >>> path = write_report(tempfile.mkdtemp() + "/report.html", model, X, X[:, 0])
        >>> path.read_text()[:15]
        '<!doctype html>'
    """
    page = render(
        estimator, X, y, held_out=held_out, sample_weight=sample_weight, scores=scores, card=card,
        title=title,
    )  # fmt: skip
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, page)
    return path


def render(
    estimator: BayesianEstimator | Posterior, X: PyTree, y: ArrayLike, *,
    held_out: Sequence[PyTree] | None = None, sample_weight: ArrayLike | None = None,
    scores: Mapping[str, Any] | None = None, card: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> str:  # fmt: skip
    """The page of ``write_report`` as text."""
    target = (card or {}).get("target")
    named = None if target is None else str(target)
    subject = make_subject(estimator, X, y, held_out, named, sample_weight)
    return page_of(subject, scores, card, title)


def page_of(
    subject: Subject,
    scores: Mapping[str, Any] | None = None,
    card: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> str:
    """The page about a subject."""
    import jinja2

    card = card or {}
    measured = scoring.measure(subject, scores, card)
    findings = judged(subject, measured, card)
    kind = classes if subject.classifies else regression
    sections = [
        data.section(subject, card),
        scoring.section(subject, measured),
        kind.calibration(subject, findings),
        kind.uncertainty(subject),
        data.certain_rows(subject),
        *influence.sections(subject),
        checks.section(subject, findings),
        checks.pruning(subject),
        recipe.section(subject, card),
    ]
    task = "Classification" if subject.classifies else "Regression"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("template.html.j2").render(
        title=cut(title or f"{task} of {subject.target}", 200),
        sentence=_sentence(subject),
        tiles=_tiles(subject, measured),
        level=worst(findings),
        verdicts=VERDICTS,
        findings=findings,
        sections=sections,
        style=(HERE / "style.css").read_text(encoding="utf-8"),
        version=__version__,
    )


def judged(subject: Subject, measured: Evaluation, card: Mapping[str, Any]) -> list[Finding]:
    """The verdict on a subject, as the command line has it."""
    drift = card.get("drift")
    return judge(
        subject.outcome, measured, subject.train_y, train_weight=subject.train_weight,
        held_out=subject.held_out, unknown=subject.unknown,
        fit=settled(subject.posterior, subject.outcome.predictive),
        drift=float(drift) if isinstance(drift, int | float) else None,
    )  # fmt: skip


def _sentence(subject: Subject) -> str:
    """What was fitted, in one plain sentence."""
    posterior, record = subject.posterior, subject.posterior.record
    name = record.method if record is not None else ""
    method = TEXTS["methods"].get(name, name or type(posterior).__name__)
    if isinstance(posterior, GaussianMixture):
        method = f"Bayes by Backprop (an ensemble of {posterior.members})"
    method += _tempered(subject)
    columns = "" if subject.train_x is None else f" and {many(subject.train_x.shape[1], 'column')}"
    task = {
        "classification": f"{subject.target}, one of {len(subject.classes)} classes",
        "counts": f"the count {subject.target}",
    }.get(subject.kind, subject.target)
    judged = (
        f"It is judged by {many(subject.tested, 'row')} that it had not seen."
        if subject.held_out
        else "It is judged by the rows it was trained on."
    )
    several = int(np.prod(np.shape(subject.y)[1:]))
    if several > 1:
        judged += f" There are {several} targets: scores are of all of them, pictures of the first."
    return (
        f"A neural network with {many(posterior.model.bayesian_size, 'uncertain weight')}, fitted "
        f"to {many(len(subject.train_y), 'row')}{columns} by {method}, predicts {task}. "
        f"{judged}"
    )


def _tempered(subject: Subject) -> str:
    """How the KL was weighed, where not by 1."""
    if subject.posterior.record is None or "kl" not in subject.posterior.history:
        return ""
    weights = temperatures(subject.settings)
    low, high = (f"{end(weights, default=1.0):.3g}" for end in (min, max))
    if (low, high) == ("1", "1"):
        return ""
    return f" with its KL weighed by {low if low == high else f'{low} to {high}'}"


def _tiles(subject: Subject, measured: Evaluation) -> list[dict[str, str]]:
    """The three numbers that matter, and what to compare them with."""
    beside = {
        "coverage": f"should be {subject.promise}",
        "calibration_error": "should be near 0",
        "r2": "1 is all, 0 no more than the mean",
    }
    names = ("rmse", "r2", "coverage")
    if subject.classifies:
        names = ("accuracy", "nll", "calibration_error")
    tiles = []
    for name in names:
        value, ends, base = scoring.written(name, measured)
        tile = {"name": scoring.SHOWN[name]["title"], "value": value, "interval": ends}
        tiles.append(tile | {"beside": beside.get(name, f"baseline {base}")})
    return tiles
