"""``python -m tests.attack NAME --seed 7 --seconds 60``: one attack, or all of them in turn."""

import argparse
import json
import sys
import time
from importlib import import_module

from tests.attack.findings import keep, run

NAMES = ("files", "checkpoints", "cards", "writers", "kill", "identity")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("name", choices=(*NAMES, "all"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="for new cases, of all attacks")
    parser.add_argument("--case", type=json.loads, help="try this one case only, as printed")
    parser.add_argument("--keep", action="store_true", help="put new kinds into the corpus")
    asked = parser.parse_args()
    names = NAMES if asked.name == "all" else (asked.name,)
    only = None if asked.case is None else [asked.case]
    total = 0
    for name in names:
        began = time.monotonic()
        tell = lambda found: print(found, flush=True)  # noqa: E731
        outcome = run(
            name, seed=asked.seed, seconds=asked.seconds / len(names), only=only, told=tell
        )
        took = f"{time.monotonic() - began:.0f} s"
        if (tally := getattr(import_module(f"tests.attack.{name}"), "tally", None)) is not None:
            took += f", {tally()}"
        print(f"== {name}, {took}: {outcome.summary()}\n", flush=True)
        total += len(outcome.findings)
        if asked.keep:
            keep(outcome.findings)
    sys.exit(total > 0)


if __name__ == "__main__":
    main()
