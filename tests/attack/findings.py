"""What every attack shares: cases from the corpus, then new ones until the time is up; findings."""

import json
import shlex
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from tests.attack.guarded import Guarded

WIDE = 300.0  # seconds from which on there is time for every kind of case
CORPUS = Path(__file__).parent / "corpus"
Case = dict[str, Any]  # JSON


class Found(Exception):
    """Raised by a judge: what must not be, in a few words that are the same for all of its kind."""

    def __init__(self, what: str, detail: object = ""):
        super().__init__(what, str(detail))
        self.what, self.detail = what, " ".join(str(detail).split())[:300]


class Finding(NamedTuple):
    """One case that must not end as it did."""

    attack: str
    case: Case
    what: str
    detail: str

    def __str__(self) -> str:
        text = shlex.quote(json.dumps(self.case))
        said = f"{self.attack}: {self.what}" + (f" ({self.detail})" if self.detail else "")
        return f"{said}\n    python -m tests.attack {self.attack} --case {text}"


class Attack(Protocol):
    """A module of this folder."""

    GUARDED: bool  # whether its judge runs in a child whose time and memory are watched

    def cases(self, rng: np.random.Generator, scratch: Path, wide: bool) -> Iterator[Case]:
        """New cases without end, or all there are; ``wide`` when there is time for every kind."""

    def judge(self, case: Case, scratch: Path) -> None:
        """Try one case; raises ``Found`` where it must not end so."""


class Outcome(NamedTuple):
    """How an attack went."""

    tried: int
    findings: list[Finding]

    def summary(self) -> str:
        """A line for each kind of finding, with how often and one case that shows it."""
        kinds: dict[tuple[str, str], list[Finding]] = {}
        for found in self.findings:
            kinds.setdefault((found.attack, found.what), []).append(found)
        lines = [f"{self.tried} cases, {len(self.findings)} findings of {len(kinds)} kinds"]
        lines += [f"{len(group)} × {group[0]}" for group in kinds.values()]
        return "\n".join(lines)


def corpus(name: str) -> list[Case]:
    """Cases that were findings once."""
    file = CORPUS / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else []


def keep(findings: Iterable[Finding]) -> None:
    """Put one case of each new kind of finding into the corpus."""
    for found in findings:
        kept = corpus(found.attack)
        case = {"why": found.what, **found.case}
        if all(old.get("why") != found.what for old in kept):
            lines = ",\n".join(json.dumps(old) for old in [*kept, case])
            (CORPUS / f"{found.attack}.json").write_text(f"[\n{lines}\n]\n")


def run(
    name: str, *, seed: int = 0, seconds: float = 10.0, only: list[Case] | None = None,
    told: Callable[[Finding], Any] = lambda found: None,
) -> Outcome:  # fmt: skip
    """One attack: its corpus, and then new cases for so many seconds; or ``only`` these."""
    findings: list[Finding] = []
    tried = 0
    with tempfile.TemporaryDirectory(prefix="posterax-attack-") as folder:
        player = _Player(name, Path(folder), seed, seconds >= WIDE)
        try:
            for case, found in player.all_of(only, seconds):
                tried += 1
                if found is not None:
                    findings.append(Finding(name, case, found[0], found[1]))
                    told(findings[-1])
        finally:
            player.end()
    return Outcome(tried, findings)


class _Player:
    """Tries cases one after another, in a guarded child where the attack asks for one."""

    def __init__(self, name: str, scratch: Path, seed: int, wide: bool):
        self.name, self.scratch = name, scratch
        self.attack = import_module(f"tests.attack.{name}")
        guarded = self.attack.GUARDED
        self.guard = Guarded(f"tests.attack.{name}", scratch, seed, wide) if guarded else None
        self.drawn = iter(())
        if self.guard is None:
            self.drawn = self.attack.cases(np.random.default_rng([seed, 0]), scratch, wide)

    def all_of(self, only: list[Case] | None, seconds: float) -> Iterator[tuple[Case, Any]]:
        """Every case with what was found."""
        for case in corpus(self.name) if only is None else only:
            yield self._one(case)
        end = time.monotonic() + (0 if only is not None else seconds)
        while time.monotonic() < end:
            case, found = self._one(None)
            if case is None and found is None:
                return
            yield case, found

    def _one(self, case: Case | None) -> tuple[Any, Any]:
        if self.guard is not None:
            return self.guard.ask(case)
        case = case or next(self.drawn, None)
        try:
            if case is not None:
                self.attack.judge(case, self.scratch)
        except Found as found:
            return case, [found.what, found.detail]
        return case, None

    def end(self) -> None:
        if self.guard is not None:
            self.guard.end()
