"""One function writes files: what is there already, faults of the disk, many writers at once."""

import ast
import io
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import posterax as px
from posterax._util import writing
from posterax._util.writing import append_file, check_writable, write_file, written
from posterax.files import container
from posterax.files.tensors import TYPES, write_tensors
from tests import faults

ROOT = Path(__file__).parents[1]
root = pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")


def prior():
    network = px.networks.MLP(1, 1, (2,), key=0)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
    return px.prior_posterior(model, [[0.0]])


# -- what is there already


def test_a_posterior_is_written_into_a_pipe_or_a_device(tmp_path):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    prior().save(pipe)
    reader.join(10)
    (tmp_path / "file").write_bytes(got[0])
    assert px.load(tmp_path / "file").targets == prior().targets
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    prior().save("/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_full_device_says_so():
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        prior().save("/dev/full")


@pytest.mark.parametrize("relative", [True, False])
def test_a_link_stays_a_link(tmp_path, relative, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "model.px", tmp_path / "latest.px"
    link.symlink_to("there/model.px" if relative else target)
    for _ in range(2):  # where it names nothing yet, and where it does
        prior().save(link)
        assert link.is_symlink()
        assert not target.is_symlink()
        assert px.load(link).targets == px.load(target).targets
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["latest.px", "model.px", "there"]


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a directory; name a file in it"):
        prior().save(tmp_path)


def test_modes_are_those_of_the_umask_or_of_the_file_before(tmp_path):
    before = os.umask(0o027)
    try:
        prior().save(tmp_path / "new.px")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new.px").stat().st_mode) == 0o640
    (tmp_path / "new.px").chmod(0o600)
    prior().save(tmp_path / "new.px")
    assert stat.S_IMODE((tmp_path / "new.px").stat().st_mode) == 0o600


@root
def test_what_is_read_only_is_refused_before_the_work(tmp_path):
    file = tmp_path / "mine"
    file.write_text("mine")
    file.chmod(0o400)
    for write in (check_writable, lambda path: write_file(path, "new")):
        with pytest.raises(PermissionError, match="mine"):
            write(file)
    assert file.read_text() == "mine"
    (tmp_path / "shut").mkdir(mode=0o500)
    with pytest.raises(PermissionError, match=r"shut/new"):
        check_writable(tmp_path / "shut" / "new")


def test_a_check_leaves_nothing(tmp_path):
    check_writable(tmp_path / "new")
    check_writable("/dev/null")
    assert not list(tmp_path.iterdir())
    with pytest.raises(OSError, match="nothing was written"):
        check_writable(tmp_path / "none" / "new")


def test_a_name_as_long_as_a_name_may_be(tmp_path):
    write_file(tmp_path / ("é" * 127), "long")
    assert [len(p.name.encode()) for p in tmp_path.iterdir()] == [254]


# -- the format


def test_the_bytes_are_those_of_the_library():
    rng, arrays = np.random.default_rng(0), {}
    for name in TYPES:
        dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
        arrays[f"b/{name}"] = (2 * rng.random((3, 2))).astype(dtype)
        arrays[f"a/{name}"], arrays[f"c/{name}"] = np.ones((), dtype), np.ones((0, 4), dtype)
    file, text = io.BytesIO(), {"posterax": 'é "quoted"'}
    write_tensors(file, arrays, text)
    assert file.getvalue() == safetensors.numpy.save(arrays, metadata=text)


def test_arrays_in_another_order_of_bytes_or_of_axes():
    arrays = {
        "big": np.arange(5, dtype=">f4"),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "every other": np.arange(10)[::2],
    }
    file = io.BytesIO()
    write_tensors(file, arrays, {})
    found = safetensors.numpy.load(file.getvalue())
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
    with pytest.raises(TypeError, match="words: arrays of <U1 cannot be saved"):
        write_tensors(file, {"words": np.array(["a"])}, {})


def test_a_system_that_takes_a_few_bytes_at_a_time(tmp_path):
    arrays = {"w": np.arange(1000.0), "b": np.ones(3, np.int8)}
    with faults.short():
        container.write(tmp_path / "a", arrays, {"format": 1})
        write_file(tmp_path / "b", "é" * 999)
        append_file(tmp_path / "b", "à" * 999)
    found, _ = container.read(tmp_path / "a")
    np.testing.assert_array_equal(found["w"], arrays["w"])
    assert (tmp_path / "b").read_text() == "é" * 999 + "à" * 999


# -- writers that were killed, and many at once

KILLED = """
import sys, time
from posterax._util.writing import written
with written(sys.argv[1]) as file:
    file.write("half")
    file.flush()
    print("there", flush=True)
    time.sleep(60)
"""


def partials(folder):
    return [p.name for p in folder.iterdir() if p.name.endswith(".partial")]


def test_the_partial_file_of_a_killed_writer_goes_with_the_next(tmp_path):
    path = tmp_path / "model.px"
    write_file(tmp_path / ".model.px.4711.partial", "of an older posterax")
    writer = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout.readline() == "there\n"
    write_file(path, "whole")
    assert len(partials(tmp_path)) == 1  # of the one who is still writing
    writer.kill()
    writer.wait()
    writer.stdout.close()
    write_file(path, "whole again")
    assert [p.name for p in tmp_path.iterdir()] == ["model.px"]
    assert path.read_text() == "whole again"


def test_partial_files_that_are_removed_before_they_are_locked(tmp_path, monkeypatch):
    """Who looks for orphans may come between the making of a file and its lock."""
    lock, tries = writing.try_lock, []

    def late(descriptor):
        tries.append(descriptor)
        if len(tries) == 1:
            for path in tmp_path.glob(".*.partial"):
                path.unlink()
        return False if len(tries) == 2 else lock(descriptor)

    monkeypatch.setattr(writing, "try_lock", late)
    write_file(tmp_path / "a", "whole")
    assert len(tries) == 3
    assert [p.read_text() for p in tmp_path.iterdir()] == ["whole"]


WRITERS = """
import sys, threading
from posterax._util.writing import written
path, threads, writes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
failed = []
def work(number):
    try:
        for i in range(writes):
            with written(path) as file:
                for _ in range(50):
                    file.write(f"{number:03d}{i:03d}" * 100)
                    file.flush()
    except Exception as error:
        failed.append(error)
workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
[w.start() for w in workers]
[w.join() for w in workers]
sys.exit(str(failed) if failed else 0)
"""


@pytest.mark.parametrize(
    ("processes", "threads", "writes"),
    [(4, 10, 3), pytest.param(10, 4, 50, marks=pytest.mark.slow)],
)
def test_many_writers_of_one_path(tmp_path, processes, threads, writes):
    """No write fails, no read finds a damaged file, nothing is left beside."""
    path = tmp_path / "one.txt"
    write_file(path, "000000" * 5000)
    command = [sys.executable, "-c", WRITERS, str(path), str(threads), str(writes)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(processes)]
    reads = 0
    while any(process.poll() is None for process in running):
        text = path.read_text()
        assert text == text[:6] * 5000
        reads += 1
        time.sleep(1e-3)
    for process in running:
        assert process.returncode == 0, process.stderr.read()
        process.stderr.close()
    assert reads > 10
    assert [p.name for p in tmp_path.iterdir()] == ["one.txt"]


# -- nobody writes in another way

ALWAYS = {"write_text", "write_bytes", "save_file", "touch", "to_parquet", "to_pickle", "tofile"}
INTO = {"savefig", "save", "savez", "savez_compressed", "savetxt", "to_csv", "to_json", "to_html"}
OPENED = {"file", "out", "stream"}  # names of what ``written`` gives, or of memory
MODULES = {"np", "numpy", "pickle", "joblib", "shutil", "os", "json"}
ALLOWED = {
    "src/posterax/_util/writing.py": "the one that writes",
    "src/posterax/_util/streams.py": "standard output and error",
    "src/posterax/tables/stored.py": "rows between two passes, in a folder that goes with the fit",
}


def other_ways(tree):
    """Calls that write to a file and do not go through ``written``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        owner = getattr(getattr(node.func, "value", None), "id", "")
        first = getattr(node.args[0], "id", "") if node.args else None
        modes = [a.value for a in node.args if isinstance(a, ast.Constant)]
        modes += [k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)]
        opens = name in ("open", "fdopen") and any(
            isinstance(m, str) and len(m) < 4 and set(m) & set("wax+") for m in modes
        )
        into = name in INTO and first is not None and first not in OPENED
        if name == "save" and owner not in MODULES:
            into = False  # a method of ours, which ends in ``written``
        moved = owner in ("os", "shutil") and name in ("replace", "rename", "copy", "copyfile")
        if name in ALWAYS or opens or into or moved:
            yield node.lineno, name


def test_nobody_writes_in_another_way():
    found = {}
    for folder in ("src/posterax", "experiments"):
        for path in (ROOT / folder).rglob("*.py"):
            ways = list(other_ways(ast.parse(path.read_text())))
            if ways:
                found[str(path.relative_to(ROOT))] = ways
    assert set(found) <= set(ALLOWED), {k: v for k, v in found.items() if k not in ALLOWED}


@pytest.mark.parametrize(
    "line",
    ["open(p, 'w')", "p.open(mode='ab')", "p.write_text(t)", "figure.savefig(p)",
     "np.savez(p, a=1)", "frame.to_csv(path)", "save_file(a, p)", "os.replace(a, b)"],
)  # fmt: skip
def test_other_ways_are_seen(line):
    assert list(other_ways(ast.parse(line)))


def test_what_is_written_reaches_the_disk_before_its_name_does(tmp_path, monkeypatch):
    order = []
    for name in ("fsync", "replace"):
        real = getattr(writing, name)
        monkeypatch.setattr(
            writing, name, lambda *a, name=name, real=real: (order.append(name), real(*a))[1]
        )
    with written(tmp_path / "a") as file:
        file.write("a")
    assert order == ["fsync", "replace", "fsync"]  # the last one of the directory
