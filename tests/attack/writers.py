"""Many writers of one path, and paths that are no plain files.

No write fails, no reader meets a damaged file, nothing stays beside it; a link stays a link, a
pipe a pipe, and where there is no room the old file is there as it was.
"""

import multiprocessing
import os
import resource
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tests.attack.findings import Case, Found

GUARDED = True
KINDS = ("posterior", "agent", "estimator", "recalibration", "text")
PLACES = ("link", "dangling link", "pipe", "device", "directory", "no directory", "full", "orphan")
WRITES = 3  # of each writer


def cases(rng: np.random.Generator, scratch: Path, wide: bool) -> Iterator[Case]:
    """Crowds of several sizes, and every place for every kind of file."""
    while True:
        yield {"crowd": 20, "processes": 20, "seed": int(rng.integers(2**31))}
        for place in rng.permutation(PLACES).tolist():
            yield {"place": place, "kind": str(rng.choice(KINDS))}
        yield {"learner": int(rng.integers(1, 8))}


def prepare(case: Case, scratch: Path) -> None:
    """What is written, made once."""
    if "place" in case:
        _made(case["kind"])
    elif "learner" in case:
        _made("learner")
    else:
        _made("posterior")


def judge(case: Case, scratch: Path) -> None:
    """Write, read, and look at what is left."""
    folder = scratch / "written"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if "crowd" in case:
        _crowd(case["crowd"], case["processes"], folder)
    elif "learner" in case:
        _learner(case["learner"], folder)
    else:
        _placed(case["place"], case["kind"], folder)


_kept: dict[str, Any] = {}


def _made(kind: str) -> Any:
    """Something to save."""
    import posterax as px
    from tests.attack import subjects
    from tests.data import make_format1 as first

    if kind not in _kept:
        if kind == "learner":
            model = px.Model(subjects.LINE, first.NORMAL, px.likelihoods.Gaussian(0.3))
            _kept[kind] = px.active.Learner(model, px.Conjugate(), first.X, first.Y)
        elif kind == "recalibration":
            _kept[kind] = subjects.RECALIBRATIONS["Spread"]()
        elif kind == "agent":
            _kept[kind] = px.bandits.load(first.HERE / "LinearThompson.px")
        elif kind == "estimator":
            _kept[kind] = px.load(first.HERE / "BayesianRegressor.px")
        elif kind == "posterior":
            _kept[kind] = px.load(first.HERE / "Point.px")
    return _kept.get(kind)


def _save(kind: str, path: Path) -> None:
    if kind == "text":
        from posterax._util.writing import write_file

        write_file(path, "a,b\n1,2\n" * 500)
    else:
        _made(kind).save(path)


def _read(kind: str, path: Path) -> Any:
    import posterax as px

    if kind == "text":
        return path.read_text()
    readers = {"agent": px.bandits.load, "recalibration": px.recalibrate.load}
    return readers.get(kind, px.load)(path)


# -- a crowd


def _crowd(threads: int, processes: int, folder: Path) -> None:
    """Threads save a posterior, processes write a file of the same form; one reads all the time."""
    path = folder / "one.px"
    _save("posterior", path)
    context = multiprocessing.get_context("forkserver")  # children without the threads of JAX
    context.set_forkserver_preload(["posterax.files.container"])
    failed: Any = context.Queue()
    others = [context.Process(target=_writes, args=(str(path), failed)) for _ in range(processes)]
    for other in others:
        other.start()
    damaged: list[str] = []
    ended = threading.Event()
    reader = threading.Thread(target=_reads, args=(path, damaged, ended))
    reader.start()
    with ThreadPoolExecutor(threads) as pool:
        errors = [e for e in pool.map(lambda i: _saves(path), range(threads)) if e]
    for other in others:
        other.join()
    ended.set()
    reader.join()
    while not failed.empty():
        errors.append(failed.get())
    if errors:
        raise Found("writes fail where many write", f"{len(errors)}, such as {errors[0]}")
    if damaged:
        raise Found("a damaged file in the final place", f"{len(damaged)}, such as {damaged[0]}")
    if len(left := os.listdir(folder)) != 1:
        raise Found("orphans of many writers", sorted(left))


def _saves(path: Path) -> str | None:
    try:
        for _ in range(WRITES):
            _save("posterior", path)
    except Exception as error:
        return repr(error)
    return None


def _writes(path: str, failed: Any) -> None:
    """What a process does that has not begun to compute."""
    from posterax.files.container import read, write

    try:
        arrays, header = read(Path(path))
        for _ in range(WRITES):
            write(Path(path), arrays, header)
    except Exception as error:
        failed.put(repr(error))


def _reads(path: Path, damaged: list[str], ended: threading.Event) -> None:
    from posterax.files.container import read

    while not ended.is_set():
        try:
            read(path)
        except Exception as error:
            damaged.append(repr(error))
        time.sleep(0.002)


# -- places


def _placed(place: str, kind: str, folder: Path) -> None:
    path = folder / "it"
    tries: dict[str, Callable[[], None]] = {
        "link": lambda: _linked(kind, path, exists=True),
        "dangling link": lambda: _linked(kind, path, exists=False),
        "pipe": lambda: _special(kind, path, lambda: os.mkfifo(path)),
        "device": lambda: _special(kind, path, lambda: os.mknod(path, _NULL, os.makedev(1, 3))),
        "directory": lambda: _refused(kind, path, path.mkdir),
        "no directory": lambda: _refused(kind, path / "below", lambda: path.write_text("file")),
        "full": lambda: _full(kind, path),
        "orphan": lambda: _swept(kind, path),
    }
    tries[place]()


_NULL = stat.S_IFCHR | 0o666


def _linked(kind: str, path: Path, *, exists: bool) -> None:
    target = path.with_name("target")
    if exists:
        _save(kind, target)
    path.symlink_to(target)
    _save(kind, path)
    if not path.is_symlink():
        raise Found("a link is replaced by a file", kind)
    _read(kind, target)


def _special(kind: str, path: Path, make: Callable[[], None]) -> None:
    """A pipe or a device: written into, or refused; in no case replaced."""
    try:
        make()
    except PermissionError:  # devices are for those who may make them
        return
    mode = stat.S_IFMT(path.stat().st_mode)
    if stat.S_ISFIFO(mode):  # somebody reads, so that opening it does not wait
        threading.Thread(target=path.read_bytes, daemon=True).start()
    try:
        _save(kind, path)
    except (ValueError, OSError) as error:
        if str(path) not in str(error):
            raise Found("a refusal to write that does not name the path", error) from None
    if stat.S_IFMT(path.lstat().st_mode) != mode:
        raise Found("a pipe or device is replaced by a file", kind)


def _refused(kind: str, path: Path, make: Callable[[], Any]) -> None:
    """A directory, or a place below a file: one line with the path."""
    make()
    try:
        _save(kind, path)
    except (ValueError, OSError) as error:
        text = str(error)
        if str(path) not in text and str(path.parent) not in text:
            raise Found("a refusal to write that does not name the path", error) from None
    except Exception as error:
        raise Found(f"saving raises {type(error).__name__}", error) from None
    else:
        raise Found("a file where there is none", kind)
    _nothing_beside(path.parent if path.parent.is_dir() else path.parent.parent, {"it"})


def _full(kind: str, path: Path) -> None:
    """No room for more than 100 bytes: an error of one line, and the old file."""
    _save(kind, path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        _save(kind, path)
    except (ValueError, OSError) as error:
        told = str(error)
    except Exception as error:
        told = ""
        raise Found(f"a full disk raises {type(error).__name__}", error) from None
    else:
        told = str(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    if path.read_bytes() != before:
        raise Found("a full disk destroys the old file", kind)
    if str(path) not in told:
        raise Found("a full disk that does not name the path", told)
    _nothing_beside(path.parent, {"it"})


def _swept(kind: str, path: Path) -> None:
    """What a writer left that is dead goes with the next write, whatever it was called."""
    from tests.attack.orphans import leave_behind

    _save(kind, path)
    leave_behind(path)
    _save(kind, path)
    _nothing_beside(path.parent, {"it"}, "orphans of a dead writer stay")


def _nothing_beside(folder: Path, known: set[str], what: str = "orphans of a failed write") -> None:
    left = sorted(set(os.listdir(folder)) - known)
    if left:
        raise Found(what, left)


def _learner(fails: int, folder: Path) -> None:
    """A learner whose save fails in the middle is the old one, or the new one: not half of each."""
    import posterax as px
    from tests.attack import subjects
    from tests.data import make_format1 as first

    old, place = _made("learner"), folder / "learner"
    old.save(place)
    old_said = subjects.numbers("learner", old)
    model = px.Model(subjects.LINE, first.NORMAL, px.likelihoods.Gaussian(0.3))
    new = px.active.Learner(model, px.Conjugate(), first.X[:5], -first.Y[:5])
    replace, left = os.replace, [fails]

    def failing(*arguments: Any, **options: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(28, "No space left on device", str(arguments[1]))
        replace(*arguments, **options)

    os.replace = failing
    try:
        new.save(place)
    except OSError:
        pass
    finally:
        os.replace = replace
    found = px.active.Learner.load(place, model, px.Conjugate())
    said = subjects.numbers("learner", found)
    whole = {len(old): old_said, len(new): subjects.numbers("learner", new)}
    if not np.array_equal(said, whole[len(found)]):
        raise Found("a learner of two halves", f"the {fails}. rename fails")
