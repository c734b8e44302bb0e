"""``python -m benchmarks.report``: the tables and the chart of docs/speed.md.

Everything is read from ``benchmarks/results``; text between a pair of markers is replaced.
"""

import json
import re
from pathlib import Path

import matplotlib.pyplot as plt

from posterax._util.writing import write_file, written

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks/results"
LARGE, MIDDLE, SMALL = "784-1200-1200-10", "784-400-400-10", "1-100-100-1"
ROWS = {
    "deterministic JAX": "a deterministic network, JAX",
    "PyTorch": "a deterministic network, PyTorch",
    "posterax maximum likelihood": "**posterax**, maximum likelihood",
    "posterax map": "**posterax**, maximum a posteriori",
    "posterax swag": "**posterax**, SWAG",
    "posterax dropout": "**posterax**, MC dropout",
    "posterax bayes gaussian": "**posterax**, Gaussian prior",
    "posterax bayes mixture": "**posterax**, scale mixture",
    "posterax bayes local": "**posterax**, local reparameterization",
    "posterax bayes flipout": "**posterax**, Flipout",
    "posterax ivon": "**posterax**, IVON",
    "bayesian-torch reparameterization": "bayesian-torch, reparameterization",
    "bayesian-torch flipout": "bayesian-torch, Flipout",
    "torchbnn": "torchbnn",
    "blitz": "blitz",
    "pyro": "Pyro, SVI with AutoNormal",
}
SHORT = [
    name
    for name in ROWS
    if not name.startswith("posterax") or name.endswith(("gaussian", "mixture"))
]
OTHERS = {
    "PyTorch": "a deterministic network, PyTorch",
    "deterministic JAX, step by step": "a deterministic network, JAX, one step a call",
    "posterax map": "**posterax**, maximum a posteriori",
    "posterax bayes gaussian": "**posterax**, Bayes by Backprop",
    "posterax bayes last layer": "**posterax**, Bayes by Backprop of the last layer",
    "posterax ivon": "**posterax**, IVON",
    "posterax bayes local": "**posterax**, local reparameterization",
    "posterax bayes flipout": "**posterax**, Flipout",
    "bayesian-torch reparameterization": "bayesian-torch, reparameterization",
    "bayesian-torch flipout": "bayesian-torch, Flipout",
}
TITLES = {"cpu": "2 CPU cores", "gpu": "one H200"}


def load(prefix=""):
    """The results there are, by device."""
    paths = {device: RESULTS / f"{prefix}{device}.json" for device in ("cpu", "gpu")}
    return {d: json.loads(path.read_text()) for d, path in paths.items() if path.exists()}


def digits(value):
    """Three of them."""
    return f"{value:#.3g}".rstrip(".") if value < 1000 else f"{value:.0f}"


def cell(row, unit="ms"):
    """A time, with three digits."""
    if row is None or "error" in row:
        return "–"
    value = row["milliseconds"] / (1000 if unit == "s" else 1)
    return f"{digits(value)} {unit}"


def prediction(results, name):
    """The row of a library among the predictions."""
    own = {"deterministic JAX": "100 deterministic passes", "posterax bayes gaussian": "posterax"}
    return results["predict"].get(own.get(name, name))


def short_table(found):
    """Steps of the large network and predictions, a column for each device."""
    heads = [f"step, {TITLES[d]}" for d in found] + [f"prediction, {TITLES[d]}" for d in found]
    lines = ["| | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for name in SHORT:
        steps = [cell(r["steps"][LARGE].get(name)) for r in found.values()]
        predictions = [
            cell(prediction(r, name), "s" if d == "cpu" else "ms") for d, r in found.items()
        ]
        lines.append("| " + " | ".join([ROWS[name], *steps, *predictions]) + " |")
    return "\n".join(lines)


def others_table(results):
    """Convolutional, attention and recurrent networks, with ratios to PyTorch's plain step."""
    networks = [name for name in results["steps"] if name not in (SMALL, MIDDLE, LARGE)]
    lines = ["| | " + " | ".join(networks) + " |", "| --- |" + " ---: |" * len(networks)]
    for name, title in OTHERS.items():
        cells = []
        for network in networks:
            row = results["steps"][network].get(name)
            known = row is not None and "error" not in row
            cells.append(f"{cell(row)} ({_spread(row)})" if known else "–")
        lines.append("| " + " | ".join([title, *cells]) + " |")
    return "\n".join(lines)


def full_table(results, device):
    """All networks of one device, with ratios to the deterministic step, and peak memory."""
    networks = [n for n in (SMALL, MIDDLE, LARGE) if n in results["steps"]]
    heads = [f"step, {n}" for n in networks]
    heads += [f"peak memory, {LARGE}"] if "memory" in results else []
    lines = ["| | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for name, title in ROWS.items():
        if name not in results["steps"][LARGE]:
            continue
        cells = []
        for network in networks:
            row = results["steps"][network].get(name)
            known = row is not None and "error" not in row
            cells.append(f"{cell(row)} ({_spread(row)})" if known else "–")
        held = results.get("memory", {}).get(name, {})
        peak = (
            f"{held['bytes'] / 2**20:.0f} MiB ({held['ratio']:.2f} ×)" if "bytes" in held else "–"
        )
        cells += [peak] if "memory" in results else []
        lines.append("| " + " | ".join([title, *cells]) + " |")
    about, start = results["about"], results["start"]
    minibatch = results["steps"][LARGE]["posterax minibatch alone"]["milliseconds"]
    step = results["steps"][LARGE]["posterax bayes mixture"]["milliseconds"]
    versions = ", ".join(f"{k} {v}" for k, v in {**about["ours"], **about["peers"]}.items())
    return (
        f"{TITLES[device]}, {versions}, Python {about['python']}, {about['date']}; median of "
        f"{about['rounds']} interleaved rounds{_note(about)}; {about['seconds']} s in all.\n\n"
        + "\n".join(lines)
        + f"\n\nGathering a shuffled minibatch takes {1000 * minibatch:.0f} µs, "
        f"{100 * minibatch / step:.1f} % of the large network's step. `import posterax` takes "
        f"{start['import_seconds_beyond_jax']:.2f} s beyond `import jax`, and a first small fit "
        f"with all its compilation {start['first_fit_seconds']:.1f} s{_again(start)}."
    )


def _note(about):
    """What else was special about a run."""
    return f" ({about['note']})" if "note" in about else ""


def _spread(row):
    """A ratio, with the least and the largest of a round."""
    low, high = row["ratios"]
    return f"{row['ratio']:.2f} ×, {low:.2f} to {high:.2f}"


def _again(start):
    """What a second process takes, where it was measured."""
    seconds = start.get("second_process_fit_seconds")
    return "" if seconds is None else f" ({seconds:.1f} s in the next process)"


def parts_table(found):
    """The parts of a step, in milliseconds."""
    names = list(next(iter(found.values()))["parts"])
    lines = ["| | " + " | ".join(TITLES[d] for d in found) + " |"]
    lines.append("| --- |" + " ---: |" * len(found))
    for name in names:
        times = [f"{digits(results['parts'][name])} ms" for results in found.values()]
        lines.append("| " + " | ".join([name, *times]) + " |")
    return "\n".join(lines)


def without_table(found):
    """The step without one measure at a time."""
    names = list(next(iter(found.values()))["without"])
    lines = ["| without | " + " | ".join(TITLES[d] for d in found) + " |"]
    lines.append("| --- |" + " ---: |" * len(found))
    for name in names:
        rows = [results["without"][name] for results in found.values()]
        cells = [f"{digits(row['step'])} ms ({row['ratio']:.2f} ×)" for row in rows]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)


ENSEMBLE = {
    "posterax": "**posterax**, `px.DeepEnsemble(8)`",
    "posterax vmapped": "the same, members always under `vmap`",
    "posterax unrolled": "the same, members always one by one",
    "PyTorch loop": "PyTorch, a loop over 8 networks",
    "PyTorch loop, torch.compile": "the same with `torch.compile`",
    "PyTorch torch.func.vmap": "PyTorch, `torch.func.vmap`",
    "PyTorch torch.func.vmap, torch.compile": "the same with `torch.compile`",
}


def ensemble_table(results):
    """A step of eight networks, a column for each batch size, and first runs."""
    about, first = results["about"], results["first"]
    sizes = list(results["steps"])
    heads = [f"step, batch {size}" for size in sizes]
    heads += [f"{about['first_steps'][size]} steps from a fresh process" for size in first]
    lines = ["| | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for name, title in ENSEMBLE.items():
        cells = []
        for size in sizes:
            row = results["steps"][size].get(name, {})
            known = "times_faster" in row
            cells.append(f"{cell(row)} ({row['times_faster']:.1f} ×)" if known else "–")
        for rows in first.values():
            row = rows.get(name, {})
            cells.append(f"{row['seconds']:.1f} s" if "seconds" in row else "–")
        lines.append("| " + " | ".join([title, *cells]) + " |")
    versions = ", ".join(f"{k} {v}" for k, v in {**about["ours"], **about["peers"]}.items())
    return (
        f"{about['threads']} CPU cores, {versions}, Python {about['python']}, {about['date']}; "
        f"median of {about['rounds']} interleaved rounds; × is how many times as fast as the "
        "loop, in the same round.\n\n" + "\n".join(lines)
    )


def replace(path, marker, text):
    """Put text between ``<!-- marker -->`` and ``<!-- /marker -->``."""
    page = path.read_text()
    pattern = rf"(<!-- {marker} -->\n).*?(<!-- /{marker} -->)"
    new, count = re.subn(pattern, lambda m: f"{m[1]}\n{text}\n\n{m[2]}", page, flags=re.S)
    if count != 1:
        raise ValueError(f"{path} has no place marked {marker}")
    write_file(path, new)


def chart(found, path):
    """Bars of the step's time, a panel for each device."""
    figure, axes = plt.subplots(1, len(found), figsize=(4.6 * len(found), 2.9), sharey=True)
    axes = [axes] if len(found) == 1 else list(axes)
    names = [name for name in SHORT if name != "posterax bayes gaussian"]
    labels = [ROWS[name].replace("**", "") for name in names]
    for axis, (device, results) in zip(axes, found.items(), strict=True):
        rows = [results["steps"][LARGE].get(name) for name in names]
        times = [row["milliseconds"] if row and "error" not in row else 0 for row in rows]
        plain, own, peer = "#9aa5b1", "#c2410c", "#3f6fa3"
        kinds = {"deterministic JAX": plain, "PyTorch": plain, "posterax bayes mixture": own}
        colors = [kinds.get(name, peer) for name in names]
        bars = axis.barh(labels, times, color=colors, height=0.66)
        axis.bar_label(bars, [digits(t) if t else "–" for t in times], padding=4, fontsize=9)
        axis.set_title(TITLES[device], fontsize=10, loc="left")
        axis.set_xlim(0, 1.16 * max(times))
        axis.set_xlabel("ms a step", fontsize=9)
        axis.invert_yaxis()
        axis.tick_params(labelsize=9, length=0)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.xaxis.set_major_locator(plt.MaxNLocator(4))
    axes[0].invert_yaxis() if len(axes) > 1 else None
    figure.suptitle(f"One training step, {LARGE}, batch 128, Adam", fontsize=11, x=0.01, ha="left")
    figure.tight_layout()
    with written(path, binary=True) as file:
        figure.savefig(file, format=Path(path).suffix[1:], dpi=170)


def main():
    found = load()
    replace(ROOT / "docs/speed.md", "speed", short_table(found))
    for device, results in found.items():
        replace(ROOT / "docs/speed.md", f"speed {device}", full_table(results, device))
    replace(ROOT / "docs/speed.md", "others", others_table(found["cpu"]))
    ablation = load("ablation-")
    replace(ROOT / "docs/speed.md", "parts", parts_table(ablation))
    replace(ROOT / "docs/speed.md", "without", without_table(ablation))
    path = RESULTS / "ensemble.json"
    if path.exists():
        replace(ROOT / "docs/speed.md", "ensemble", ensemble_table(json.loads(path.read_text())))
    chart(found, ROOT / "docs/images/speed.png")
    print(short_table(found))


if __name__ == "__main__":
    main()
