"""The facts behind ``posterax explain``, as plain dictionaries."""

from pathlib import Path
from typing import Any

import numpy as np

from .._util.tree import human_bytes, tree_size
from ..diagnostics.course import course_of
from ..diagnostics.diagnosis import diagnose, of_draws
from ..errors import CheckpointError
from ..files.bounds import field
from ..files.container import read, refusing
from ..files.saved import load
from ..networks.sparse import SparseNetwork
from ..posteriors import Draws, GaussianMixture, Posterior, Record
from ..pruning import report, signal_to_noise
from ..tables.cards import check_card
from . import Refused
from .explain import column_importance
from .reading import as_fitted, read_table
from .scoring import score
from .targets import rows_to_score

# of a card: in other sections, or of no use here
ELSEWHERE = (
    *("models", "scores", "baseline", "chance", "columns", "history", "kind", "settings", "notes"),
)
KINDS = {
    "Point": "It is one network: its weights are numbers, not distributions, so none of its "
    "uncertainty is epistemic.",
    "PriorPosterior": "It is the prior itself: no data have been seen.",
}
NO_CHAINS = (
    "There are no chains to compare: how close the approximation is, only held-out scores and "
    "calibration tell."
)


def facts(
    path: Path, data: Path | None, target: str | None, notes: list[str], *, importance: bool = False
) -> dict[str, Any]:
    """Everything that can be told of a file, by section.

    Args:
        path: the file.
        data: a table to score the model on, and to compare chains at.
        target: the table's target, where it is not the one the model was fitted to.
        notes: what was done on the way, a line each, is added here.
        importance: of the columns, on the rows of ``data``.
    """
    arrays, header = read(path)
    size = path.stat().st_size
    with refusing(path):
        about: dict[str, Any] = {"is": _kind(header), "file": {"size": human_bytes(size)}}
        about["file"] |= {"bytes": size} | {key: header.get(key) for key in ("format", "posterax")}
        if "agent" in header:
            return about | _agent(header)
    if "posterior" not in header:
        raise Refused(f"{path}: a part of a checkpoint, not a model: resume its fit")
    held, why = _loaded(path)
    posterior: Posterior | None = getattr(held, "posterior_", held)
    with refusing(path):
        about["model"] = _model(header, arrays, posterior)
        about["method"] = _method(header)
        about["training"] = _training(header, arrays)
        estimator = header.get("estimator", {})
        card = check_card(estimator.get("card", {}))
        about["data"] = _data(header, estimator, card)
    if hasattr(held, "columns_"):
        about["columns"] = held.columns_.summary()
    about["baseline"], about["chance"] = {}, {}
    if scores := card.get("scores"):
        about["held_out"] = scores
        for name in ("baseline", "chance"):
            about[name]["held_out"] = card.get(name, {})
    inputs = None
    if data is not None:
        known = target or card.get("target")
        optional = importance and target is None  # without targets there still is an effect
        X, y, weight = table_for(held, data, known, notes, optional=optional)
        inputs = held.x_scaling_(held._check_inputs(X, reset=False))
        if y is not None:
            scored = score(held, X, y, weight)
            about["scores"] = scored.intervals()
            about["baseline"]["scores"] = scored.baselines()
            about["chance"]["scores"] = scored.chances()
        if importance:
            about["importance"] = column_importance(held, X, y, weight)
    if posterior is not None:
        about |= _weights(posterior)
    about["diagnostics"] = _diagnostics(posterior, inputs, about["training"], header)
    if why:
        about["diagnostics"]["not_loaded"] = why
    return about


# -- what it is


def _kind(header: dict[str, Any]) -> str:
    if "agent" in header:
        return "a bandit agent (px.bandits.load)"
    posterior = header.get("posterior", "nothing")
    if "estimator" in header:
        return f"an estimator, {header['estimator'].get('name')}, with a {posterior} (px.load)"
    return f"a posterior, {posterior} (px.load)"


def _agent(header: dict[str, Any]) -> dict[str, Any]:
    about = field(header, "agent", dict)
    policy = about.get("policy")
    if not isinstance(policy, dict):
        policy = {"policy": "of your own making"}
    model = {"policy": policy.get("policy"), "settings": policy.get("with")}
    model |= {name: about.get(name) for name in ("features", "actions", "choices", "updates")}
    text = "an agent is judged by its regret: px.bandits and docs/bandits.md"
    return {
        "model": model | {"posterior": header.get("posterior")}, "diagnostics": {"verdict": text}
    }  # fmt: skip


def _loaded(path: Path) -> tuple[Any, str | None]:
    """The estimator or posterior, or why there is none but what the header says."""
    try:
        return load(path), None
    except CheckpointError as error:
        if "of your own making" not in str(error):
            raise
        return None, str(error).removeprefix(f"{path}: ")


# -- the sections


def _model(header: dict[str, Any], arrays: Any, posterior: Posterior | None) -> dict[str, Any]:
    stored = header["model"]
    network = stored["network"] or {"name": "of your own making", "config": None}
    about: dict[str, Any] = {"network": network["name"], "settings": network["config"]}
    if posterior is not None:
        about["weights"] = tree_size(posterior.model.parameters)
        about["random_weights"] = posterior.model.bayesian_size
    else:  # the header has names; arrays of the family have sizes, with axes of draws in front
        about["arrays"] = list(stored["where"])
        about["stored_numbers"] = int(sum(np.size(a) for a in arrays.values()))
    about["not_random"] = None if stored["rest"] == "none" else stored["rest"]
    about |= {part: _call(stored[part]) for part in ("prior", "likelihood")}
    about |= {"posterior": header["posterior"], "numbers": header["dtype"]}
    if header.get("evidence"):
        value, error, *kind = header["evidence"]
        about["log_evidence"] = f"{value:.4g} ± {error:.2g} nats ({(kind or ['estimate'])[0]})"
    return about


def _call(node: Any) -> str:
    """A prior or likelihood as it is written in Python."""
    if node is None:
        return "of your own making"
    if node["name"] == "ByPart":
        parts = [f"{pattern}: {_call(prior)}" for pattern, prior in node["parts"]]
        return f"ByPart({', '.join(parts)}; others: {_call(node['default'])})"
    arguments = [f"{k}={_short(v)}" for k, v in node.get("arguments", {}).items()]
    return f"{node['name']}({', '.join(arguments)})"


def _short(value: Any, most: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def _method(header: dict[str, Any]) -> dict[str, Any]:
    settings = dict(header["settings"])
    written = " ".join(str(settings.pop("method", header["method"])).split())  # on one line
    about = {"name": header["method"], "written": written.replace("( ", "(").replace(" )", ")")}
    pruning = dict(settings.pop("pruning", None) or {})
    for name, value in settings.items():
        if name != "method_settings" and (name, value) != ("thin", 1):
            # a regressor's last fit continues an earlier one: its steps are the last part's
            about["last_steps" if name == "steps" else name] = value
    if pruning:
        widths = pruning.pop("widths", None)
        about["pruned"] = {k: v for k, v in pruning.items() if k not in ("curve", "sizes")}
        if widths:
            about["pruned"] |= {"hidden before": widths[0], "now": widths[1]}
    return about


def _data(
    header: dict[str, Any], estimator: dict[str, Any], card: dict[str, Any]
) -> dict[str, Any]:
    fitted = estimator.get("fitted") or {}
    about = {
        "examples": header["settings"].get("examples"),
        "columns": fitted.get("n_features_in_"),
        "names": fitted.get("feature_names_in_"),
        "classes": fitted.get("classes_"),
        "updates": fitted.get("updates_") or None,
        **{key: value for key, value in card.items() if key not in ELSEWHERE},
    }
    return {key: value for key, value in about.items() if value not in (None, [], {})}


def _training(header: dict[str, Any], arrays: Any) -> dict[str, Any]:
    """The course of the fit in short."""
    record = Record(
        settings=header["settings"],
        terms={name: arrays[f"history/{name}"] for name in header["history"]},
        reports={
            name: (arrays[f"report_steps/{name}"], arrays[f"reports/{name}"])
            for name in header.get("reports", [])
        },
    )
    course = course_of(record)
    terms = {n: v.astype(np.float64) for n, v in record.history.items() if v.ndim == 1 and len(v)}
    if course is not None and course.kl is not None and "kl" in terms:
        terms["kl"] = course.kl
    if not terms:
        return {}
    about: dict[str, Any] = {"steps": max(map(len, terms.values()))}
    about["finite"] = all(bool(np.isfinite(values).all()) for values in terms.values())
    for name in ("nll", "kl", "prior", "acceptance", "divergences"):
        if name in terms:
            tenth = max(len(terms[name]) // 10, 1)
            about[f"last_{name}"] = float(terms[name][-tenth:].mean())
    if course is not None:
        about["objective"], about["course"] = course.objective, course.rest().words
        about["unit"] = "nats a row, means over the last tenth of the steps"
    return about


def table_for(
    held: Any, data: Path, target: str | None, notes: list[str], *, optional: bool = False
) -> tuple[Any, Any, np.ndarray | None]:
    """Rows for an estimator, read as at its fit, their targets, and how often each counts.

    Without a target's name there are no targets, and where they are ``optional`` the table may
    lack them.
    """
    if not hasattr(held, "posterior_"):
        raise Refused("--data is for estimators: a plain posterior does not know a table's columns")
    frame = read_table(data, notes, least=1, **as_fitted(held))
    alike = {str(name).strip().lower() for name in frame.columns}
    if target is not None and optional and target.strip().lower() not in alike:
        notes.append(f"{data}: has no {target!r}: no rise of the NLL, only the effect on the mean")
        target = None
    if target is None:
        return frame, None, None
    weight = getattr(held, "card_", {}).get("settings", {}).get("weight")
    if weight is not None and weight not in frame.columns:
        notes.append(f"{data}: has no {weight!r}, the weight at fit: all rows count alike")
        weight = None
    parts = rows_to_score(frame, data, target, weight, getattr(held, "classes_", None))
    notes += parts.notes
    return parts.X, parts.y, parts.weight


def _weights(posterior: Posterior) -> dict[str, Any]:
    """How much is known of the weights, and how many were pruned."""
    about: dict[str, Any] = {}
    try:
        ratios = np.concatenate([r.ravel() for r in signal_to_noise(posterior).values()])
        ratios = ratios[np.isfinite(ratios)]
    except (ValueError, NotImplementedError):  # no deviations
        ratios = np.zeros(0)
    if len(ratios):
        names = ("median_db", "tenth_percentile_db", "ninetieth_percentile_db")
        quantiles = np.quantile(ratios, [0.5, 0.1, 0.9]).tolist()
        about["signal_to_noise"] = dict(zip(names, quantiles, strict=True)) | {
            "below_0_db": f"{np.mean(ratios < 0):.1%} of the weights have |μ| < σ"
        }
        if isinstance(posterior, GaussianMixture | Draws):
            about["signal_to_noise"]["deviation"] = "over members or draws, which differ in weights"
    record = posterior.record
    settings = record.settings if record is not None else {}
    if isinstance(posterior.model.network, SparseNetwork) or "pruning" in settings:
        pruned = report(posterior)
        about["pruning"] = {
            "weights_before": sum(pruned.sizes.values()),
            "weights_kept": sum(pruned.kept.values()),
            "removed": f"{pruned.fraction:.1%}",
        }
        if pruned.widths is not None:
            about["pruning"]["hidden_units"] = "{} → {}".format(*map(_short, pruned.widths))
    return about


# -- the verdict


def _diagnostics(
    posterior: Posterior | None, inputs: Any, training: dict[str, Any], header: dict[str, Any]
) -> dict[str, Any]:
    """Chains by their agreement; what was optimised by its course."""
    if posterior is not None and of_draws(posterior):
        try:
            judged = diagnose(posterior, inputs)
            return {"ok": judged.ok, "verdict": judged.verdict, "numbers": judged.to_dict()}
        except ValueError as error:  # too few draws
            return {"ok": False, "verdict": str(error)}
    went = training.get("course", "")
    ok = not went or went.startswith("level")
    if training and not training["finite"]:
        ok = False
        verdict = "The training met numbers that are not finite: lower the learning rate."
    elif went.startswith("still"):
        advice = "lower the learning rate" if "rising" in went else "more steps may help (--steps)"
        verdict = f"The training was {went}: {advice}."
    elif went.startswith("level"):
        verdict = (
            "The training was level at its end, and all of it is finite. A rate that falls to zero "
            "makes every run level, so that is no proof of convergence."
        )
    else:
        verdict = f"The training was {went}." if went else "The file has no training history."
    return {"ok": ok, "verdict": f"{verdict} {KINDS.get(header['posterior'], NO_CHAINS)}"}
