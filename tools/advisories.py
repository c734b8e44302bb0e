"""Known weaknesses of the versions in constraints.txt, where a database of them can be reached.

``python -m tools.advisories PIP_AUDIT`` asks the package index and then OSV, by pip-audit. It fails
if a version has a known weakness. What could not be looked up is said, and is not called safe.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
SERVICES = ("pypi", "osv")


def ask(pip_audit: str, service: str) -> tuple[list[dict[str, Any]], str]:
    """The packages as pip-audit reports them, or the last line of what it said instead."""
    options = ["--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
    command = [pip_audit, "--requirement", str(CONSTRAINTS), *options]
    command += ["--vulnerability-service", service]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        return json.loads(done.stdout)["dependencies"], ""
    except OSError as error:
        return [], str(error)
    except subprocess.TimeoutExpired:
        return [], "no answer in 300 seconds"
    except ValueError:
        return [], (done.stderr.strip().splitlines() or ["no answer"])[-1]


def verdict(answers: list[list[dict[str, Any]]]) -> tuple[list[str], list[str], list[str]]:
    """Weaknesses found, packages looked up, and packages that no service knew."""
    weak, known, names = [], set(), set()
    for package in (package for answer in answers for package in answer):
        names.add(package["name"])
        if "skip_reason" in package:
            continue
        known.add(package["name"])
        for found in package["vulns"]:
            better = ", ".join(found.get("fix_versions", ())) or "none yet"
            weak.append(
                f"{package['name']} {package['version']}: {found['id']}, mended in {better}"
            )
    return sorted(set(weak)), sorted(known), sorted(names - known)


def main(pip_audit: str) -> None:
    answers = []
    for service in SERVICES:
        packages, trouble = ask(pip_audit, service)
        answers.append(packages)
        if trouble:
            print(f"{service} was not asked: {trouble[:120]}")
    weak, known, unknown = verdict(answers)
    print(f"{len(known)} packages were looked up, {len(weak)} known weaknesses")
    if unknown:
        print(f"{len(unknown)} could not be looked up, and nothing is known of them")
    if not known:
        print("NOTHING WAS CHECKED: no database of weaknesses can be reached from here")
    if weak:
        raise SystemExit("\n".join(weak))


if __name__ == "__main__":
    main(*sys.argv[1:])
