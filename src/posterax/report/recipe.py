"""Settings to repeat the run: the call, the versions, the seeds, and what the file knows."""

import json
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from ..tables.base import BayesianEstimator
from .page import Code, Section, Table, facts
from .subject import SEED, Subject
from .words import cut

PACKAGES = ("posterax", "jax", "numpy", "scikit-learn")
ELSEWHERE = (
    "command", "columns", "scores", "baseline", "chance", "history", "title", "versions"
)  # fmt: skip


def section(subject: Subject, card: Mapping[str, Any]) -> Section:
    """Everything a second run needs, as tables and text to copy."""
    part = Section("settings", "Settings: to repeat this run")
    part.say(
        "The same call with the same rows, versions and kind of device gives the same numbers to "
        "the bit."
    )
    command = card.get("command")
    if command:
        line = command if isinstance(command, str) else " ".join(map(str, command))
        part.blocks.append(Code("Command", cut(line, 2000)))
    part.blocks.append(Code("Python", _call(subject)))
    part.blocks.append(_settings_table(subject))
    told = card.get("versions")
    versions = told if isinstance(told, Mapping) else _versions()
    part.blocks.append(facts(("Software", "Version"), dict(versions), "Versions"))
    rest = _flat({k: v for k, v in card.items() if k not in ELSEWHERE})
    if rest:
        folded = f"Show all {len(rest)} facts of the model's file" if len(rest) > 8 else ""
        caption = "What the model's file says"
        part.blocks.append(facts(("Fact", "Value"), rest, caption, folded))
    return part


def _flat(card: Mapping[str, Any]) -> dict[str, str]:
    """Facts one below the other; those inside another follow its name, empty ones are left out."""
    found: dict[str, str] = {}
    for name, value in card.items():
        if isinstance(value, Mapping):
            found |= {f"{name}, {k}": _plain(v) for k, v in value.items() if v is not None}
        elif value is not None:
            found[str(name)] = _plain(value)
    return found


def _settings_table(subject: Subject) -> Table:
    found = _settings(subject)
    return facts(
        ("Setting", "Value"), found, "How it was fitted", f"Show all {len(found)} settings"
    )


def _call(subject: Subject) -> str:
    fitted = subject.fitted
    if isinstance(fitted, BayesianEstimator):
        made = BaseEstimator.__repr__(fitted, N_CHAR_MAX=4000)
        return (
            f"import posterax as px\n\nmodel = px.{made}\nmodel.fit(X, y)\n"
            "model.predictive(X_new).interval(0.9)"
        )
    settings = subject.posterior.record.settings if subject.posterior.record is not None else {}
    method = cut(settings.get("method", "method"), 1000)
    return f"import posterax as px\n\nposterior = px.fit(model, (x, y), px.{method})"


def _settings(subject: Subject) -> dict[str, Any]:
    record = subject.posterior.record
    found: dict[str, Any] = {}
    if record is not None:
        found["method"] = record.method
        found |= {str(k): _plain(v) for k, v in record.settings.items()}
    fitted = subject.fitted
    if isinstance(fitted, BayesianEstimator):
        changed = fitted.get_params(deep=False)
        found |= {k: _plain(v) for k, v in changed.items() if v is not None and k != "method"}
        seeds = {"first weights": "_network_seed", "fit": "_fit_seed", "draws": "_predict_seed"}
        found |= {
            f"seed of the {name}": str(getattr(fitted, place))
            for name, place in seeds.items()
            if hasattr(fitted, place)
        }
    found["weights with a posterior"] = f"{subject.posterior.model.bayesian_size:,}"
    found["seed of this report"] = SEED
    return found


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a source tree
            continue
    return found


def _plain(value: Any) -> str:
    """A setting in one line; JSON for what is nested."""
    if isinstance(value, Mapping | list | tuple):
        try:
            return json.dumps(value, ensure_ascii=False, default=_item)
        except (TypeError, ValueError):
            return str(value)
    return str(value)


def _item(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)
