"""Mutated checkpoints: each is refused in a sentence, or the fit ends with the very same bits.

Where the digest was made right again (an *edit*), nobody can know what the numbers were: then the
posterior must be finite and of the same shapes.
"""

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import posterax as px
from tests.attack import fits, mutations
from tests.attack.files import refused_or
from tests.attack.findings import Case, Found

GUARDED = True
NAMES = ("hmc", "early stopping", "sgld", "laplace")
STATE = "state.safetensors"
PLACES = ("gone", "empty", "directory", "loop", "dangling", "unreadable", "of another", "swapped")


def cases(rng: np.random.Generator, scratch: Path, wide: bool) -> Iterator[Case]:
    """Changes to the files of a checkpoint: of a part at a time, or of which part is where."""
    while True:
        for name in rng.permutation(NAMES).tolist():
            folder = checkpoint(name, scratch)
            files = sorted(file.name for file in folder.iterdir() if "lock" not in file.name)
            for _ in range(8):
                file = STATE if rng.random() < 0.4 else str(rng.choice(files))
                case: Case = {"fit": name, "file": file}
                if rng.random() < 0.35:
                    how = PLACES[rng.integers(len(PLACES))]
                    yield case | {"do": ["place", how, str(rng.choice(files))]}
                else:
                    yield case | {"do": mutations.drawn(folder / file, rng)}


def checkpoint(name: str, scratch: Path) -> Path:
    """The folder that a fit leaves which breaks on its way; made when missing."""
    folder = scratch / "checkpoints" / name
    if not folder.exists():
        half = folder.with_name(f"{name}.half")
        shutil.rmtree(half, ignore_errors=True)
        with suppress(fits.Broken):
            _quiet(name, half, callbacks=[fits.StopAfter(9)])
        half.rename(folder)
    return folder


@cache
def expected(name: str) -> dict[str, np.ndarray]:
    """What the fit gives that nobody disturbs."""
    return fits.bits(_quiet(name, None))


def _quiet(name: str, folder: Path | None, **options: Any) -> px.Posterior:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few steps are enough
        return fits.fit(name, folder, **options)


def prepare(case: Case, scratch: Path) -> None:
    """The fit undisturbed, and the checkpoint of the broken one taken up as it is."""
    name = case["fit"]
    if name not in _prepared:
        expected(name)
        fits.bits(_quiet(name, _copied(checkpoint(name, scratch), scratch)))
        _prepared.add(name)


_prepared: set[str] = set()


def judge(case: Case, scratch: Path) -> None:
    """Go on from the changed checkpoint."""
    if "every" in case:
        _refuses_every(case["every"], scratch)
        return
    name, change = case["fit"], case["do"]
    original = checkpoint(name, scratch)
    folder = _copied(original, scratch)
    file = folder / case["file"]
    if not file.exists():
        return
    if change[0] == "place":
        _placed(file, change[1], folder / change[2])
    else:
        try:
            file.write_bytes(mutations.applied(original / case["file"], change))
        except (KeyError, IndexError, TypeError):  # a place that these files no longer have
            return
    posterior = refused_or(folder, lambda: _believed(name, folder))
    _clear(folder)
    if posterior is None:
        return
    found, wanted = fits.bits(posterior), expected(name)
    if change[0] in mutations.DAMAGE or change[0] == "place":
        wrong = fits.difference(found, wanted)
        if wrong is not None:
            raise Found("another posterior from a damaged checkpoint", f"{name}: {wrong}")
        return
    wrong = _malformed(found, wanted, _ends_elsewhere(name, change))
    if wrong is not None:
        raise Found("a malformed posterior from an edited checkpoint", f"{name}: {wrong}")


def _believed(name: str, folder: Path) -> Any:
    """The posterior, or nothing where numbers that can be believed lead a fit astray."""
    try:
        return _quiet(name, folder)
    except (px.NonFiniteError, px.StuckError):
        return None


def _refuses_every(every: Any, scratch: Path) -> None:
    try:
        _quiet("early stopping", scratch / "every", every=every)
    except (TypeError, ValueError) as error:
        if "every" not in str(error):
            raise Found("a refusal that does not name every=", error) from None
        return
    except Exception as error:
        raise Found(f"Checkpoint(every=…) raises {type(error).__name__}", error) from None
    finally:
        shutil.rmtree(scratch / "every", ignore_errors=True)
    raise Found("Checkpoint(every=…) takes what is no time", repr(every))


def _ends_elsewhere(name: str, change: list[Any]) -> bool:
    """Whether an edit that can be believed says when to stop, or changes what that depends on."""
    if change[0] == "header":
        believed = {"waited": int, "stopped": bool, "best_nll": float}
        return len(change[1]) == 1 and type(change[3]) is believed.get(change[1][0])
    return name == "early stopping" and not change[1].startswith("history")


def _malformed(
    found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], ends_elsewhere: bool
) -> str | None:
    """Why the result of an edited checkpoint is none of this fit at all."""
    for name, array in wanted.items():
        other = found.get(name)
        if other is None or other.ndim != array.ndim:
            return f"{name} is {'missing' if other is None else other.shape}"
        if other.shape != array.shape and not ends_elsewhere:
            return f"{name} is {other.shape}"
        if name == "history validation_nll":  # held-out data may be impossible
            other = other[other != np.inf]
        if other.dtype.kind == "f" and not np.all(np.isfinite(other)):
            return f"{name} is not finite"
    return None


def _placed(file: Path, how: str, other: Path) -> None:
    """Another thing where a file was."""
    content = file.read_bytes()
    if how == "swapped":
        file.write_bytes(other.read_bytes())
        other.write_bytes(content)
        return
    if how == "of another":
        file.write_bytes(other.read_bytes())
        return
    if how == "unreadable":
        file.chmod(0)
        return
    file.unlink()
    match how:
        case "empty":
            file.touch()
        case "directory":
            file.mkdir()
        case "loop":
            os.symlink(file, file)
        case "dangling":
            os.symlink(file.with_name("nowhere"), file)


def _copied(original: Path, scratch: Path) -> Path:
    folder = scratch / "resumed"
    _clear(folder)
    shutil.copytree(original, folder)
    return folder


def _clear(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
