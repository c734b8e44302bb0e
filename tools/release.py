"""The wheel and the source archive: what is in them, and that a second build is the same bytes.

``python -m tools.release DIRECTORY`` builds both twice, from copies of the tracked files in
directories of other names, with other times and another umask. Both builds must have the same hash
and hold what ``expected_wheel`` and ``expected_source`` say and nothing else. One of each goes to
the directory.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# what the package consists of: code, and the report's style, words and template
ENDINGS = (".py", "py.typed", ".css", ".html.j2", ".mplstyle", ".toml")
BESIDE = ("README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", ".gitignore")
ABOUT = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")


def tracked(under: str = ".") -> list[str]:
    """The files that belong to the repository, new ones included, as they are now."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", under]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(name for name in listed.stdout.splitlines() if (ROOT / name).is_file())


def expected_wheel(version: str) -> set[str]:
    """Every file of src/posterax, and what describes the wheel."""
    files = tracked("src/posterax")
    strange = [name for name in files if not name.endswith(ENDINGS)]
    if strange:
        raise SystemExit(f"not a kind of file that the package has: {', '.join(strange)}")
    inside = {name.removeprefix("src/") for name in files}
    return inside | {f"posterax-{version}.dist-info/{name}" for name in ABOUT}


def expected_source(version: str) -> set[str]:
    """The same files as in the repository, what lies beside them, and the metadata."""
    names = {*tracked("src"), *BESIDE, "PKG-INFO"}
    return {f"posterax-{version}/{name}" for name in names}


def build(folder: Path, stamp: int, umask: int) -> list[Path]:
    """A wheel and a source archive from a copy of the repository whose files have this time."""
    source = folder / "source"
    for name in tracked():
        if name.startswith(("src/", *BESIDE)):
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)
            os.utime(target, (stamp, stamp))
    # the build tool of this environment, whose version constraints.txt fixes: it is in the wheel
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", f"{folder}/out", "."]
    env = {k: v for k, v in os.environ.items() if k != "SOURCE_DATE_EPOCH"}
    done = subprocess.run(
        command, cwd=source, env=env, umask=umask, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"the build failed:\n{done.stdout}{done.stderr}")
    return sorted((folder / "out").iterdir())


def contents(path: Path) -> set[str]:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return set(wheel.namelist())
    with tarfile.open(path) as archive:
        return {member.name for member in archive if member.isfile()}


def differences(found: set[str], expected: set[str]) -> list[str]:
    """What is missing and what should not be there, in words."""
    missing = [f"missing: {name}" for name in sorted(expected - found)]
    return missing + [f"should not be there: {name}" for name in sorted(found - expected)]


def main(target: str) -> None:
    out = Path(target)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as here:
        builds = [
            build(Path(here) / "one", 1_000_000_000, 0o022),
            build(Path(here) / "another-name", 1_700_000_000, 0o077),
        ]
        for first, second in zip(*builds, strict=True):
            digests = [hashlib.sha256(p.read_bytes()).hexdigest() for p in (first, second)]
            if first.name != second.name or len(set(digests)) > 1:
                raise SystemExit(f"two builds of {first.name} differ: {digests}")
            version = first.name.removesuffix(".tar.gz").split("-")[1]
            wheel = first.suffix == ".whl"
            wanted = expected_wheel(version) if wheel else expected_source(version)
            if wrong := differences(contents(first), wanted):
                raise SystemExit("\n".join([f"{first.name}:", *wrong]))
            shutil.copyfile(first, out / first.name)
            print(f"{first.name}: {len(wanted)} files, twice sha256 {digests[0]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
