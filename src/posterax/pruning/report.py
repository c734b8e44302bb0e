"""What a pruned posterior lost, and how that was found."""

from typing import Any, NamedTuple

from .._util.text import in_columns
from .._util.tree import named_leaves
from ..posteriors import Posterior
from .families import check_posterior, original_sizes, pruning_record


class Report(NamedTuple):
    """Weights by array, and the course of the search; ``print`` it for a table.

    ``kept`` and ``sizes`` are numbers of weights by array, those that are left and those of the
    network as it was before any pruning; ``curve`` holds (fraction, NLL) pairs of a search by
    ``tolerance``, in nats per validation example; ``widths`` are the hidden sizes before and after
    ``px.pruning.compact``.
    """

    kept: dict[str, int]
    sizes: dict[str, int]
    settings: dict[str, Any]
    curve: list[tuple[float, float]]
    widths: tuple[list[int], list[int]] | None

    @property
    def fraction(self) -> float:
        """The share of all weights that is removed."""
        return 1 - sum(self.kept.values()) / sum(self.sizes.values())

    def __str__(self) -> str:
        rows = [("array", "weights", "kept", "removed")]
        both = [(name, size, self.kept[name]) for name, size in self.sizes.items()]
        both.append(("all", sum(self.sizes.values()), sum(self.kept.values())))
        rows += [(n, f"{s:,}", f"{k:,}", f"{1 - k / max(s, 1):.1%}") for n, s, k in both]
        lines = in_columns(rows)
        if self.widths is not None:
            before, after = (", ".join(map(str, w)) for w in self.widths)
            lines.append(f"hidden units: {before} → {after}")
        if self.curve:
            lines += ["fraction   NLL (validation)"]
            lines += [f"{fraction:<9.4f}  {nll:.4f}" for fraction, nll in self.curve]
        return "\n".join(lines)


def report(posterior: Posterior) -> Report:
    """What a posterior lost by ``px.prune``, by array, and how the fraction was found.

    Args:
        posterior: pruned, and fine-tuned or loaded since. The course of a search, and what
            ``px.pruning.compact`` took away, go with the file and not with a new fit.

    Example:
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> model = curve_model(hidden_sizes=(4,))
        >>> posterior = px.fit(model, curve_data(16), px.BayesByBackprop(), steps=5, key=0)
        >>> report = px.pruning.report(px.prune(posterior, 0.5, scope="layer"))
        >>> report.kept["layers.0.weight"] + report.kept["layers.0.bias"], round(report.fraction, 2)
        (4, 0.46)
    """
    check_posterior(posterior)
    about = pruning_record(posterior)
    curve = [(float(f), float(nll)) for f, nll in about.pop("curve", [])]
    widths = about.pop("widths", None)
    about.pop("sizes", None)
    return Report(
        {name: int(w.size) for name, w in named_leaves(posterior.model.network.params).items()},
        original_sizes(posterior),
        about,
        curve,
        None if widths is None else (list(widths[0]), list(widths[1])),
    )
