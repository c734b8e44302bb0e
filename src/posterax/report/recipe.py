"""Settings to repeat the run: the call, the versions, the seeds, and what the file knows."""

import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from .._version import __version__
from ..tables.base import BayesianEstimator
from .page import Code, Section, facts
from .subject import SEED, Subject
from .words import cut

ELSEWHERE = (
    "command", "columns", "scores", "baseline", "chance", "history", "title", "versions", "verdict",
    "confusion", "threshold",
)  # fmt: skip


def section(subject: Subject, card: Mapping[str, Any]) -> Section:
    """Everything a second run needs, as tables and text to copy."""
    part = Section("settings", "Settings: to repeat this run")
    part.say(
        "The same call with the same rows, versions, kind of device and number of cores gives the "
        "same numbers to the bit."
    )
    if command := card.get("command"):
        line = command if isinstance(command, str) else " ".join(map(str, command))
        part.blocks.append(Code("Command", cut(line, 2000)))
    part.blocks.append(Code("Python", _call(subject)))
    settings = _settings(subject)
    folded = f"Show all {len(settings)} settings"
    part.blocks.append(facts(("Setting", "Value"), settings, "How it was fitted", folded))
    versions = card.get("versions")
    if not isinstance(versions, Mapping):
        versions = {"python": platform.python_version(), "posterax": __version__}
        versions |= {name: version(name) for name in ("jax", "numpy", "scikit-learn")}
    part.blocks.append(facts(("Software", "Version"), versions, "Versions"))
    rest = _flat({k: v for k, v in card.items() if k not in ELSEWHERE})
    if rest:
        folded = f"Show all {len(rest)} facts of the model's file" if len(rest) > 8 else ""
        caption = "What the model's file says"
        part.blocks.append(facts(("Fact", "Value"), rest, caption, folded))
    return part


def _flat(card: Mapping[str, Any]) -> dict[str, str]:
    """Facts one below the other; those inside another follow its name, empty ones are left out."""
    rows: dict[str, Any] = {}
    for name, value in card.items():
        inner = value if isinstance(value, Mapping) else None
        rows |= {str(name): value} if inner is None else {f"{name}, {k}": inner[k] for k in inner}
    return {name: _plain(value) for name, value in rows.items() if value is not None}


def _call(subject: Subject) -> str:
    fitted = subject.fitted
    if isinstance(fitted, BayesianEstimator):
        made = BaseEstimator.__repr__(fitted, N_CHAR_MAX=4000)
        return (
            f"import posterax as px\n\nmodel = px.{made}\nmodel.fit(X, y)\n"
            "model.predictive(X_new).interval(0.9)"
        )
    method = cut(subject.settings.get("method", "method"), 1000)
    return f"import posterax as px\n\nposterior = px.fit(model, (x, y), px.{method})"


def _settings(subject: Subject) -> dict[str, str]:
    record, fitted = subject.posterior.record, subject.fitted
    settings = ({} if record is None else {"method": record.method}) | subject.settings
    settings.pop("method_settings", None)  # the call above has them
    if isinstance(fitted, BayesianEstimator):
        given = fitted.get_params(deep=False)
        settings |= {k: v for k, v in given.items() if v is not None and k != "method"}
        seeds = {"first weights": "_network_seed", "fit": "_fit_seed", "draws": "_predict_seed"}
        settings |= {f"seed of the {name}": getattr(fitted, seed) for name, seed in seeds.items()}
    settings["weights with a posterior"] = f"{subject.posterior.model.bayesian_size:,}"
    settings["seed of this report"] = SEED
    return {str(name): _plain(value) for name, value in settings.items()}


def _plain(value: object) -> str:
    """A setting in one line; JSON for what is nested."""
    if not isinstance(value, Mapping | list | tuple):
        return str(value)
    with suppress(TypeError, ValueError):
        return json.dumps(
            value,
            ensure_ascii=False,
            default=lambda v: v.tolist() if isinstance(v, np.ndarray | np.generic) else str(v),
        )
    return str(value)
