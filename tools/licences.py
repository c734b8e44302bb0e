"""docs/licences.md: what posterax installs, in which version and under which licence.

``python -m tools.licences`` writes the page from the metadata of the installed packages, in an
environment with the versions of constraints.txt. A licence that is unknown, or that asks for more
than to be named (a strong copyleft), fails unless ``NOTES`` says why it is right.
"""

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "licences.md"
EXTRAS = ("flax", "parquet", "tensorboard")
# first words of a licence's text or name: what it is called here
KNOWN = {
    r"mit(-0)?\b|the mit": "MIT",
    r"apache": "Apache-2.0",
    r"(bsd-?3|bsd 3|3-clause|new bsd|modified bsd)": "BSD-3-Clause",
    r"(bsd-?2|bsd 2|2-clause)": "BSD-2-Clause",
    r"bsd": "BSD",
    r"isc\b": "ISC",
    r"(psf|python software)": "PSF-2.0",
    r"(mpl|mozilla)": "MPL-2.0",
    r"(hpnd|historical)": "HPND",
}
STRONG = re.compile(r"\b(A?GPL|GNU (Affero )?General|EUPL|SSPL|OSL)", re.IGNORECASE)
# packages whose licence the metadata does not tell, or that need a word
NOTES: dict[str, str] = {}


def packages() -> dict[str, str]:
    """Names of everything that posterax and its extras install here, and what asks for it."""
    found: dict[str, str] = {}
    for extra in ("", *EXTRAS):
        wanted = [("posterax", extra)]
        while wanted:
            name, chosen = wanted.pop()
            for requirement in _requirements(name, chosen):
                key = canonicalize_name(requirement.name)
                if key in found or key == "posterax":
                    continue
                found[key] = extra or "posterax"
                wanted.append((key, ""))
                wanted += [(key, part) for part in requirement.extras]
    return dict(sorted(found.items()))


def _requirements(name: str, extra: str) -> Iterator[Requirement]:
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        needed = marker is None or marker.evaluate({"extra": extra})
        if needed and (not extra or (marker is not None and not marker.evaluate({"extra": ""}))):
            yield requirement


def licence(name: str) -> str:
    """By the SPDX expression, else the classifiers, else the field ``License``."""
    if name in NOTES:
        return NOTES[name]
    about = distribution(name).metadata
    if "License-Expression" in about:
        return about["License-Expression"]
    classifiers = [c for c in about.get_all("Classifier") or () if "License ::" in c]
    texts = [c.split(" :: ")[-1] for c in classifiers] + (about.get_all("License") or [])
    for text in texts:
        for pattern, short in KNOWN.items():
            if re.match(pattern, text.strip(), re.IGNORECASE):
                return short
        if STRONG.search(text[:200]):
            return text.strip().splitlines()[0]
    return "unknown"


def page() -> str:
    """The Markdown page, and an error where a licence needs a note."""
    lines = [
        "# Licences of what posterax installs\n",
        "<!-- written by tools/licences.py -->\n",
        "posterax has the MIT licence. These packages come with it, directly or through others,",
        "in the versions of `constraints.txt`; the last column says whether posterax itself asks",
        "for a package or one of its extras does. The names of licences are those in the packages'",
        "own metadata; wheels of NumPy and SciPy also hold OpenBLAS and libgfortran, whose",
        "licences they carry. `python -m tools.licences` writes this page; an unknown licence or a",
        "strong copyleft fails it.\n",
        "| package | version | licence | for |",
        "| --- | --- | --- | --- |",
    ]
    troubles = []
    for name, owner in packages().items():
        found = licence(name)
        if found == "unknown" or (STRONG.search(found) and name not in NOTES):
            troubles.append(f"{name}: {found}")
        lines.append(f"| {name} | {distribution(name).version} | {found} | {owner} |")
    if troubles:
        raise SystemExit(f"licences that need a note in tools/licences.py: {', '.join(troubles)}")
    return "\n".join([*lines, ""])


def main() -> None:
    try:
        PAGE.write_text(page())
    except PackageNotFoundError as error:
        raise SystemExit(f"{error.name} is not installed: run make install first") from None
    print(f"{len(packages())} packages in {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
