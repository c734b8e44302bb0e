"""Two hundred malformed or odd CSV files: each gives a model or one line, and leaves no litter."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import posterax as px
from posterax.cli import app

CASES, SEED = 200, 11
ROWS = 30


def table(random, rows=ROWS):
    """Cells of a good table: two numbers, a text and the target, which follows the first."""
    a, b = random.normal(size=(2, rows)).round(3)
    cells = [[str(u), str(v), str(random.choice(["x", "z"])), f"{2 * u + 0.25:.3f}"]
             for u, v in zip(a, b, strict=True)]  # fmt: skip
    return ["a", "b", "c", "y"], cells


def text(names, cells, delimiter=",", end="\n"):
    return end.join(delimiter.join(row) for row in [names, *cells]) + end


def put(cells, random, value, column=None):
    """A value into a cell anywhere but in the target, or in a column that is named."""
    row = int(random.integers(len(cells)))
    cells[row][int(random.integers(2)) if column is None else column] = value
    return row


# Every kind is a function of a generator; it returns the file's bytes, and a part of the refusal
# that must come, or None for a model that must be made.


def ragged_long(random):
    names, cells = table(random)
    row = int(random.integers(ROWS))
    cells[row] = [*cells[row], "1"]
    return text(names, cells).encode(), f"line {row + 2} has 5 cells where the header has 4"


def ragged_short(random):
    names, cells = table(random)
    row = int(random.integers(ROWS))
    cells[row] = cells[row][:-1]
    return text(names, cells).encode(), f"line {row + 2} has 3 cells where the header has 4"


def empty(random):
    return random.choice(["", "\n", "  \n\n \n", "\ufeff"]).encode(), "is empty"


def header_only(random):
    return random.choice(["a,b,c,y\n", "a,b,c,y", "\na,b,c,y\n\n"]).encode(), "no rows"


def one_column(random):
    _, cells = table(random)
    return text(["y"], [row[3:] for row in cells]).encode(), "one column"


def constant_target(random):
    names, cells = table(random)
    value = str(random.choice(["1", "0.5", "same", "True"]))
    return text(names, [[*row[:3], value] for row in cells]).encode(), "in every row"


def no_target_values(random):
    names, cells = table(random)
    value = str(random.choice(["", "NA", "?", "nan"]))
    return text(names, [[*row[:3], value] for row in cells]).encode(), "has no values"


def no_inputs(random):
    names, cells = table(random)
    value = str(random.choice(["", "NA", "7"]))
    rows = [[value] * 3 + row[3:] for row in cells]
    return text(names, rows).encode(), "no column is left"


def huge(random):
    names, cells = table(random)
    value = str(random.choice(["1e400", "-1e999", "inf", "1e200", "-Infinity"]))
    row = put(cells, random, value, int(random.choice([0, 1, 3])))
    return text(names, cells).encode(), f"in row {row + 1}"


def duplicate_header(random):
    names, cells = table(random)
    names[1] = str(random.choice(["a", " a", "a "]))
    return text(names, cells).encode(), "several columns named 'a'"


def missing_target_name(random):
    names, cells = table(random)
    names[3] = str(random.choice(["yy", "target", "价格", "y'"]))
    return text(names, cells).encode(), "no column 'y'"


def nul_bytes(random):
    content = bytearray(text(*table(random)).encode())
    content[int(random.integers(len(content)))] = 0
    return bytes(content), "NUL"


def binary(random):
    return random.bytes(int(random.integers(500, 5000))) + b"\0", ""


def open_quote(random):
    names, cells = table(random)
    put(cells, random, '"never closed', 2)
    return text(names, cells).encode(), "quote"


def text_after_quote(random):
    names, cells = table(random)
    put(cells, random, '"x"z', 2)
    return text(names, cells).encode(), "closing quote"


def very_long_field(random):
    names, cells = table(random)
    put(cells, random, "x" * 200_000, 2)
    return text(names, cells).encode(), "characters"


def few_rows(random):
    return text(*table(random, int(random.integers(1, 9)))).encode(), ""


def date_target(random):
    names, cells = table(random)
    rows = [[*row[:3], f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}"] for i, row in enumerate(cells)]
    return text(names, rows).encode(), "holds dates"


def many_classes(random):
    names, cells = table(random)
    return text(names, [[*r[:3], f"name{i}"] for i, r in enumerate(cells)]).encode(), "too many"


def broken_gzip(random):
    packed = gzip.compress(text(*table(random)).encode())
    return packed[: int(random.integers(20, len(packed) - 9))], "gzip"


def other_format(random):
    start = [b"PK\x03\x04", b"%PDF-1.7", b"PAR1", b"\xd0\xcf\x11\xe0"][int(random.integers(4))]
    return start + random.bytes(300), ""


def broken_utf16(random):
    return b"\xff\xfe" + text(*table(random)).encode("utf-16-le")[:-1] + b"\xd8\xd8", ""


# -- odd, and good


def latin1(random):
    names, cells = table(random)
    cells = [[*row[:2], "Zürich" if row[2] == "x" else "Genève", row[3]] for row in cells]
    return text(names, cells).encode(str(random.choice(["latin-1", "cp1252"]))), None


def utf16(random):
    return text(*table(random)).encode("utf-16"), None


def byte_order_mark(random):
    return text(*table(random)).encode("utf-8-sig"), None


def line_ends(random):
    return text(*table(random), end=str(random.choice(["\r\n", "\r"]))).encode(), None


def delimiters(random):
    return text(*table(random), delimiter=str(random.choice([";", "\t", "|"]))).encode(), None


def decimal_comma(random):
    names, cells = table(random)
    cells = [[cell.replace(".", ",") for cell in row] for row in cells]
    return text(names, cells, delimiter=";").encode(), None


def blank_lines(random):
    content = text(*table(random), end="\n" * int(random.integers(1, 3)))
    return ("\n" * int(random.integers(1, 4)) + content + "\n\n").encode(), None


def odd_headers(random):
    names, cells = table(random)
    odd = ["mean", "std", "השם", "🙂👍", "a b\u202ec", "=1+1", "<script>", "x" * 300, "[red]", ""]
    names[:2] = (str(name) for name in random.choice(odd, 2, replace=False))
    return text(names, cells).encode(), None


def formulas(random):
    names, cells = table(random)
    cells = [[*row[:2], {"x": "=HYPERLINK(1)", "z": "@SUM(A1)"}[row[2]], row[3]] for row in cells]
    return text(names, cells).encode(), None


def quoted(random):
    names, cells = table(random)
    cells = [[*row[:2], {"x": '"a, b"', "z": '"c\n""d"""'}[row[2]], row[3]] for row in cells]
    return text(names, cells).encode(), None


def money(random):
    names, cells = table(random)
    cells = [[f'"$ {1000 * (2 + abs(float(row[0]))):,.2f}"', *row[1:]] for row in cells]
    return text(names, cells).encode(), None


def mixed_types(random):
    names, cells = table(random)
    put(cells, random, str(random.choice(["unknown", "see note", "#REF!"])), 0)
    return text(names, cells).encode(), None


def dates(random):
    names, cells = table(random)
    form = ["{0}-{1:02d}-{2:02d}", "{2}.{1}.{0}", "{1}/{2}/{0}", "{0}{1:02d}{2:02d}"]
    form = form[int(random.integers(4))]
    for i, row in enumerate(cells):  # a week of May: its number of days is all that tells it
        row[1] = form.format(2024, 5, 13 + i % 7)
    return text(names, cells).encode(), None


def missing_cells(random):
    names, cells = table(random)
    for i in random.choice(ROWS, 5, replace=False):
        cells[i][3] = str(random.choice(["", "NA", "?"]))
    return text(names, cells).encode(), None


REFUSED = [
    ragged_long, ragged_short, empty, header_only, one_column, constant_target, no_target_values,
    no_inputs, huge, duplicate_header, missing_target_name, nul_bytes, binary, open_quote,
    text_after_quote, very_long_field, few_rows, date_target, many_classes, broken_gzip,
    other_format, broken_utf16,
]  # fmt: skip
GOOD = [
    latin1, utf16, byte_order_mark, line_ends, delimiters, decimal_comma, blank_lines, odd_headers,
    formulas, quoted, money, mixed_types, dates, missing_cells,
]  # fmt: skip
KINDS = [*REFUSED, *GOOD]
FITTED_ALWAYS = range(len(REFUSED), len(REFUSED) + len(GOOD), 5)  # a fit each: the others are slow


def cases():
    for number in range(CASES):
        kind = KINDS[number % len(KINDS)]
        slow = kind in GOOD and number not in FITTED_ALWAYS
        marks = [pytest.mark.slow] if slow else []
        yield pytest.param(number, id=f"{number}-{kind.__name__}", marks=marks)


@pytest.mark.parametrize("number", list(cases()))
@pytest.mark.usefixtures("hasty_module")
def test_a_model_or_one_line(number, tmp_path, monkeypatch):
    kind = KINDS[number % len(KINDS)]
    content, refusal = kind(np.random.default_rng([SEED, number]))
    monkeypatch.chdir(tmp_path)
    Path("data.csv").write_bytes(content)
    command = ["fit", "data.csv", "--target", "y", "--quick", "--out", "model.px"]
    command += ["--method", "map"]  # the quickest; it is the reading that is tried
    result = CliRunner().invoke(app, command)
    assert "Traceback" not in result.output, result.output
    assert Path("data.csv").read_bytes() == content
    left = sorted(path.name for path in tmp_path.iterdir())
    if refusal is None:
        assert result.exit_code == 0, result.stderr
        assert left == ["data.csv", "model.px"]
        estimator = px.load("model.px")
        assert estimator.card_["target"] == "y"
        assert len(estimator.columns_.used) >= 2
        return
    assert result.exit_code in (1, 2), (result.output, result.exception)
    assert result.stdout == ""
    assert left == ["data.csv"]
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert refusal in line


def test_generator_makes_two_hundred_of_every_kind():
    assert len(list(cases())) == CASES
    assert 4 * len(KINDS) <= CASES
