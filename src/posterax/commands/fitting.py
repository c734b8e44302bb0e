"""From a table in a file to a model in a file: what ``posterax fit`` does."""

import re
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from .._util.interrupts import check_interrupt
from . import Refused, method_arguments, method_name, rebuild_command, say
from .writing import check_out, plain

if TYPE_CHECKING:
    from ..tables.timing import Clock
    from .splitting import Split
    from .targets import Parts, Task

Place = str | Path
Names = str | list[str] | None  # of columns: a list, or separated by commas


class Fitted(NamedTuple):
    """What ``fit_table`` gives back."""

    estimator: Any  # as it is in the file
    card: dict[str, Any]  # facts about it, also ``estimator.card_``
    out: Path
    report: Path | None


def fit_table(
    data: str | Path, target: str, *, task: str | None = None, method: str = "auto",
    quality: str | None = None, likelihood: str | None = None, out: Place | None = None,
    report: Place | None = None, test_fraction: float = 0.2, test: Place | None = None,
    split: str | None = None, time: str | None = None, group: str | None = None,
    ignore: Names = None, categorical: Names = None, numeric: Names = None, ordinal: Names = None,
    weight: str | None = None, seed: int = 0, epochs: float | None = None,
    steps: int | None = None, time_limit: float | None = None, refit: bool = True,
    force: bool = False, quick: bool = False, verbose: bool | None = None,
    tell: Callable[[str], None] = say,
) -> Fitted:  # fmt: skip
    """Fit a table in a file, score it on rows held out, and write the model.

    Args:
        data: a CSV or Parquet file, or a folder of files of one kind; it may be larger than memory.
        target: the column to predict.
        task: ``"regression"`` or ``"classification"`` (default: by the target).
        method: one of ``METHODS``.
        quality: of ``"auto"``: ``"fast"``, ``"good"`` (the default) or ``"best"``.
        likelihood: of numbers (default: by what they look like), as estimators have it.
        out: the model's file (default: the data's name with .px, in the working directory).
        report: where an HTML report goes.
        test_fraction: the share of rows to hold out; 0 for none.
        test: a file of rows to score on instead.
        split: how to hold rows out: ``"random"``, ``"time"`` (the last ones) or ``"group"``
            (whole groups); by default the last ones where a date orders the rows.
        time: the column of times, for the last rows.
        group: the column of groups, which is no input.
        ignore: columns to leave out.
        categorical: columns to take as categories.
        numeric: columns to take as numbers.
        ordinal: columns to take as ranks.
        weight: the column that says how often a row counts.
        seed: random seed.
        epochs: passes over the data.
        steps: steps of optimisation, or draws per chain, instead.
        time_limit: seconds for both fits together, from the call; where short, fewer steps.
        refit: learn from all rows once the scores are known.
        force: write over files that are none of ours.
        quick: a tiny network and a few steps, to try the command.
        verbose: show a progress bar (default: where someone is watching).
        tell: takes notes, a line each.
    """
    clock = start_clock(time_limit)
    from . import describing, scoring
    from .large import read_any
    from .splitting import choose_split
    from .targets import kinds_of

    began, method = perf_counter(), method_name(method)
    asked = {"split": split, "time": time, "group": group}
    _check_options(test_fraction, epochs, steps, seed, any(asked.values()), test)
    place, page = _places(data, test, out, report, force)
    # whatever is to be refused of a table is refused before the first note
    parts, kind, why = read_any(data, target, task, ignore, weight, seed, verbose)
    parts, way = choose_split(parts, **asked if test_fraction and not test else {"split": "random"})
    said: dict[str, Any] = {"categorical": categorical, "numeric": numeric, "ordinal": ordinal}
    kinds = kinds_of([*parts.X.columns], said)
    train, held = _rows(parts, kind, data, test, test_fraction, seed, way, kinds)
    budget: dict[str, Any] = {"epochs": epochs, "steps": steps}
    arguments = method_arguments(method, quick=quick, **budget)
    arguments |= how_to_fit(kind, columns=kinds, quality=quality, likelihood=likelihood)
    for note in parts.notes:
        tell(note)
    said |= {"quality": quality, "likelihood": likelihood, "time_limit": time_limit}
    settings = {**parts.names, "task": kind, "method": method, "seed": seed, **budget}
    settings |= _given(asked | said, test_fraction, test)
    card = describing.origin(data, parts, kind) | {"why": why, "settings": settings}
    written = {"task": task, "no_refit": not refit, "out": str(place)}
    card["command"] = rebuild_command("fit", data, **(settings | written))
    large = parts.source is not None  # so large that the few rows held out are not missed
    tell(f"fitting {parts.source.rows if large else len(train.y):,} rows by {method}")
    again = held is not None and refit and not (test or large)

    def learn(rows: "Parts") -> Any:
        timed = arguments | part_of(clock, 0.5 if again else 1.0)
        return scoring.learn(rows, kind, timed, seed, verbose)

    scored = estimator = learn(train)
    if held is not None:
        card["held_out"] = {"rows": len(held.y), "refit": again, "from": test and Path(test).name}
        card["held_out"] |= {} if test else way.facts()
        shipped = (lambda: learn(parts)) if again else None
        estimator = _judged(scored, train, held, card, tell, shipped)
    card |= describing.fitted(estimator)
    card["fitted"] = datetime.now(UTC).isoformat(timespec="seconds")
    card["seconds"] = round(perf_counter() - began, 2)
    estimator.card_ = scored.card_ = plain(card)
    _save(estimator, place)
    if page is not None:
        _report(page, scored, train, held, place)
    return Fitted(estimator, estimator.card_, place, page)


# -- parts of the work


def _given(options: dict[str, Any], share: float, test: Place | None) -> dict[str, Any]:
    """Options of a fit that were given, and which rows are held out."""
    held = {"test_fraction": None if test else share, "test": test and str(test)}
    return {k: v for k, v in options.items() if v} | held


def how_to_fit(kind: "Task", **options: Any) -> dict[str, Any]:
    """Arguments of an estimator that were given."""
    if options.get("likelihood") and kind == "classification":
        raise Refused("--likelihood is for numbers, and the target has classes", 2)
    return {name: value for name, value in options.items() if value}


def _check_options(
    test_fraction: float, epochs: float | None, steps: int | None, seed: int, splits: bool,
    test: Place | None,
) -> None:  # fmt: skip
    """Refuse numbers that mean nothing before any file is read."""
    if not 0 <= test_fraction < 1:
        raise Refused(f"--test-fraction must lie between 0 and 1, got {test_fraction:g}", 2)
    if epochs is not None and steps is not None:
        raise Refused("give --epochs or --steps, not both", 2)
    if epochs is not None and not 0 < epochs < float("inf"):
        raise Refused(f"--epochs must be a number above 0, got {epochs:g}", 2)
    check_seed(seed)
    if splits and (test or not test_fraction):
        raise Refused("--split, --time and --group need --test-fraction, and no --test", 2)


def start_clock(time_limit: float | None) -> "Clock | None":
    """The time of a command from here on, where it is limited."""
    if time_limit is None:
        return None
    if not 0 < time_limit < float("inf"):
        raise Refused(f"--time-limit must be a number of seconds above 0, got {time_limit:g}", 2)
    began = monotonic()
    from ..tables.timing import Clock

    clock = Clock(time_limit)
    clock.began = began  # before the import, which takes a while
    return clock


def part_of(clock: "Clock | None", part: float) -> dict[str, float]:
    """The argument of an estimator that is to have this part of a command's time."""
    return {} if clock is None else {"time_limit": float(f"{clock.seconds(part):.3g}")}


def check_seed(seed: int) -> None:
    """NumPy's generators take 32 bits."""
    if not 0 <= seed < 2**32:
        raise Refused(f"--seed must lie between 0 and {2**32 - 1:,}, got {seed:,}", 2)


def _rows(
    parts: "Parts", kind: "Task", data: Place, test: Place | None, share: float, seed: int,
    split: "Split", kinds: dict[str, str],
) -> tuple["Parts", "Parts | None"]:  # fmt: skip
    """Rows to learn from, and rows to score on, of the file ``test`` or a share of the same."""
    from ..tables.columns import Columns
    from .describing import sha256
    from .large import read_some
    from .splitting import hold_out
    from .targets import rows_to_score

    train, held = parts, None
    if share and not test:
        train, held = hold_out(parts, kind, share, seed, split)
    text = Columns.learn(train.X, kinds).text  # refuses a table without a usable column
    if test:
        if (digest := sha256(data)) is not None and digest == sha256(test):
            raise Refused(f"--test: {test} is the table to learn from; name other rows", 2)
        mark = parts.X.attrs.get("decimal")
        frame = read_some(test, parts.notes, text=text, decimal=mark, seed=seed)
        classes = sorted(set(parts.targets(kind).tolist())) if kind == "classification" else None
        # targets in the type of the fitted ones: 1 and "1" are the same
        held = rows_to_score(frame, test, parts.names["target"], parts.names["weight"], classes)
    return train, held


def _judged(
    scored: Any, train: "Parts", held: "Parts", card: dict[str, Any], tell: Callable[[str], None],
    again: Callable[[], Any] | None,
) -> Any:  # fmt: skip
    """Write scores and the verdict into the card; the estimator to ship, fitted ``again`` or not.

    What is shipped should be what was scored: where its intervals differ much, that is said.
    """
    from . import describing, scoring

    look, estimator = scoring.look(scored, train, held), scored
    card |= describing.scores(look.evaluation)
    if hasattr(scored, "classes_"):
        card |= describing.of_classes(look.outcome, scored.classes_)
    if again is not None:
        tell(f"scored on {len(held.y):,} held-out rows; fitting again, to all rows")
        estimator = again()
        card["drift"] = describing.drift(scored, estimator, held)
        if note := describing.drift_note(card["drift"]):
            card["notes"].append(note)
            tell(note)
    card["verdict"] = describing.verdict(look.findings(card.get("drift")))
    return estimator


def _save(estimator: Any, place: Path) -> None:
    """Write the model; where that fails, write it elsewhere: it may have taken hours to learn."""
    check_interrupt()
    try:
        return estimator.save(place)
    except OSError as error:
        failed = f"{place}: {error.strerror or error}"
    for folder in (tempfile.gettempdir(), Path.home(), Path.cwd()):
        kept = Path(folder) / f"{place.stem}-{secrets.token_hex(4)}.px"
        with suppress(OSError):
            estimator.save(kept)
            raise Refused(f"{failed}; the model is in {kept} instead")
    raise Refused(f"{failed}; nor could the model be written anywhere else")


def _report(path: Path, estimator: Any, train: "Parts", held: "Parts | None", model: Path) -> None:
    """The report is on the model that has not seen the rows held out."""
    from ..report import write_report

    card, kind = estimator.card_, estimator.card_["task"]
    try:
        check_interrupt()
        write_report(
            path, estimator, train.X, train.targets(kind),
            held_out=None if held is None else (held.X, held.targets(kind), held.weight),
            sample_weight=train.weight, scores=card.get("scores"), card=card,
            title=f"{card['target']}, from {card['data']['file']}",
        )  # fmt: skip
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped: the model is in {model}, without a report") from None
    except (OSError, ValueError) as error:
        raise Refused(f"the model is in {model}, but not its report: {error}") from error


def _places(
    data: Place, test: Place | None, out: Place | None, report: Place | None, force: bool
) -> tuple[Path, Path | None]:
    """Where model and report go, checked before anything is computed."""
    stem = re.sub(r"(\.(csv|tsv|txt|parquet))?(\.gz)?$|^-$", "", Path(data).name)
    named = (stem or "model") + ".px"
    inputs = [data, test]
    place = check_out(named if out is None else out, "model", inputs=inputs, force=force)
    if report is None:
        return place, None
    page = check_out(report, "report", option="--report", inputs=inputs, force=force)
    if page.resolve() == place.resolve():
        raise Refused("--report and --out name the same file", 2)
    return place, page
