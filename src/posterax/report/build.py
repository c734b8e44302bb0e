"""One self-contained page about a fitted model: no script, no request, nothing to install."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._util.atomic import write_atomic
from ..diagnostics.course import temperatures
from . import checks, classes, data, pruned, recipe, regression, rows
from . import scores as scoring
from .page import Finding, Level, Section
from .subject import LEVEL, Subject, make_subject
from .words import cut, many, percent

if TYPE_CHECKING:
    import jinja2

HERE = Path(__file__).parent
VERDICTS = {
    "good": ("✓", "Good to use"),
    "care": ("!", "Use with care"),
    "bad": ("✕", "Do not rely on it yet"),
}
ORDER = ("good", "care", "bad")
METHODS = {
    "BayesByBackprop": "Bayes by Backprop", "DeepEnsemble": "a deep ensemble",
    "MCDropout": "dropout that stays on", "MaximumAPosteriori": "maximum a posteriori (a point)",
    "MaximumLikelihood": "maximum likelihood (a point)", "ImportanceSampling":
    "importance sampling", "BlackBoxVI": "black-box variational inference",
    "Laplace": "Laplace's approximation", "SimulatedAnnealing": "simulated annealing",
    "Enumeration": "exact enumeration", "Conjugate": "exact conjugate inference",
}  # fmt: skip


def write_report(
    path: str | os.PathLike[str],
    estimator: Any,
    X: Any,
    y: Any,
    *,
    held_out: tuple[Any, Any] | None = None,
    scores: Mapping[str, Any] | None = None,
    card: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> Path:
    """Write a report about a fitted model: one HTML file that needs no network.

    What was fitted, the data, scores with intervals, calibration, uncertainty, the most and least
    certain rows, diagnostics, pruning, and the settings to repeat the run, each with plain words.
    The same arguments give the same bytes.

    Args:
        path: where the file goes. It is written whole or not at all.
        estimator: a fitted ``BayesianRegressor`` or ``BayesianClassifier``, or a posterior.
        X: the rows it was trained on, a data frame or an array.
        y: their targets. A name of theirs (a pandas ``Series``) is used in the text.
        held_out: ``(X, y)`` of rows it was *not* trained on. Without them everything is measured
            on the training rows, which flatters the model, and the report says so.
        scores: ``{name: (value, low, high)}``, in place of those measured here.
        card: facts about the run: ``"command"``, ``"versions"``, ``"columns"``, ``"target"``,
            ``"sha256"`` and whatever else; all of it is shown.
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
    page = render(estimator, X, y, held_out=held_out, scores=scores, card=card, title=title)
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file in it, such as report.html")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, page)
    return path


def render(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    held_out: tuple[Any, Any] | None = None,
    scores: Mapping[str, Any] | None = None,
    card: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> str:
    """The page of ``write_report`` as text."""
    target = (card or {}).get("target")
    subject = make_subject(estimator, X, y, held_out, None if target is None else str(target))
    return page_of(subject, scores, card, title)


def page_of(
    subject: Subject,
    scores: Mapping[str, Any] | None = None,
    card: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> str:
    """The page about a subject."""
    measured = scoring.measure(subject, scores)
    parts = _sections(subject, measured, card or {})
    found = [finding for part in parts for finding in part.findings]
    level = worst(found)
    sign, verdict = VERDICTS[level]
    kind = "Classification" if subject.classifies else "Regression"
    return _template().render(
        title=cut(title or f"{kind} of {subject.target}", 200),
        sentence=_sentence(subject),
        tiles=_tiles(subject, measured),
        level=level,
        sign=sign,
        verdict=verdict,
        findings=_ordered(found),
        signs={name: sign for name, (sign, _) in VERDICTS.items()},
        sections=parts,
        style=(HERE / "style.css").read_text(encoding="utf-8"),
        version=_version(),
    )


def _sections(
    subject: Subject, measured: dict[str, scoring.Score], card: Mapping[str, Any]
) -> list[Section]:
    if subject.classifies:
        middle = [classes.calibration(subject, measured), classes.uncertainty(subject)]
    else:
        middle = [regression.calibration(subject, measured), regression.uncertainty(subject)]
    return [
        data.section(subject, card),
        scoring.section(subject, measured),
        *middle,
        rows.section(subject),
        checks.section(subject),
        pruned.section(subject),
        recipe.section(subject, card),
    ]


def worst(found: list[Finding]) -> Level:
    """How serious the most serious finding is."""
    return max((finding.level for finding in found), key=ORDER.index, default="good")


def _ordered(found: list[Finding]) -> list[Finding]:
    """What is wrong first."""
    return sorted(found, key=lambda finding: -ORDER.index(finding.level))


def _sentence(subject: Subject) -> str:
    """What was fitted, in one plain sentence."""
    posterior, record = subject.posterior, subject.posterior.record
    name = record.method if record is not None else ""
    method = METHODS.get(name, name or type(posterior).__name__)
    members = getattr(posterior, "members", None)
    if type(posterior).__name__ == "GaussianMixture":
        method = f"Bayes by Backprop (an ensemble of {members})"
    method += _tempered(posterior)
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
    several = int(np.prod(np.shape(subject.y)[1:])) if subject.y.ndim > 1 else 1
    extra = (
        f" There are {several} targets: numbers and pictures are of the first, the NLL is of all."
        if several > 1
        else ""
    )
    return (
        f"A neural network with {many(posterior.model.bayesian_size, 'uncertain weight')}, fitted "
        f"to {many(len(subject.train_y), 'row')}{columns} by {method}, predicts {task}. "
        f"{judged}{extra}"
    )


def _tempered(posterior: Any) -> str:
    """How the KL was weighed, where not by 1."""
    if posterior.record is None or "kl" not in posterior.history:
        return ""
    weights = temperatures(posterior.record.settings.get("method"))
    low, high = f"{min(weights):.3g}", f"{max(weights):.3g}"
    if (low, high) == ("1", "1"):
        return ""
    return f" with its KL weighed by {low if low == high else f'{low} to {high}'}"


def _tiles(subject: Subject, measured: dict[str, scoring.Score]) -> list[dict[str, str]]:
    """The three numbers that matter."""
    if subject.classifies:
        names = ("Accuracy", "NLL", "Calibration error")
    else:
        names = ("RMSE", "R²", f"Coverage of {percent(LEVEL)}")
    tiles = []
    for name in names:
        score = measured[name]
        base = "" if score.baseline is None else f"baseline {score.write(score.baseline)}"
        if name.startswith("Coverage"):
            base = f"should be {percent(subject.promised, 0 if subject.promised == LEVEL else 1)}"
        if name == "Calibration error":
            base = "should be near 0"
        if name == "R²":
            base = "1 is all, 0 no more than the mean"
        tiles.append(
            {"name": name, "value": score.shown, "interval": score.interval, "beside": base}
        )
    return tiles


def _template() -> "jinja2.Template":
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("template.html.j2")


def _version() -> str:
    from .._version import __version__

    return __version__
