"""What the pages of all experiments share: figures with their errors, tables, pictures."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posterax._util.writing import written

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plus_minus(figure: Mapping[str, float], digits: int = 2, scale: float = 1.0) -> str:
    """A mean over the seeds, and its standard error where there is one.

    Example:
        >>> from experiments.pages import plus_minus
        >>> plus_minus({"mean": 12345.6, "error": 7.8}, 0)
        '12,346 ± 8'
        >>> plus_minus({"mean": 0.5, "error": float("nan")})
        '0.50'
    """
    error = "" if np.isnan(figure["error"]) else f" ± {scale * figure['error']:,.{digits}f}"
    return f"{scale * figure['mean']:,.{digits}f}{error}"


def percent(figure: Mapping[str, float]) -> str:
    """A share and its standard error.

    Example:
        >>> from experiments.pages import percent
        >>> percent({"mean": 0.0132, "error": 0.0002})
        '1.32 ± 0.02'
    """
    return plus_minus(figure, 2, 100)


def count(n: int, noun: str) -> str:
    """A number of things.

    Example:
        >>> from experiments.pages import count
        >>> count(1, "seed"), count(3, "seed")
        ('1 seed', '3 seeds')
    """
    return f"{n} {noun}{'s' * (n > 1)}"


def device(facts: Mapping[str, Any]) -> str:
    """Where a run was made: the name of its GPU, or the number of its cores."""
    return count(facts["cores"], "CPU core") if facts["device"] == "cpu" else facts["device"]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    """Markdown, with numbers to the right (``r``) and words to the left (``l``), as the first.

    Example:
        >>> from experiments.pages import table
        >>> print(table(["", "NLL"], [["nothing", "0.1"]]))
        | | NLL |
        | --- | ---: |
        | nothing | 0.1 |
    """
    marks = ["---:" if side == "r" else "---" for side in align or "l".ljust(len(heads), "r")]
    lines = ("| " + " | ".join(cells) + " |" for cells in (heads, marks, *rows))
    return "\n".join(line.replace("|  |", "| |") for line in lines)


def pyplot() -> Any:
    """matplotlib.pyplot, for files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def save(figure: "Figure", path: Path, dpi: int = 150) -> None:
    """A picture as a file, and no longer in memory."""
    with written(path, binary=True) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=dpi)
    pyplot().close(figure)
