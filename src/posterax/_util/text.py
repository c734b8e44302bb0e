"""Tables of plain text."""

from collections.abc import Sequence


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, its cells in columns: the first to the left, the others to the right.

    Example:
        >>> from posterax._util.text import in_columns
        >>> print("\\n".join(in_columns([("score", "value"), ("NLL", "0.5")])))
        score  value
        NLL      0.5
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
