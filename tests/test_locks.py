"""Locks: one holder among threads and processes, none that outlives its holder."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from posterax._util import locks
from posterax._util.locks import Lock, try_lock, unlock

# takes the lock, then forks a child that lives on, or does not
HOLDER = """
import os, sys, time
from posterax._util.locks import Lock
lock = Lock(sys.argv[1])
assert lock.acquire()
if sys.argv[2] == "fork" and not os.fork():
    assert not Lock(sys.argv[1]).acquire(), "the child took its parent's lock"
    lock.release()  # of the child's copy: the parent's stays
    assert not lock.acquire()
    print(os.getpid(), flush=True)
    time.sleep(60)
if sys.argv[2] != "fork":
    print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["alone", "fork"])
def test_a_killed_holder_holds_nothing(tmp_path, how):
    path = tmp_path / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), how], stdout=subprocess.PIPE, text=True
    )
    child = int(holder.stdout.readline())
    try:
        lock = Lock(path)
        assert not lock.acquire()
        holder.kill()
        holder.wait()
        assert lock.acquire()  # whatever its child does
        lock.release()
        assert not path.exists()
    finally:
        holder.kill()
        holder.stdout.close()
        if how == "fork":
            os.kill(child, signal.SIGKILL)


def test_one_holder_among_many_threads(tmp_path):
    """The file is removed and made anew all the time: two must never hold different ones."""
    path, inside, most, taken = tmp_path / "lock", [0], [0], [0]

    def work():
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            lock = Lock(path)
            if lock.acquire():
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                taken[0] += 1
                time.sleep(1e-4)
                inside[0] -= 1
                lock.release()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 1
    assert taken[0] > 20
    assert not path.exists()


def test_taken_twice_and_released_twice(tmp_path):
    before = {*locks._held}  # by what other tests of this process left behind
    lock = Lock(tmp_path / "lock")
    assert lock.acquire()
    assert lock.acquire()
    assert {*locks._held} != before
    lock.release()
    lock.release()
    assert {*locks._held} == before


def test_a_note_says_who_holds_it(tmp_path):
    lock = Lock(tmp_path / "lock")
    lock.note("nobody")
    assert lock.acquire()
    lock.note("a process of some name")
    lock.note("another")
    assert lock.path.read_text() == "another"
    assert not Lock(tmp_path / "lock").acquire()
    lock.release()


def test_a_release_leaves_the_file_of_another(tmp_path):
    path = tmp_path / "lock"
    first, second = Lock(path), Lock(path)
    assert first.acquire()
    path.unlink()  # by a hand from outside
    assert second.acquire()
    first.release()
    assert path.exists()
    second.release()


def test_without_locks_everyone_holds(tmp_path, monkeypatch):
    """A platform or a file system that has none: nobody is kept out, and nothing raises."""
    monkeypatch.setattr(locks, "fcntl", None)
    mine, other = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert mine.acquire()
    assert other.acquire()
    mine.release()
    other.release()


def test_a_file_system_that_refuses(tmp_path, monkeypatch):
    def refuse(descriptor, how):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with (tmp_path / "a").open("w") as file:
        assert try_lock(file.fileno()) is None
        unlock(file.fileno())
