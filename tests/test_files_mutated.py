"""A thousand files that are not as they were written: each is refused with a reason, or unchanged.

*Damage* is what disks, networks and other programs do: what loads after it must be what was saved.
*Edits* are made by somebody who knows the format and makes the digest right again. A digest is no
signature: such a file is another file, and may load where it is consistent. Then what was loaded,
written once more, must say what the edited file says, so that nothing was made up or half read.
"""

import io
import json
import math
import pickle
import time
import zipfile
import zlib
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from safetensors.numpy import save

import posterax as px
from posterax.bandits import saved as agents
from posterax.files import container as checkpoint
from posterax.files import saved as files
from tests.data.make_format1 import HERE, TABLE, X

pytestmark = pytest.mark.usefixtures("hasty_module")

SECONDS, MEMORY = 2.0, 300 * 2**20  # for one file; for all of them
PLAIN = (
    "MeanFieldGaussian", "Draws", "Point", "pruned", "per_weight", "classes", "LaplaceGaussian",
    "DropoutPosterior", "Enumerated", "Factorized", "frozen",
)  # fmt: skip
AGENTS = ("LinearThompson", "Thompson")
NAMES = (*PLAIN, "BayesianRegressor", "BayesianClassifier", "columns", "LinearThompson")
COMPARED = (
    "posterior", "family", "targets", "dtype", "model", "method", "history", "settings", "evidence",
    "estimator",
)  # fmt: skip

STRANGE = [
    None, True, False, -1, 0, 1, 3, 1.5, -2.5, math.nan, math.inf, 10**9, 2**31, 2**62, 10**30, "",
    "a", "__class__", "os.system", "eval", "../../etc/passwd", "\x00", "é\n\u202e", "x" * 10**5,
    "O", "<U999999999", "float32", [], {}, [[]], [1, 2], [-1], [10**9, 10**9], [2**62], [1] * 5000,
    ["a"], [None], {"name": "os.system", "arguments": {}}, {"__class__": "os.system"},
    {"value": 1}, {"array": "mu"}, {"parameters": "rho"}, {"dict": {}},
]  # fmt: skip
STRANGE.append(json.loads("[" * 80 + "]" * 80))  # as deep as a header may be, where it is put


class Canary:
    """What is unpickled here is seen."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


# -- damage


def flipped(content, rng):
    found = bytearray(content)
    for place in rng.integers(len(found), size=rng.integers(1, 4)):
        found[place] ^= 1 << rng.integers(8)
    return bytes(found)


def cut(content, rng):
    return content[: rng.integers(len(content))]


def longer(content, rng):
    return content + rng.bytes(int(rng.integers(1, 100)))


def table_changed(content, rng):
    """safetensors' own table of arrays, with numbers that are not the file's."""
    size = int.from_bytes(content[:8], "little")
    table, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    names = [name for name in table if name != "__metadata__"]
    one = table[names[rng.integers(len(names))]]
    changes = [
        lambda: one.update(shape=[2**62]),
        lambda: one.update(shape=[2**31, 2**31, 2**31]),
        lambda: one.update(shape=[-1]),
        lambda: one.update(shape=[*one["shape"], 10**9]),
        lambda: one.update(shape=[0, 10**18]),
        lambda: one.update(data_offsets=[0, 2**62]),
        lambda: one.update(data_offsets=[2**62, 2**63]),
        lambda: one.update(data_offsets=[one["data_offsets"][1], one["data_offsets"][0]]),
        lambda: one.update(dtype="O"),
        lambda: one.update(dtype="F8_E5M2"),
        lambda: one.update(dtype="C64"),
        lambda: table.update(__metadata__=[]),
        lambda: table.update(__metadata__={"posterax": 3}),
        lambda: table.pop("__metadata__"),
        lambda: table.update({"more": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}),
    ]
    changes[rng.integers(len(changes))]()
    text = json.dumps(table).encode()
    claimed = [*[len(text)] * 16, 0, 2**27, 2**62, 2**64 - 1][rng.integers(20)]
    return claimed.to_bytes(8, "little") + text + data


def other_formats(canary):
    """Files of other kinds, some of which would run code where they are unpickled."""
    bad = pickle.dumps(Canary(canary))
    array = np.empty(1, object)
    array[0] = Canary(canary)
    npz, npy, archive = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.savez(npz, mu=array)
    np.save(npy, array)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", bad)
        file.writestr("bomb", bytes(10**7))
    posterax = json.dumps({"format": 1})
    return [
        b"", b"\x00" * 8, b"\x00" * 4096, b"posterior", posterax.encode(), b"{}", b"[]",
        bad, npz.getvalue(), npy.getvalue(), archive.getvalue(),
        b"\x89HDF\r\n\x1a\n" + bytes(512), b"\x89PNG\r\n\x1a\n" + bytes(64),
        zlib.compress(bytes(10**7)), b"\x1f\x8b\x08\x00" + zlib.compress(bytes(10**6)),
        b"PAR1" + bytes(64) + b"PAR1", b"<html></html>", b"a,b\n1,2\n", b"\xff\xfe" * 50,
        save({"a": np.ones(3)}), save({"a": np.ones(3)}, {"posterax": posterax}),
        save({"a": np.frombuffer(bad, np.uint8)}, {"posterax": bad.hex(), "digest": ""}),
        save({"a": np.ones(3)}, {"posterax": posterax, "digest": "0" * 64}),
    ]  # fmt: skip


# -- edits, whose digest is right


def signed(arrays, text):
    """A file whose digest is that of its content."""
    digest = checkpoint._digest(text, arrays)
    return save(arrays, {"posterax": text, "digest": digest})


def json_edited(arrays, header, rng):
    header = json.loads(json.dumps(header))
    # into the tree, to a place that every depth has a chance to be
    node = header
    if "estimator" in header and rng.random() < 0.6:  # one entry among many
        node = header["estimator"] if rng.random() < 0.4 else header["estimator"]["fitted"]
    while True:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        key = keys[rng.integers(len(keys))]
        inside = node[key]
        if not (isinstance(inside, dict | list) and inside) or rng.random() < 0.15:
            break
        node = inside
    value = STRANGE[rng.integers(len(STRANGE))]
    match rng.integers(7):
        case 0:
            del node[key]
        case 1 if isinstance(node, dict):
            node[str(value)[:200]] = node.pop(key)
        case 2 if isinstance(node, dict):
            node[f"{key}_"] = value
        case 3:
            node[key] = [inside] if rng.random() < 0.5 else str(inside)
        case _:
            node[key] = value
    return signed(arrays, json.dumps(header))


def text_edited(arrays, header, rng):
    """JSON that json.dumps would not write."""
    text = json.dumps(header)
    texts = [
        "[" * 10**5 + "]" * 10**5,
        '{"format": 1, "model": ' + "[" * 500 + "]" * 500 + "}",
        text.replace('"format": 1', '"format": 1.0'),
        text.replace('"format": 1', '"format": true'),
        text.replace('"format": 1', '"format": 2'),
        text.replace('"format": 1', '"format": NaN'),
        text.replace('"format": 1', '"format": ' + "9" * 5000),
        text.replace('"posterax"', '"format": 7, "posterax"'),
        text + "}",
        text[:-1],
        "null",
        '{"format": 1, "agent": {}}',
        '{"format": 1, "estimator": {}}',
        '{"format": 1, "x": [' + "[]," * 10**6 + "0]}",
        '{"format": 1, "x": "' + "a" * 2**24 + '"}',
    ]
    return signed(arrays, texts[rng.integers(len(texts))])


def arrays_edited(arrays, header, rng):
    arrays, names = dict(arrays), sorted(arrays)
    one, other = rng.choice(names, 2)
    array = arrays[one]
    zeros = zlib.compress(bytes(10**7))
    with np.errstate(all="ignore"):
        changes = [
            lambda: {one: array.astype(np.float64)},
            lambda: {one: array.astype(np.float16)},
            lambda: {one: array.astype(np.int32)},
            lambda: {one: array.astype(bool)},
            lambda: {one: array.ravel()},
            lambda: {one: array[None]},
            lambda: {one: array[..., None]},
            lambda: {one: np.ascontiguousarray(array.T)},
            lambda: {one: array[:0] if array.ndim else array},
            lambda: {one: array[:-1] if array.ndim else array},
            lambda: {one: np.repeat(array, 3, axis=0) if array.ndim else array},
            lambda: {one: np.zeros((0, 7), "float32")},
            lambda: {one: np.full_like(array, 127)},
            lambda: {one: arrays[other], other: array},
            lambda: {one: arrays[other]},
            lambda: {"mask/layers.0.weight": np.frombuffer(zeros, np.uint8)},
            lambda: {"mask/layers.0.weight": np.ones(3, np.uint8)},
            lambda: {"mask/os.system": np.ones(3, np.uint8)},
            lambda: {"mu/9999/os.system": array},
            lambda: {f"{one}/more": array},
        ]
        which = int(rng.integers(len(changes) + 2))
        if which < len(changes):
            arrays |= changes[which]()
        else:  # renamed, or gone
            del arrays[one]
            arrays |= {} if which == len(changes) else {one[:-1]: array}
    return signed(arrays, json.dumps(header))


def absurd():
    """Sizes that agree with one another, and with nothing that the file holds."""

    def changed(name, change):
        arrays, header = checkpoint.read(HERE / f"{name}.px")
        change(header)
        return signed(arrays, json.dumps(header))

    def network(name, **config):
        def change(header):
            header["model"]["network"] = {"name": name, "config": config}
            if config.get("layers", 0) < 100 and len(config.get("hidden_sizes", ())) < 100:
                make = lambda: px.networks.as_network(px.networks.BY_NAME[name](**config, key=0))  # noqa: E731
                header["model"]["fingerprint"] = eqx.filter_eval_shape(make).fingerprint()

        return change

    for name in ("MeanFieldGaussian", "PriorPosterior"):
        for hidden in ([10**9], [10**4, 10**4], [2**30, 2**30], [3] * 10**5):
            yield changed(name, network("MLP", in_size=2, out_size=1, hidden_sizes=hidden))
        yield changed(name, network("Transformer", in_size=2, out_size=1, layers=10**8))
        yield changed(name, network("Transformer", in_size=2, out_size=1, length=10**9))
        yield changed(name, network("Recurrent", in_size=2, out_size=1, hidden_size=10**6))
        for inner in ([10**9], [2**62], [2**20, 2**20], [2] * 40):
            yield changed(name, lambda h, inner=inner: h.update(targets=[inner, inner]))
    for name in AGENTS:
        for change in ({"features": 10**9}, {"actions": 2**30}, {"features": 2**31}):
            yield changed(name, lambda h, change=change: h["agent"].update(change))
    wide = [{"hidden": {"tuple": sizes}} for sizes in ([10**9], [10**4, 10**4])]
    for setting in (*wide, {"buffer": 10**8}, {"batch_size": 10**8}):
        yield changed(
            "Thompson", lambda h, setting=setting: h["agent"]["policy"]["with"].update(setting)
        )


# -- what must hold of each


@pytest.fixture(scope="module")
def originals():
    found = {}
    for name in NAMES:
        path = HERE / f"{name}.px"
        found[name] = (path.read_bytes(), *checkpoint.read(path))
    return found


@pytest.fixture
def written(monkeypatch):
    """What would be written, instead of a file."""
    kept = {}

    def keep(path, arrays, header):
        kept.update(arrays=arrays, header=json.loads(json.dumps(header)))

    monkeypatch.setattr(files, "write", keep)
    monkeypatch.setattr(agents, "write", keep)
    return kept


def peak():
    """The most memory since the last call of ``forget_peak``."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def forget_peak():
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("the most memory a process had cannot be read here")


def attempt(path, content):
    """What loads, or ``None`` where it was refused with a reason in one line."""
    path.write_bytes(content)
    reader = px.load
    try:
        if b'\\"agent\\"' in content[:100_000]:
            reader = px.bandits.load
        began = time.process_time()
        try:
            return reader(path)
        finally:
            assert time.process_time() - began < SECONDS
    except px.CheckpointError as error:
        text = str(error)
        assert text.startswith(f"{path}: ")
        assert len(text) > len(str(path)) + 10
        assert len(text.splitlines()) == 1
        assert len(text) < 600
        return None


def same(a, b):
    """Equality of JSON: 1 is 1.0, NaN is NaN, and of settings those that both have."""
    if isinstance(a, dict) and isinstance(b, dict):
        return all(same(a[k], b[k]) for k in a.keys() & b.keys())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def check_damage(content, original, path):
    loaded = attempt(path, content)
    if loaded is not None:  # what it was made of is all that a file has
        arrays, header = checkpoint.read(path)
        np.testing.assert_equal(arrays, original[1])
        assert header == original[2]
    return loaded is None


def first_draw(posterior):
    ids = posterior.particles(jax.random.key(0), 2).ids
    return jax.tree.map(lambda a: a[0], ids)


def answers(loaded):
    """What loads can be asked, and says something for each row."""
    if isinstance(loaded, px.bandits.Agent):
        assert loaded.choose(X[0]) in range(loaded.actions)
    elif isinstance(loaded, px.Posterior):
        assert len(loaded.predict(X[:3], samples=2, key=0).mean) == 3
    else:
        table = X if loaded.columns is None else TABLE
        assert len(loaded.predictive(table[:3], samples=2).mean) == 3
        found = loaded.set_params(samples=2).predict(table[:3])  # a setting may be any number
        assert found.shape == (3, *getattr(loaded, "_target_shape", ()))


def check_edit(content, path, written):
    loaded = attempt(path, content)
    if loaded is None:
        return True
    arrays, header = checkpoint.read(path)
    posterior = getattr(loaded, "posterior_", loaded)
    if isinstance(posterior, px.Posterior):  # a draw is a set of weights of its network
        draw = jax.eval_shape(posterior.parameters, first_draw(posterior))
        like = posterior.model.parameters
        assert [a.shape for a in jax.tree.leaves(draw)] == [a.shape for a in jax.tree.leaves(like)]
    loaded.save("nowhere")
    answers(loaded)
    # of an agent by name it is not read, and depends on how its settings were given
    written["header"].get("agent", {}).pop("fingerprint", None)
    for name, array in written["arrays"].items():
        np.testing.assert_array_equal(array, arrays[name].astype(array.dtype), name)
    for name in (*COMPARED, "agent"):
        if name in header and name in written["header"]:
            said = written["header"][name]
            if name == "evidence" and header[name]:  # the first files had no third entry
                said = said[: len(header[name])]
            assert same(said, header[name]), name
    return False


def all_of(count, make, originals, check, every=1):
    """How many of the files were not refused; the number of one that was not right is said."""
    loaded = 0
    for i in range(0, count, every):
        rng = np.random.default_rng([count, i])
        name = NAMES[i % len(NAMES)]
        try:
            loaded += not check(make(originals[name], rng), originals[name])
        except BaseException as error:
            error.add_note(f"file {i} of {count}, from {name}")
            raise
    return loaded


@pytest.mark.parametrize(
    "every", [8, pytest.param(1, marks=pytest.mark.slow)], ids=["most", "a thousand"]
)
def test_changed_files_are_refused_or_unchanged(every, originals, written, tmp_path):
    path, canary = tmp_path / "a file.px", tmp_path / "canary"
    for name in NAMES:  # as they are, so that all that loading takes is compiled and there
        assert not check_edit(originals[name][0], path, written)
    forget_peak()
    before = peak()
    damage = lambda content, original: check_damage(content, original, path)  # noqa: E731
    edit = lambda content, original: check_edit(content, path, written)  # noqa: E731
    assert all_of(260, lambda o, rng: flipped(o[0], rng), originals, damage) < 10
    assert all_of(100, lambda o, rng: cut(o[0], rng), originals, damage) == 0
    assert all_of(40, lambda o, rng: longer(o[0], rng), originals, damage) == 0
    assert all_of(100, lambda o, rng: table_changed(o[0], rng), originals, damage) < 10
    others, sizes = other_formats(canary), list(absurd())
    for i, content in enumerate([*others, *sizes]):
        assert attempt(path, content) is None, i
    assert all_of(40, lambda o, rng: text_edited(*o[1:], rng), originals, edit, every) == 0
    # of the edits some are consistent: neither are all refused, nor do all load
    found = all_of(120, lambda o, rng: arrays_edited(*o[1:], rng), originals, edit, every)
    assert found > 0
    assert every > 1 or 20 < found < 80
    left = 1000 - 660 - len(others) - len(sizes)
    found = all_of(left, lambda o, rng: json_edited(*o[1:], rng), originals, edit, every)
    assert found > 0
    assert every > 1 or 40 < found < 160
    assert peak() - before < MEMORY
    assert not canary.exists()
    assert {p.name for p in tmp_path.iterdir()} == {path.name}


def test_the_canary_sings(tmp_path):
    """Where a pickle is read the test above would see it."""
    pickle.loads(pickle.dumps(Canary(tmp_path / "canary")))
    assert (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("BayesianClassifier", "labels", "<U99999999"),
        ("BayesianClassifier", "labels", "bool"),
        ("BayesianClassifier", "classes_", ["a", "a", "b"]),
        ("BayesianClassifier", "classes_", ["c", "b", "a"]),
        ("BayesianClassifier", "classes_", ["a", "b"]),
        ("BayesianRegressor", "n_features_in_", 7),
        ("BayesianRegressor", "seeds", [2**70] * 3),
        ("BayesianRegressor", "updates_", -5),
        ("BayesianRegressor", "target_shape", [-1]),
        ("BayesianRegressor", "x_scale", np.zeros(2)),
        ("BayesianRegressor", "y_scale", np.full(1, np.nan)),
        ("BayesianRegressor", "spread", np.zeros(0)),
        ("columns", "n_features_in_", 4),
        ("columns", "feature_names_in_", ["a", "b"]),
    ],
)
def test_an_estimators_parts_fit_one_another(name, place, value, tmp_path):
    arrays, header = checkpoint.read(HERE / f"{name}.px")
    if isinstance(value, np.ndarray):
        arrays[f"estimator/{place}"] = value
    else:
        header["estimator"]["fitted"][place] = value
    assert attempt(tmp_path / "a file.px", signed(arrays, json.dumps(header))) is None


def test_evidence_of_one_is_evidence(tmp_path):
    arrays, header = checkpoint.read(HERE / "MeanFieldGaussian.px")
    content = signed(arrays, json.dumps(header | {"evidence": [1.0, 0.0, "bound"]}))
    assert attempt(tmp_path / "a file.px", content).evidence[0] == 1.0
