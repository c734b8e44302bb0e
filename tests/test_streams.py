"""Standard output and error that are full, closed, or not there: no traceback, sensible codes."""

import errno
import io
import subprocess
import sys

import numpy as np
import pytest

import posterax as px
from posterax._util.progress import Bar, Shown
from posterax._util.streams import notes, watched
from posterax.commands import say

X = np.linspace(-1, 1, 32, dtype=np.float32)[:, None]


def shell(command, **options):
    line = command.replace("posterax", f"{sys.executable} -m posterax", 1)
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=False, **options
    )


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("posterax --version > /dev/full", 1, "error: standard output: No space left on device\n"),
        ("posterax --help > /dev/full", 1, "error: standard output: No space left on device\n"),
        ("posterax --version >&-", 1, "error: standard output: Bad file descriptor\n"),
        ("posterax --version 2>&-", 0, ""),
        ("posterax --version 2> /dev/full", 0, ""),
        ("posterax --version <&- >&- 2>&-", 1, ""),
        pytest.param("posterax predict none.px none.csv 2>&-", 1, "", marks=pytest.mark.slow),
        ("set -o pipefail; posterax --help | true", (0, 1), ""),
    ],
)
def test_streams_of_a_command(command, code, said, tmp_path):
    done = shell(command, cwd=tmp_path)
    assert done.returncode in (code if isinstance(code, tuple) else (code,)), done.stderr
    assert done.stderr == said


@pytest.mark.slow
@pytest.mark.parametrize("where", ["> /dev/full", ">&-", "2> /dev/full", "2>&-", "| head -1"])
def test_commands_that_compute(where, tmp_path):
    rows = "\n".join(f"{a},{2 * a + 0.3 * (-1) ** a}" for a in range(60))
    (tmp_path / "data.csv").write_text(f"a,price\n{rows}\n")
    lost = where in ("> /dev/full", ">&-")
    done = shell(f"posterax fit data.csv -t price --quick {where}", cwd=tmp_path)
    assert done.returncode == int(lost), done.stderr
    assert "Traceback" not in done.stderr
    assert px.load(tmp_path / "data.px").n_features_in_ == 1  # whatever could not be shown
    assert ("the model is in data.px" in done.stderr) == lost
    done = shell(f"posterax predict data.px data.csv {where}", cwd=tmp_path)
    assert done.returncode == int(lost), done.stderr
    assert len(done.stderr.splitlines()) <= 1


def test_a_closed_stream_is_nobody_elses_number(tmp_path):
    """What libraries print to standard error must not land in the next file that is opened."""
    code = (
        "from posterax._util.streams import open_standard_streams; open_standard_streams()\n"
        "import os; from posterax._util.writing import written\n"
        "with written('out') as file:\n"
        "    os.write(2, b'of a library'); file.write(str(file.fileno()))"
    )
    command = f'{sys.executable} -c "{code}" 2>&- >&- <&-'
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=False)
    assert int((tmp_path / "out").read_text()) > 2


class Full(io.StringIO):
    """A stream on a full disk."""

    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(params=["none", "full", "closed"])
def stderr(request, monkeypatch):
    """Standard error as a program without a console has it."""
    closed = io.StringIO()
    closed.close()
    stream = {"none": None, "full": Full(), "closed": closed}[request.param]
    monkeypatch.setattr(sys, "stderr", stream)


@pytest.mark.usefixtures("stderr")
@pytest.mark.parametrize("progress", [None, True])
def test_a_fit_needs_no_standard_error(progress):
    network = px.networks.MLP(1, 1, (2,), key=0)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
    posterior = px.fit(model, (X, X), px.MaximumAPosteriori(), steps=3, progress=progress)
    assert len(posterior.history["nll"]) == 3


@pytest.mark.usefixtures("stderr")
def test_notes_and_bars_need_none():
    assert not watched("stderr")
    notes().print("a note")
    say("another")
    with Shown() as shown:
        shown.end("result", 1.0)
    with Bar(None) as bar:
        assert not bar.on
