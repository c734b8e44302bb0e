"""What the killer kills: fits that are saved on the way, one after another, in a process.

``python -m tests.attack.victim FOLDER TAG DEATH EVERY NAME…`` goes on where the last one was ended.
``DEATH`` is ``-``, or ``quick`` for those that are let live, or ``before 7`` or ``after 7``: it
kills itself around its seventh change of a name in the file system, where what is written becomes
what is there.
"""

import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import posterax as px
from tests.attack import fits

SLOW = 0.1  # seconds a look, so that a fit of a moment can be met on its way
LOGGED = ("point", "hmc", "validation")  # those that write a CSV file too
OPERATIONS = ("replace", "rename", "fsync", "link", "unlink")


def main(folder: str, tag: str, death: str, every: str, *names: str) -> None:
    """Run the fits that are not done."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also in the background
    warnings.simplefilter("ignore")
    jax.config.update("jax_disable_most_optimizations", True)  # it compiles more than it computes
    when, _, count = death.partition(" ")
    stepping = _Once(lambda: die(when, int(count)) if count else None)
    for name in names:
        place = Path(folder) / name
        place.mkdir(parents=True, exist_ok=True)
        out = place / f"bits{tag}.npz"
        if out.exists():
            continue
        logs = [px.callbacks.CSVWriter(place / "log.csv")] if name in LOGGED else []
        try:
            told = [*logs, stepping, fits.Slowly(0 if when == "quick" else SLOW)]
            posterior = fits.fit(
                name, place / "checkpoint", every=float(every), chunk=0.002, callbacks=told
            )
        except px.CheckpointError as error:
            print(f"refused {error}", flush=True)
            sys.exit(4)
        if posterior.record.interrupted:
            sys.exit(3)
        half = out.with_suffix(".half.npz")
        np.savez(half, **fits.bits(posterior))
        os.rename(half, out)


class _Once:
    """Says that the first fit has begun to step."""

    def __init__(self, act: Callable[[], Any]):
        self.act, self.said = act, False

    def __call__(self, event: Any) -> None:
        if not self.said:
            self.said = True
            print("stepping", flush=True)
            self.act()


def die(when: str, count: int) -> None:
    """From now on, the so many-th of the operations is the last."""
    left = [count]

    def mortal(operation: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            found = operation(*arguments, **options)
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return act

    for name in OPERATIONS:
        setattr(os, name, mortal(getattr(os, name)))


if __name__ == "__main__":
    main(*sys.argv[1:])
