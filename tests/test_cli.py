"""The command line as a whole: quick to start, clear when refused, examples that run."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer.main
from typer.testing import CliRunner

import posterax as px
from posterax import cli
from posterax.commands import METHODS, compare

COMMANDS = ["fit", "predict", "compare", "explain", "prune", "doctor", "demo", "reproduce"]
HEAVY = ("jax", "pandas", "sklearn", "scipy", "matplotlib", "numpyro", "equinox")


def process(*command, **environment):
    settings = {**os.environ, "COLUMNS": "200", **environment}
    return subprocess.run(command, capture_output=True, text=True, env=settings, check=False)


def run(*arguments, **environment):
    """The real program, in a process of its own."""
    return process(sys.executable, "-m", "posterax", *arguments, **environment)


def invoke(*arguments, **options):
    return CliRunner().invoke(cli.app, list(map(str, arguments)), **options)


def examples():
    """Every example of every command's help, as a user sees it."""
    found = []
    for name in COMMANDS:
        text = invoke(name, "--help", env={"COLUMNS": "200"}).stdout
        after = text[text.rindex("Examples:") :]  # help ends with them
        lines = re.findall(r"^ *posterax (.*\S)", after, re.MULTILINE)
        assert len(lines) >= 2, name
        assert all(line.split()[0] == name for line in lines)
        found += lines
    return found


class TestStart:
    @pytest.mark.parametrize("option", ["--help", "--version"])
    def test_no_heavy_module_is_imported(self, option):
        code = (
            "import sys\nfrom posterax.cli import app\n"
            f"try: app(['{option}'])\nexcept SystemExit: pass\n"
            f"print([name for name in {HEAVY} if name in sys.modules])"
        )
        done = process(sys.executable, "-c", code)
        assert done.stdout.rstrip().endswith("[]"), done.stdout[-300:] + done.stderr

    def test_help_names_every_command_in_order(self):
        text = invoke("--help").stdout
        places = [re.search(rf"^│ {name} ", text, re.MULTILINE).start() for name in COMMANDS]
        assert places == sorted(places)
        assert "--install-completion" in text

    def test_version_of_the_program(self):
        done = run("--version")
        assert (done.returncode, done.stdout) == (0, f"posterax {px.__version__}\n")

    def test_without_a_command_there_is_help(self):
        assert "Usage" in invoke().output


class TestPackage:
    """Names of the package come when they are asked for."""

    def test_every_public_name_is_there(self):
        for name in px.__all__:
            assert getattr(px, name) is not None
        assert set(px.__all__) <= set(dir(px))

    def test_every_public_name_has_a_place(self):
        """A name without one would be looked for as a module."""
        for name in px.__all__:
            value = getattr(px, name)
            module = isinstance(value, ModuleType)
            assert name in px._MODULE_OF or module or name == "__version__"

    def test_fit_is_the_function_even_where_its_module_was_imported(self):
        import importlib

        module = importlib.import_module("posterax.fitting.fit")
        assert isinstance(module, ModuleType)
        assert px.fit is module.fit

    def test_fit_can_be_replaced_for_a_test(self, monkeypatch):
        before = px.fit
        with monkeypatch.context() as patch:
            patch.setattr(px, "fit", "another")
            assert px.fit == "another"
        assert px.fit is before

    def test_unknown_names_are_refused(self):
        with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
            _ = px.nonsense
        with pytest.raises(ImportError):
            from posterax import nonsense  # noqa: F401


class TestRefusals:
    @pytest.mark.parametrize(
        "arguments",
        [
            ["nonsense"], ["fit"], ["compare", "a.csv"], ["explain", "a.px", "--nonsense"],
            ["compare", "a.csv", "--target", "y", "--folds", "1"], ["prune", "a.px"],
            ["compare", "a.csv", "--target", "y", "--methods", "nonsense"],
            ["compare", "a.csv", "--target", "y", "--methods", ","],
            ["prune", "a.px", "--out", "b.px", "--fraction", "0.5", "--threshold-db", "1"],
            ["prune", "a.px", "--out", "b.px", "--tolerance", "0.1"],
        ],
    )  # fmt: skip
    def test_wrong_usage_is_2(self, arguments, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        done = invoke(*arguments)
        assert done.exit_code == 2, done.output
        assert done.stderr
        assert not done.stdout
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        "arguments",
        [
            ["explain", "none.px"], ["explain", "."], ["explain", "text.px"],
            ["prune", "none.px", "--out", "b.px"], ["prune", "text.px", "--out", "b.px"],
            ["prune", "text.px", "--out", "none/b.px"], ["prune", "text.px", "--out", "text.px"],
            ["compare", "none.csv", "--target", "y"], ["reproduce", "uci"],
        ],
    )  # fmt: skip
    def test_what_cannot_be_done_is_1_and_one_line(self, arguments, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "text.px").write_text("no model\n")
        done = invoke(*arguments)
        assert done.exit_code == 1, done.output
        assert re.fullmatch(r"error: [^\n]+\n", done.stderr)
        assert not done.stdout
        assert [path.name for path in tmp_path.iterdir()] == ["text.px"]

    def test_a_pipe_that_closes_is_silent(self):
        command = f"{sys.executable} -m posterax --help | head -c 1"
        done = process("bash", "-c", command)
        assert done.stderr == ""

    def test_no_colour_where_no_terminal_is(self):
        assert "\x1b" not in run("--help").stdout


class TestCompletion:
    def test_methods_after_a_comma(self):
        assert compare.complete_methods("ma") == ["maximum_a_posteriori", "maximum_likelihood"]
        assert compare.complete_methods("ivon,la") == ["ivon,laplace"]
        assert "ivon,ivon" not in compare.complete_methods("ivon,")

    def test_the_shell_is_answered(self):
        line = "posterax compare a.csv --methods de"
        answer = run(
            _POSTERAX_COMPLETE="complete_bash", _TYPER_COMPLETE_ARGS=line,
            COMP_WORDS=line, COMP_CWORD="4",
        )  # fmt: skip
        assert "deep_ensemble" in answer.stdout, answer.stderr

    def test_every_default_method_is_a_method(self):
        assert set(compare.DEFAULT.split(",")) <= set(METHODS)


@pytest.mark.parametrize("options", [[], ["uci"], ["uci", "--budget", "full", "--seeds", "2"]])
def test_reproduce_says_where_the_experiments_are(options):
    done = invoke("reproduce", *options)
    assert done.exit_code == 1
    assert f"make reproduce NAME={options[0] if options else 'mnist'} there" in done.stderr


def test_every_example_of_the_help_is_understood():
    """Each is parsed with its command's own options; that they run is the slow test's."""
    group = typer.main.get_command(cli.app)
    for line in examples():
        name, *rest = shlex.split(line)
        context = group.commands[name].make_context(name, rest, resilient_parsing=False)
        assert context.params


@pytest.mark.slow
@pytest.mark.usefixtures("hasty_module")
def test_every_example_of_the_help_runs(house, data_dir, monkeypatch):
    """One after the other, in one directory: what fit writes, the next ones read."""
    monkeypatch.chdir(house)
    quick = ("fit", "compare", "demo")
    for line in examples():
        name, *rest = shlex.split(line)
        if name == "reproduce":
            continue  # it says where the experiments are, and has a test of its own
        done = invoke(name, *rest, *(["--quick"] if name in quick else []))
        assert done.exit_code == 0, (line, done.output)
        assert done.stdout or "--out" in rest
        if "--out" in rest:
            assert Path(rest[rest.index("--out") + 1]).exists()


@pytest.fixture
def house(tmp_path):
    """The files that the examples name."""
    import numpy as np
    import pandas as pd

    random = np.random.default_rng(0)
    frame = pd.DataFrame({
        "size": random.uniform(40, 200, 60).round(1), "town": random.choice(["Aa", "Bb"], 60),
    })  # fmt: skip
    frame["price"] = (2 * frame["size"] + random.normal(0, 9, 60)).round(1)
    for name in ("house", "new", "validation"):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    flowers = frame.drop(columns="price").assign(species=np.where(frame["size"] > 99, "a", "b"))
    flowers.to_csv(tmp_path / "flowers.csv", index=False)
    return tmp_path
