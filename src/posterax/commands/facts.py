"""The facts behind ``posterax explain``, as plain dictionaries."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._util.tree import human_bytes
from ..diagnostics.course import course_of, fresh
from ..errors import CheckpointError
from ..files.container import read
from ..posteriors import Draws, GaussianMixture, Posterior
from . import Refused

if TYPE_CHECKING:
    from ..metrics import Evaluation

# of a card: in other sections, or of no use here
ELSEWHERE = (*("scores", "baseline", "chance", "columns", "history", "kind", "settings", "notes"),)
CONSTANT_KINDS = {
    "Point": "one network: its weights are numbers, not distributions, so none of its uncertainty "
    "is epistemic",
    "PriorPosterior": "the prior itself: no data have been seen",
}


def facts(path: Path, data: Path | None, target: str | None, notes: list[str]) -> dict[str, Any]:
    """Everything that can be told of a file, by section.

    Args:
        path: the file.
        data: a table to score the model on, and to compare chains at.
        target: the table's target, where it is not the one the model was fitted to.
        notes: what was done on the way, a line each, is added here.
    """
    arrays, header = read(path)
    about: dict[str, Any] = {"is": _kind(header)}
    about["file"] = {
        "size": human_bytes(path.stat().st_size),
        "bytes": path.stat().st_size,
        "format": header.get("format"),
        "posterax": header.get("posterax"),
    }
    if "agent" in header:
        return about | _agent(arrays, header, path)
    if "posterior" not in header:
        raise Refused(f"{path}: a part of a checkpoint, not a model: resume its fit")
    held, why = _loaded(path)
    posterior: Posterior | None = getattr(held, "posterior_", held)
    try:
        about["model"] = _model(header, arrays, posterior)
        about["method"] = _method(header)
        about["training"] = _training(header, arrays)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise CheckpointError(f"{path}: damaged or inconsistent ({error!r})") from error
    estimator = header.get("estimator") or {}
    card = estimator.get("card") or {}
    about["data"] = _data(header, estimator, card)
    if hasattr(held, "columns_"):
        about["columns"] = held.columns_.summary()
    about["baseline"], about["chance"] = {}, {}
    if scores := card.get("scores"):
        about["held_out"] = scores
        for name in ("baseline", "chance"):
            about[name]["held_out"] = card.get(name) or {}
    inputs = None
    if data is not None:
        scored, inputs = _scores(held, data, target or card.get("target"), notes)
        if scored is not None:
            about["scores"] = scored.intervals()
            about["baseline"]["scores"] = scored.baselines()
            about["chance"]["scores"] = scored.chances()
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


def _agent(arrays: dict[str, Any], header: dict[str, Any], path: Path) -> dict[str, Any]:
    about = header["agent"]
    if not isinstance(about, dict):
        raise CheckpointError(f"{path}: damaged, its agent is not a dictionary")
    policy = about.get("policy")
    told = {
        "policy": policy.get("policy") if isinstance(policy, dict) else "of your own making",
        "settings": policy.get("with") if isinstance(policy, dict) else None,
        **{name: about.get(name) for name in ("features", "actions", "choices", "updates")},
        "posterior": header.get("posterior"),
    }
    text = "an agent is judged by its regret: px.bandits and docs/bandits.md"
    return {"model": told, "diagnostics": {"verdict": text}}


def _loaded(path: Path) -> tuple[Any, str | None]:
    """The estimator or posterior, or why there is none but what the header says."""
    from ..files.saved import load

    try:
        return load(path), None
    except CheckpointError as error:
        if "of your own making" not in str(error):
            raise
        return None, str(error).removeprefix(f"{path}: ")


# -- the sections


def _model(header: dict[str, Any], arrays: Any, posterior: Posterior | None) -> dict[str, Any]:
    from .._util.tree import tree_size

    stored = header["model"]
    network = stored["network"]
    told: dict[str, Any] = {
        "network": "of your own making" if network is None else network["name"],
        "settings": None if network is None else network["config"],
    }
    if posterior is not None:
        told["weights"] = tree_size(posterior.model.parameters)
        told["random_weights"] = posterior.model.bayesian_size
    else:  # the header has names; arrays of the family have sizes, with axes of draws in front
        told["arrays"] = list(stored["where"])
        told["stored_numbers"] = int(sum(np.size(a) for a in arrays.values()))
    told["not_random"] = None if stored["rest"] == "none" else stored["rest"]
    told["prior"] = _call(stored["prior"])
    told["likelihood"] = _call(stored["likelihood"])
    told["posterior"] = header["posterior"]
    told["numbers"] = header["dtype"]
    if header.get("evidence"):
        value, error, *kind = header["evidence"]
        told["log_evidence"] = f"{value:.4g} ± {error:.2g} nats ({(kind or ['estimate'])[0]})"
    return told


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
    told = {"name": header["method"], "written": written.replace("( ", "(").replace(" )", ")")}
    settings.pop("method_settings", None)
    pruning = settings.pop("pruning", None)
    settings.pop("thin", None) if settings.get("thin") == 1 else None
    # a regressor's last fit continues an earlier one: its steps are the last part's
    told |= {("last_steps" if k == "steps" else k): v for k, v in settings.items()}
    if pruning:
        kept = {k: v for k, v in pruning.items() if k not in ("curve", "sizes")}
        told["pruned"] = {k: v for k, v in kept.items() if k != "widths"}
        if "widths" in kept:
            told["pruned"] |= {"hidden before": kept["widths"][0], "now": kept["widths"][1]}
    return told


def _data(
    header: dict[str, Any], estimator: dict[str, Any], card: dict[str, Any]
) -> dict[str, Any]:
    fitted = estimator.get("fitted") or {}
    told: dict[str, Any] = {"examples": header["settings"].get("examples")}
    told["columns"] = fitted.get("n_features_in_")
    told["names"] = fitted.get("feature_names_in_")
    told["classes"] = fitted.get("classes_")
    told["updates"] = fitted.get("updates_") or None
    told |= {key: value for key, value in card.items() if key not in ELSEWHERE}
    return {key: value for key, value in told.items() if value not in (None, [], {})}


def _training(header: dict[str, Any], arrays: Any) -> dict[str, Any]:
    """The course of the fit in short."""
    history = {str(name): np.asarray(arrays[f"history/{name}"]) for name in header["history"]}
    terms = {n: v.astype(np.float64) for n, v in history.items() if v.ndim == 1 and len(v)}
    if not terms:
        return {}
    told: dict[str, Any] = {"steps": max(map(len, terms.values()))}
    told["finite"] = all(bool(np.isfinite(values).all()) for values in terms.values())
    for name in ("nll", "kl", "prior", "acceptance", "divergences"):
        if name in terms:
            tenth = max(len(terms[name]) // 10, 1)
            values = fresh(terms[name]) if name == "kl" else terms[name]
            told[f"last_{name}"] = float(values[-tenth:].mean())
    course = course_of(history, header["settings"])
    if course is not None:
        told["objective"], told["course"] = course.objective, course.rest().words
        told["unit"] = "nats a row, means over the last tenth of the steps"
    return told


def _scores(
    held: Any, data: Path, target: str | None, notes: list[str]
) -> "tuple[Evaluation | None, np.ndarray]":
    """Scores on a table, and its inputs as the posterior takes them."""
    from .scoring import score

    X, y, weight = table_for(held, data, target, notes)
    inputs = held.x_scaling_(held._check_inputs(X, reset=False))
    if y is None:
        return None, inputs
    return score(held, X, y, weight), inputs


def table_for(
    held: Any, data: Path, target: str | None, notes: list[str]
) -> tuple[Any, Any, np.ndarray | None]:
    """Rows for an estimator, read as at its fit, their targets, and how often each counts.

    Without a target's name there are no targets.
    """
    from .reading import read_for
    from .targets import rows_to_score

    if not hasattr(held, "posterior_"):
        raise Refused("--data is for estimators: a plain posterior does not know a table's columns")
    frame = read_for(held, data, notes)
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
    from ..networks.sparse import SparseNetwork
    from ..pruning import report, signal_to_noise

    told: dict[str, Any] = {}
    try:
        ratios = np.concatenate([r.ravel() for r in signal_to_noise(posterior).values()])
    except (ValueError, NotImplementedError):  # no deviations
        ratios = np.zeros(0)
    if len(ratios):
        low, middle, high = np.quantile(ratios[np.isfinite(ratios)], [0.1, 0.5, 0.9])
        told["signal_to_noise"] = {
            "median_db": float(middle),
            "tenth_percentile_db": float(low),
            "ninetieth_percentile_db": float(high),
            "below_0_db": f"{np.mean(ratios < 0):.1%} of the weights have |μ| < σ",
        }
        if isinstance(posterior, GaussianMixture | Draws):
            told["signal_to_noise"]["deviation"] = "over members or draws, which differ in weights"
    record = posterior.record
    if isinstance(posterior.model.network, SparseNetwork) or (
        record is not None and "pruning" in record.settings
    ):
        pruned = report(posterior)
        total, kept = sum(pruned.sizes.values()), sum(pruned.kept.values())
        told["pruning"] = {"weights_before": total, "weights_kept": kept}
        told["pruning"]["removed"] = f"{pruned.fraction:.1%}"
        if pruned.widths is not None:
            told["pruning"]["hidden_units"] = "{} → {}".format(*map(_short, pruned.widths))
    return told


# -- the verdict


def _diagnostics(
    posterior: Posterior | None, inputs: Any, training: dict[str, Any], header: dict[str, Any]
) -> dict[str, Any]:
    """Chains by their agreement; what was optimised by its course."""
    if posterior is not None:
        from ..diagnostics.diagnosis import diagnose

        try:
            diagnosis = diagnose(posterior, inputs)
        except ValueError as error:
            if "say nothing about mixing" in str(error):
                return {"ok": False, "verdict": str(error)}
        else:
            return {
                "ok": diagnosis.ok,
                "verdict": diagnosis.verdict,
                "numbers": diagnosis.to_dict(),
            }
    sentences, ok = [], True
    went = training.get("course", "")
    if training and not training["finite"]:
        ok = False
        sentences.append("The training met numbers that are not finite: lower the learning rate.")
    elif went.startswith("still"):
        ok = False
        help_ = "lower the learning rate" if "rising" in went else "more steps may help (--steps)"
        sentences.append(f"The training was {went}: {help_}.")
    elif went.startswith("level"):
        sentences.append(
            "The training was level at its end, and all of it is finite. A rate that falls to zero "
            "makes every run level, so that is no proof of convergence."
        )
    elif went:
        ok = False
        sentences.append(f"The training was {went}.")
    else:
        sentences.append("The file keeps no history of its training.")
    if header["posterior"] in CONSTANT_KINDS:
        sentences.append(f"It is {CONSTANT_KINDS[header['posterior']]}.")
    else:
        sentences.append(
            "There are no chains to compare: how close the approximation is, only held-out scores "
            "and calibration tell."
        )
    return {"ok": ok, "verdict": " ".join(sentences)}
