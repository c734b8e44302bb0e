"""Runs as JSON lines, a file for each contender; the last line of a run counts."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results/tables-peers"


class Run(NamedTuple):
    """One fit."""

    set: str
    split: int
    contender: str
    seed: int
    rows: int = 0  # the most training rows; 0: all

    @classmethod
    def of(cls, line: dict[str, Any]) -> "Run":
        """The run that a stored line is of."""
        return cls(*(line[name] for name in cls._fields))


class Store:
    """A folder of ``CONTENDER.jsonl``; several programs may add to it at once."""

    def __init__(self, folder: str | Path = RESULTS):
        self.folder = Path(folder)

    def runs(self) -> dict[Run, dict[str, Any]]:
        """All there are."""
        found = {}
        for path in sorted(self.folder.glob("*.jsonl")):
            for line in path.read_text().splitlines():
                kept = json.loads(line)
                for part in ("fit", "predict"):  # the first runs have seconds of the wall alone
                    kept.setdefault(f"{part}_cpu", kept.get(f"{part}_seconds"))
                found[Run.of(kept)] = kept
        return found

    def add(self, run: Run, found: dict[str, Any]) -> None:
        """One line, written at once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps(run._asdict() | _short(found)) + "\n"
        path = self.folder / f"{run.contender}.jsonl"
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


def _short(value: Any) -> Any:
    """Seven digits are enough."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _short(part) for key, part in value.items()}
    return [_short(part) for part in value] if isinstance(value, list) else value
