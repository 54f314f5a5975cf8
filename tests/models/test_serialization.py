"""Saved models load unchanged, and damaged files raise errors."""

from __future__ import annotations

import contextlib
import json
import math
import pickle
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from gbwatt import _io
from gbwatt.decoding import EEGDecoder, GBWAttClassifier
from gbwatt.errors import ModelFileError, ScaleWarning
from gbwatt.models import GBWAtt, create, registry, serialization
from gbwatt.models.serialization import load_pretrained, save_pretrained
from tests.decoding.tiny import Tiny, make_trials, register_tiny
from tests.memory import limited_memory

ARGUMENTS = {"n_chans": 4, "n_outputs": 2, "n_times": 32}


@pytest.fixture(autouse=True)
def tiny():
    register_tiny()
    yield
    registry._MODELS.pop("tiny", None)


@pytest.fixture
def model():
    """With buffers that training has moved."""
    made = Tiny(4, 2)
    made(torch.randn(8, 4, 32, generator=torch.Generator().manual_seed(0)))
    return made


@pytest.fixture
def folder(model, tmp_path):
    save_pretrained(model, tmp_path / "model", name="tiny", arguments=ARGUMENTS, class_names=["left", "right"])
    return tmp_path / "model"


def same(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a)


def edit(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(_io.sealed(json.dumps({**config, **changes}))))


# ---- what is saved comes back


def test_a_model_comes_back_with_parameters_buffers_and_metadata(model, tmp_path):
    save_pretrained(
        model,
        tmp_path / "a" / "b",
        name="tiny",
        arguments=ARGUMENTS,
        class_names=np.array([3, 5]),
        preprocessing={"band": [4, 38]},
        extra={"site": "Ulm"},
    )
    loaded = load_pretrained(tmp_path / "a" / "b")
    assert same(loaded.model, model)
    assert not loaded.model.training
    assert (loaded.name, dict(loaded.arguments)) == ("tiny", ARGUMENTS)
    assert (loaded.class_names, loaded.preprocessing, loaded.extra) == ((3, 5), {"band": [4, 38]}, {"site": "Ulm"})


def test_gbwatt_saves_itself_by_its_configuration(tmp_path):
    model = GBWAtt(4, 3, 64, sfreq=128, theta=0.5, shrinkage="oas", k=3)
    model.save_pretrained(tmp_path, class_names=["a", "b", "c"])
    loaded = GBWAtt.from_pretrained(tmp_path)
    assert loaded.config == model.config
    x = torch.randn(2, 4, 64)
    assert torch.equal(loaded(x), model.eval()(x))


def test_precision_and_manifolds_are_kept(model, tmp_path):
    model = model.double()
    save_pretrained(model, tmp_path, name="tiny", arguments=ARGUMENTS)
    loaded = load_pretrained(tmp_path).model
    assert same(loaded, model)
    assert type(loaded.mix) is type(model.mix)
    assert loaded.mix.requires_grad


def test_the_random_numbers_of_the_caller_are_not_touched(folder):
    before = torch.get_rng_state()
    load_pretrained(folder)
    assert torch.equal(before, torch.get_rng_state())


def test_the_folder_says_what_it_is(folder, model):
    config = json.loads((folder / "config.json").read_text())
    assert config["format"] == serialization.FORMAT
    assert config["model"] == "tiny"
    assert config["n_parameters"] == sum(p.numel() for p in model.parameters())
    assert set(config["versions"]) == {"gbwatt", "torch", "python"}
    card = (folder / "README.md").read_text()
    assert "(batch, 4, 32)" in card
    assert "left, right" in card
    assert "load_pretrained" in card
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]


def test_other_files_of_the_folder_stay(model, folder):
    (folder / "notes.txt").write_text("mine")
    save_pretrained(model, folder, name="tiny", arguments=ARGUMENTS)
    assert (folder / "notes.txt").read_text() == "mine"


# ---- what cannot be saved


def test_a_model_that_could_not_be_loaded_is_not_saved(model, tmp_path):
    cases = [
        ({"name": "tiny"}, "no attribute 'config'"),
        ({"name": "tiny", "arguments": {**ARGUMENTS, "width": 2}}, "'mix'"),
        ({"name": "tiny", "arguments": {**ARGUMENTS, "wdth": 2}}, "wdth"),
        ({"name": "tiny", "arguments": ARGUMENTS, "extra": {"x": object()}}, "cannot be written as JSON"),
        ({"name": "tiny", "arguments": ARGUMENTS, "extra": {(1, 2): 3}}, "cannot be written as JSON"),
        ({"name": "tinny", "arguments": ARGUMENTS}, "'tinny'"),
    ]
    for arguments, message in cases:
        with pytest.raises(ModelFileError, match=message):
            save_pretrained(model, tmp_path / "none", **arguments)
    with pytest.raises(ModelFileError, match="give name"):
        save_pretrained(torch.nn.Linear(2, 2), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_an_interrupted_save_leaves_the_old_model_or_the_new(model, folder, monkeypatch):
    """Whichever of the renames is the last that happens."""
    old = {name: x.clone() for name, x in model.state_dict().items()}
    replace, seen = Path.replace, set()
    for last in range(5):
        new = Tiny(4, 2)
        count = [0]

        def limited(self, target, last=last, count=count):
            if count[0] == last:
                raise KeyboardInterrupt
            count[0] += 1
            return replace(self, target)

        save_pretrained(model, folder, name="tiny", arguments=ARGUMENTS, class_names=["old", "model"])
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", limited)
            with contextlib.suppress(KeyboardInterrupt):
                save_pretrained(new, folder, name="tiny", arguments=ARGUMENTS, class_names=["new", "model"])
        loaded = load_pretrained(folder)
        expected = {"old": old, "new": new.state_dict()}[loaded.class_names[0]]
        assert all(torch.equal(x, expected[name]) for name, x in loaded.model.state_dict().items())
        seen.add(loaded.class_names[0])
    assert seen == {"old", "new"}


# ---- damage


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(ModelFileError, match=f"{name} does not exist"):
        load_pretrained(folder)


@pytest.mark.parametrize("content", [b"", b"\x00" * 4, pickle.dumps({"a": 1}), None])
def test_weights_that_are_truncated_or_foreign_are_refused(folder, content):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-7] if content is None else content)
    with pytest.raises(ModelFileError, match=r"model\.safetensors .*safetensors file"):
        load_pretrained(folder)


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"format": "one"}', "\udcff"])
def test_a_damaged_configuration_is_refused(folder, text):
    (folder / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ModelFileError, match=r"config\.json (is damaged|is not a configuration)"):
        load_pretrained(folder)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"format": 99}, "format 99.*newer gbwatt"),
        ({"model": "tinier"}, "names the model 'tinier'"),
        ({"model": 3}, "wrong type for .*model"),
        ({"arguments": {**ARGUMENTS, "colour": 1}}, "colour"),
        ({"arguments": {"n_chans": -4, "n_outputs": 2, "n_times": 32}}, "n_chans"),
        ({"arguments": {**ARGUMENTS, "n_outputs": 3}}, r"'final_layer\..*should be"),
    ],
)
def test_a_configuration_of_another_version_is_explained(folder, changes, message):
    edit(folder, **changes)
    with pytest.raises(ModelFileError, match=message):
        load_pretrained(folder)


def test_an_incomplete_configuration_is_refused(folder):
    (folder / "config.json").write_text('{"format": 1, "model": "tiny"}')
    with pytest.raises(ModelFileError, match=r"lacks .*arguments"):
        load_pretrained(folder)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda t: t.pop("mix"), "'mix' is missing"),
        (lambda t: t.update(other=torch.ones(1)), "'other' is not part of this model"),
        (lambda t: t.update(mix=torch.ones(3, 4)), r"'mix' is torch.float32 \(3, 4\) and should be .* \(4, 3\)"),
        (lambda t: t.update(mix=torch.ones(4, 3, dtype=torch.int64)), "'mix' is torch.int64"),
        (lambda t: t.update(mix=t["mix"] + 1), "was changed"),
    ],
)
def test_weights_of_another_model_are_refused(folder, change, message):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelFileError, match=message):
        load_pretrained(folder)


def test_a_changed_configuration_is_noticed(folder):
    path = folder / "config.json"
    text = path.read_text()
    assert load_pretrained(folder).class_names == ("left", "right")
    path.write_text(text.replace('"left"', '"lefd"'))
    with pytest.raises(ModelFileError, match=r"config\.json is damaged or was changed .*'sha256'"):
        load_pretrained(folder)
    path.write_text(json.dumps({k: v for k, v in json.loads(text).items() if k != "sha256"}))
    with pytest.raises(ModelFileError, match=r"config\.json is damaged or was changed"):
        load_pretrained(folder)
    path.write_text(json.dumps(json.loads(text)))  # other white space is no change
    assert load_pretrained(folder).class_names == ("left", "right")


def test_a_configuration_of_format_1_has_no_checksum_and_is_read(folder, model):
    path = folder / "config.json"
    old = {k: v for k, v in json.loads(path.read_text()).items() if k != "sha256"} | {
        "format": 1,
        "class_names": [3, 4],
    }
    path.write_text(json.dumps(old))
    loaded = load_pretrained(folder)
    assert same(loaded.model, model)
    assert loaded.class_names == (3, 4)


@pytest.mark.parametrize(
    "name, arguments, changes",
    [
        ("tiny", ARGUMENTS, {"n_outputs": 10_000_000_000}),
        ("tiny", ARGUMENTS, {"n_outputs": 100_000_000}),
        ("tiny", ARGUMENTS, {"width": 60_000_000}),
        ("gbwatt", {"n_chans": 4, "n_outputs": 2, "n_times": 64}, {"n_outputs": 10_000_000}),
        ("gbwatt", {"n_chans": 4, "n_outputs": 2, "n_times": 64}, {"n_chans": 3_000_000}),
        ("spdnet", {"n_chans": 4, "n_outputs": 2, "n_times": 64}, {"n_outputs": 1e9}),
    ],
)
def test_a_configuration_cannot_ask_for_more_memory_than_its_weights_need(tmp_path, name, arguments, changes):
    save_pretrained(create(name, **arguments), tmp_path, name=name, arguments=arguments)
    edit(tmp_path, arguments={**arguments, **changes})
    (changed,) = changes
    message = rf"config\.json describes a model that is too large .*{changed}="
    with pytest.raises(ModelFileError, match=message), limited_memory(300 << 20):
        load_pretrained(tmp_path)


def test_numbers_without_end_in_a_configuration_are_refused(folder):
    for changes in ({"n_outputs": math.inf}, {"n_outputs": math.nan}, {"n_chans": 1e300}, {"n_times": -math.inf}):
        edit(folder, arguments={**ARGUMENTS, **changes})
        with pytest.raises(ModelFileError, match=r"config\.json"):
            load_pretrained(folder)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format":' * 50_000, '{"format": ' + "9" * 5000 + "}"])
def test_a_configuration_nested_too_deeply_is_refused(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelFileError, match=r"config\.json"):
        load_pretrained(folder)


def test_a_configuration_nested_nearly_too_deeply_is_refused(folder):
    """Python reads a few more levels of JSON than it writes."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | {"preprocessing": "nested"}
    for depth in range(sys.getrecursionlimit() - 300, sys.getrecursionlimit() + 10):
        path.write_text(json.dumps(config).replace('"nested"', "[" * depth + "]" * depth))
        with pytest.raises(ModelFileError, match=r"config\.json is damaged"):
            serialization.read_config(path)


def test_what_is_nested_too_deeply_is_not_saved(model, tmp_path):
    nested = []
    for _ in range(2000):
        nested = [nested]
    with pytest.raises(ModelFileError, match="cannot be written as JSON"):
        save_pretrained(model, tmp_path / "none", name="tiny", arguments=ARGUMENTS, preprocessing=nested)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("size", [10**30, 10**4000], ids=["10**30", "10**4000"])
def test_errors_of_torch_are_shown_in_one_line(folder, size):
    edit(folder, arguments={**ARGUMENTS, "n_outputs": size})
    with pytest.raises(ModelFileError, match=r"config\.json") as caught:
        load_pretrained(folder)
    message = str(caught.value).removeprefix(str(folder))
    assert "\n" not in message
    assert "C++" not in message
    assert len(message) < 500
    assert message.endswith("Install the version that wrote it.")


def test_a_configuration_names_no_file_of_weights_elsewhere(folder, monkeypatch):
    asked = []

    def build(signal, task, weights):
        asked.append(weights)
        return Tiny(signal.n_chans, signal.n_outputs)

    monkeypatch.setitem(registry._MODELS, "tiny", registry.Entry("tiny", build, "for tests", options=("weights",)))
    edit(folder, arguments={**ARGUMENTS, "weights": "/etc/passwd"})
    load_pretrained(folder)
    assert asked == ["later"]


def test_another_class_is_refused(folder):
    with pytest.raises(ModelFileError, match="Tiny, not a GBWAtt"):
        GBWAtt.from_pretrained(folder)


# ---- estimators


@pytest.mark.parametrize("kind", ["text", "number", "object"])
def test_an_estimator_comes_back_ready_to_predict(tmp_path, kind):
    x, y = make_trials(n=30)
    y = {"text": y, "number": np.where(y == "left", 4, 9), "object": y.astype(object)}[kind]
    decoder = EEGDecoder(
        "tiny",
        max_epochs=3,
        lr=0.05,
        batch_size=8,
        model_options={"width": 2},
        validation=np.array([0, 1, 5]),
        class_weight={y[0]: 2.0},
        sfreq=128,
        log=tmp_path / "log.csv",
    ).fit(x, y)
    decoder.save_pretrained(tmp_path / "model", preprocessing={"band": [1, 40]})
    loaded = EEGDecoder.from_pretrained(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(x), decoder.predict_proba(x))
    assert np.array_equal(loaded.predict(x), decoder.predict(x))
    assert loaded.classes_.dtype == decoder.classes_.dtype
    assert loaded.history_ == decoder.history_
    assert loaded.best_epoch_ == decoder.best_epoch_
    assert loaded.signal_ == decoder.signal_
    assert loaded.class_weight == {y[0]: 2.0}
    assert loaded.validation == [0, 1, 5]
    assert loaded.log is None
    assert load_pretrained(tmp_path / "model").preprocessing == {"band": [1, 40]}
    assert str(tmp_path) not in (tmp_path / "model" / "config.json").read_text()
    assert "best_epoch" in (tmp_path / "model" / "README.md").read_text()
    refitted = loaded.fit(x, y)
    assert np.array_equal(refitted.predict_proba(x), decoder.predict_proba(x))


def test_the_classifier_comes_back_as_itself(tmp_path):
    x, y = make_trials(n=24, n_times=64)
    fitted = GBWAttClassifier(task="mi", max_epochs=2, theta=0.5, validation=(x[:6], y[:6])).fit(x[6:], y[6:])
    fitted.save_pretrained(tmp_path)
    loaded = GBWAttClassifier.from_pretrained(tmp_path)
    assert loaded.theta == 0.5
    assert np.array_equal(loaded.predict_proba(x), fitted.predict_proba(x))
    with pytest.raises(ModelFileError, match=r"use GBWAttClassifier\.from_pretrained"):
        EEGDecoder.from_pretrained(tmp_path)
    assert torch.equal(load_pretrained(tmp_path).model.final_layer.bias, fitted.net_.module_.final_layer.bias)


def test_models_made_for_a_task_are_saved_through_their_configuration(tmp_path):
    model = create("bwatt", task="ssvep")
    model.save_pretrained(tmp_path)
    assert same(load_pretrained(tmp_path).model, model)


def test_a_model_is_not_taken_for_an_estimator(folder):
    with pytest.raises(ModelFileError, match="without an estimator"):
        EEGDecoder.from_pretrained(folder)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda saved: saved["parameters"].update(log="/tmp/elsewhere.csv"), "log among its parameters"),
        (lambda saved: saved["parameters"].update(checkpoint="/tmp/elsewhere"), "checkpoint among its parameters"),
        (lambda saved: saved.update(classes_dtype="<U500000000"), "U500000000"),
        (lambda saved: saved.update(classes_dtype="O, O"), "dtype"),
        (lambda saved: saved.update(classes=["left", "left"]), "not distinct"),
        (lambda saved: saved.update(classes=["left", None]), "not distinct names"),
        (lambda saved: saved.update(classes=["left", 3]), "not distinct names"),
        (lambda saved: saved.update(scale="large"), "scale"),
        (lambda saved: saved.update(scale=10**400), "scale"),
        (lambda saved: saved.update(scale=math.nan), "scale=nan"),
        (lambda saved: saved.update(scale=-1.0), r"scale=-1\.0"),
        (lambda saved: saved.update(scale=True), "scale"),
        (lambda saved: saved.update(history=[{}]), "duration"),
        (lambda saved: saved.update(history=3), "int"),
        (lambda saved: saved["parameters"].update(class_weight=[[1]]), "class_weight|sequence|length"),
        (lambda saved: saved["parameters"].update(seed=-1), "seed"),
    ],
)
def test_an_estimator_with_wrong_values_is_refused(tmp_path, change, message):
    x, y = make_trials(n=20)
    EEGDecoder("tiny", max_epochs=1).fit(x, y).save_pretrained(tmp_path)
    extra = json.loads((tmp_path / "config.json").read_text())["extra"]
    change(extra["estimator"])
    edit(tmp_path, extra=extra)
    with pytest.raises(ModelFileError, match=message):
        EEGDecoder.from_pretrained(tmp_path)


@pytest.mark.parametrize("saved", [3, [], "x", {"class": 3}, {"class": "EEGDecoder", "parameters": None}])
def test_an_estimator_of_a_wrong_type_is_refused(tmp_path, saved):
    x, y = make_trials(n=20)
    EEGDecoder("tiny", max_epochs=1).fit(x, y).save_pretrained(tmp_path)
    edit(tmp_path, extra={"estimator": saved})
    with pytest.raises(ModelFileError):
        EEGDecoder.from_pretrained(tmp_path)


def test_an_estimator_of_another_version_is_explained(tmp_path):
    x, y = make_trials(n=20)
    EEGDecoder("tiny", max_epochs=1).fit(x, y).save_pretrained(tmp_path)
    extra = json.loads((tmp_path / "config.json").read_text())["extra"]
    extra["estimator"]["parameters"]["mood"] = "good"
    edit(tmp_path, extra=extra)
    with pytest.raises(ModelFileError, match="mood"):
        EEGDecoder.from_pretrained(tmp_path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no endless device on this system")
def test_a_link_to_a_device_is_no_model_file(folder):
    for name in ("model.safetensors", "config.json"):
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        (folder / name).symlink_to("/dev/zero")
        with pytest.raises(ModelFileError, match="regular file"):
            load_pretrained(folder)
        (folder / name).unlink()
        (folder / name).write_bytes(content)
    load_pretrained(folder)


def test_a_network_alone_warns_of_the_factor_of_its_estimator(tmp_path):
    x, y = np.random.default_rng(0).standard_normal((20, 4, 64)), np.arange(20) % 2
    for factor in (1e-5, 1.0):
        GBWAttClassifier(task="mi", max_epochs=1, validation=None).fit(
            factor * x / np.median(x.std(-1)), y
        ).save_pretrained(tmp_path)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            GBWAtt.from_pretrained(tmp_path)
            scale = load_pretrained(tmp_path).extra["multiply epochs by"]
            GBWAttClassifier.from_pretrained(tmp_path)
        assert scale == pytest.approx(1 / factor, rel=1e-2)
        assert [warning.category for warning in caught] == [ScaleWarning] * (factor != 1)
        assert all(warning.filename == __file__ for warning in caught)
        said = [str(warning.message) for warning in caught]
        assert all(re.search(r"multiply epochs by .*GBWAttClassifier\.from_pretrained", text) for text in said)


def test_folders_that_cannot_be_written_are_named_with_the_reason(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", "/proc/model"):
        with pytest.raises(ModelFileError, match=rf"^{folder} cannot be written \(.+\); choose another folder"):
            save_pretrained(create("spdnet", n_chans=4, n_outputs=2, n_times=64), folder)
