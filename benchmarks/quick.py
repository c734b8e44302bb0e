"""``python -m benchmarks.quick [REVISION]``: is the working tree slower than a commit?

Both are run in turns for about a minute, each in processes of its own and with the same worker;
said is the median over rounds of the ratio within a round, with the interval that holds the true
median with 90 % (of the ordered ratios, by the binomial distribution).
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from scipy.stats import binom

from benchmarks.run import LARGE, ROOT, SMALL, Worker

TASKS = {
    "dense, Bayes by Backprop": ("bayes mixture", LARGE),
    "dense, local": ("bayes local", LARGE),
    "small, Bayes by Backprop": ("bayes gaussian", SMALL),
    "LeNet-5, Bayes by Backprop": ("bayes gaussian", "LeNet-5"),
    "transformer, Bayes by Backprop": ("bayes gaussian", "transformer"),
    "prediction": ("predict", SMALL),
}
LEVEL, SECONDS = 0.9, 0.3


def worker(source: Path) -> Worker:
    """A process with the package of one tree."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(source / "src"), str(ROOT)])
    try:
        return Worker("benchmarks.worker_jax", sys.executable, "cpu")
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


def interval(ratios: list[float]) -> tuple[float, float]:
    """Bounds of the median, from the ordered ratios.

    Example:
        >>> from benchmarks.quick import interval
        >>> interval([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6])
        (1.1, 1.5)
    """
    n = len(ratios)
    cut = max(0, int(binom.ppf((1 - LEVEL) / 2, n, 0.5)) - 1)
    ordered = sorted(ratios)
    return ordered[cut], ordered[n - 1 - cut]


def verdict(low: float, middle: float, high: float) -> str:
    """The ratio in words.

    Example:
        >>> from benchmarks.quick import verdict
        >>> verdict(1.02, 1.05, 1.08), verdict(0.97, 1.01, 1.04)
        ('slower by 5.0 % (2.0 to 8.0)', 'no difference seen: +1.0 % (-3.0 to +4.0)')
    """
    a, b, c = (100 * (ratio - 1) for ratio in (low, middle, high))
    if low > 1:
        return f"slower by {b:.1f} % ({a:.1f} to {c:.1f})"
    if high < 1:
        return f"faster by {-b:.1f} % ({-c:.1f} to {-a:.1f})"
    return f"no difference seen: {b:+.1f} % ({a:+.1f} to {c:+.1f})"


def compare(before: Worker, now: Worker, task: str, network: str, rounds: int) -> list[float]:
    """Ratios of now to before, one a round, the order changing from round to round."""
    for each in (before, now):
        trial = each.ask(task, network, 1)
        if "error" in trial:
            raise RuntimeError(f"{task}, {network}: {trial['error']}")
    one = before.ask(task, network, 8)["seconds"]
    times = 8 * max(1, round(SECONDS / one / 8))
    ratios = []
    for i in range(rounds):
        pair = (before, now) if i % 2 == 0 else (now, before)
        seconds = {id(each): each.ask(task, network, times)["seconds"] for each in pair}
        ratios.append(seconds[id(now)] / seconds[id(before)])
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", nargs="?", default="HEAD")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "-q", str(tree), options.revision], check=True)
        try:
            before, now = worker(tree), worker(ROOT)
            print(f"the working tree against {options.revision}", flush=True)
            for title, (task, network) in TASKS.items():
                ratios = compare(before, now, task, network, options.rounds)
                low, high = interval(ratios)
                middle = sorted(ratios)[len(ratios) // 2]
                print(f"  {title:32s} {verdict(low, middle, high)}", flush=True)
            before.close()
            now.close()
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


if __name__ == "__main__":
    main()
