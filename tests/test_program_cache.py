"""Compiled programs kept on disk: by default, privately, and never against a user's own setting."""

import os
import stat
import subprocess
import sys

import pytest

from posterax._util.program_cache import SECONDS

CODE = """
import jax, sys
import jax.numpy as jnp
from posterax.program.compiled import compiled
SETTING
compiled(lambda x: x + 1)(jnp.ones(2))
print(jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs)
"""


def run(home, setting="", **environment):
    """Where a process of its own keeps programs, and which."""
    names = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    mine = {k: v for k, v in os.environ.items() if k not in (*names, "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", CODE.replace("SETTING", setting)], capture_output=True, text=True,
        env=mine | {"HOME": str(home)} | environment, check=True,
    )  # fmt: skip
    return done.stdout.split()


def test_by_default_in_the_users_cache(tmp_path):
    place, seconds = run(tmp_path)
    assert place.startswith(str(tmp_path / ".cache" / "posterax" / "programs"))
    assert stat.S_IMODE(os.stat(place).st_mode) == 0o700
    assert float(seconds) == SECONDS


@pytest.mark.parametrize(
    ("setting", "environment", "expected"),
    [
        ("", {"POSTERAX_CACHE": "off"}, "None"),
        ("", {"JAX_ENABLE_COMPILATION_CACHE": "false"}, "None"),
        ("", {"JAX_COMPILATION_CACHE_DIR": "elsewhere"}, "elsewhere"),
        ("jax.config.update('jax_compilation_cache_dir', 'mine')", {}, "mine"),
    ],
)
def test_never_against_a_setting(setting, environment, expected, tmp_path):
    assert run(tmp_path, setting, **environment) == [expected, "1.0"]
    assert not list(tmp_path.rglob("programs"))


def test_a_folder_that_is_named_after_the_first_network(tmp_path):
    mine = tmp_path / "mine"
    setting = (
        "import posterax as px; px.networks.MLP(1, 1, (2,), key=0); "
        f"jax.config.update('jax_compilation_cache_dir', {str(mine)!r}); "
        "px.networks.MLP(1, 1, (3,), key=0)"
    )
    assert run(tmp_path, setting)[0] == str(mine)
    assert any(mine.iterdir())


def test_another_version_or_processor_has_another_folder(monkeypatch):
    from posterax._util import program_cache

    seen = {program_cache._fingerprint()}
    monkeypatch.setattr(program_cache.jax, "__version__", "0.0.1")
    seen.add(program_cache._fingerprint())
    monkeypatch.setattr(program_cache.Path, "read_text", lambda path: "flags : fpu sse")
    seen.add(program_cache._fingerprint())
    assert len(seen) == 3


def test_not_where_others_write_or_nobody_can(tmp_path):
    folder = tmp_path / ".cache" / "posterax" / "programs"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert run(tmp_path)[0] == "None"
    (tmp_path / "file").write_text("")
    assert run(tmp_path / "file")[0] == "None"  # no home that can be written


def test_a_folder_of_ones_own(tmp_path):
    assert run(tmp_path, POSTERAX_CACHE=str(tmp_path / "x"))[0].startswith(str(tmp_path / "x"))
