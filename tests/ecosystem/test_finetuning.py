"""Training on windows: the same result by one process, by two, and after being killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

pytest.importorskip("accelerate", reason="accelerate is not installed: pip install 'gbwatt[clinical]'")

from gbwatt.clinical.finetuning import FineTuning, finetune, group_options, make_accelerator, predict
from gbwatt.decoding import checkpoints
from gbwatt.errors import CheckpointError, NonFiniteLossError, NotFiniteError, ParameterError
from gbwatt.nn.optim import on_manifold, parameter_groups
from tests.decoding.windows import InMemory, small_model
from tests.ecosystem.finetune_small import SETTINGS
from tests.fuzz.damage import damaged

pytestmark = pytest.mark.ecosystem

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("finetune_small.py")


def run(folder: Path, *arguments: str, processes: int = 1) -> subprocess.CompletedProcess:
    folder.mkdir(exist_ok=True)
    several = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"] if processes > 1 else []
    command = [sys.executable, *several, str(PROGRAM), str(folder), *arguments]
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


def course(folder: Path, n_valid: str = "61", **how) -> dict:
    done = run(folder, n_valid, **how)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads((folder / "course.json").read_text())


def losses(found: dict) -> np.ndarray:
    return np.array([loss for row in found["history"] for loss in row["step_losses"]])


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return course(tmp_path_factory.mktemp("alone"))


def test_two_processes_have_the_losses_of_one(alone, tmp_path):
    both = course(tmp_path / "both", processes=2)
    assert (alone["processes"], both["processes"]) == (1, 2)
    assert len(losses(alone)) == 3 * 5
    np.testing.assert_allclose(losses(both), losses(alone), rtol=1e-5)
    for name in ("valid_loss", "valid_accuracy", "train_loss"):
        ours, theirs = ([row[name] for row in found["history"]] for found in (both, alone))
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_a_process_without_windows_for_validation_does_not_wait_forever(tmp_path):
    both = course(tmp_path / "both", "1", processes=2)
    assert len(both["history"]) == 3


@pytest.mark.parametrize("at", [3, 8])
def test_a_training_that_was_killed_goes_on_to_the_same_result(alone, tmp_path, at):
    assert run(tmp_path / "killed", "61", str(at)).returncode == -9
    again = course(tmp_path / "killed")
    assert again["steps"] < 3 * 5  # what was done was not done again
    assert losses(again).tolist() == losses(alone).tolist()
    assert [row["valid_loss"] for row in again["history"]] == [row["valid_loss"] for row in alone["history"]]


def test_it_learns_and_leaves_the_weights_of_its_best_epoch():
    model, valid = small_model(), InMemory(61, seed=1)
    accelerator = make_accelerator()
    found = finetune(model, InMemory(150), valid, SETTINGS, accelerator=accelerator)
    assert found.history[-1]["valid_accuracy"] > 0.9
    assert all(torch.equal(x, found.best[name]) for name, x in model.state_dict().items())
    logits = predict(model, valid, 16, accelerator)
    likelihood = torch.nn.functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(valid.labels))
    assert float(likelihood) == pytest.approx(min(row["valid_loss"] for row in found.history), rel=1e-5)


def test_shards_make_other_random_numbers_but_processes_and_callers_do_not():
    def first(**changes):
        torch.manual_seed(1)  # whatever the caller has drawn
        settings = replace(SETTINGS, max_epochs=1, **changes)
        return finetune(small_model(), InMemory(150), InMemory(20), settings).history[0]["train_loss"]

    usual = first()
    torch.manual_seed(5)
    assert first() == usual
    assert first(shards=2) != usual
    assert first(seed=1) != usual


def test_random_numbers_of_the_caller_are_given_back():
    model = small_model()
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    finetune(model, InMemory(60), InMemory(20), replace(SETTINGS, max_epochs=1))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_bfloat16_learns_as_well():
    program = (
        "from tests.decoding.windows import *; from dataclasses import replace\n"
        "from tests.ecosystem.finetune_small import SETTINGS\n"
        "from gbwatt.clinical.finetuning import finetune\n"
        "course = finetune(small_model(), InMemory(150), InMemory(61, 1), replace(SETTINGS, precision='bfloat16'))\n"
        "print(course.history[-1]['valid_accuracy'])"
    )  # in a process of its own: a process has one precision
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout.split()[-1]) > 0.9


def test_a_process_may_train_in_one_precision_and_then_in_another():
    model, x = small_model(), torch.from_numpy(InMemory(5).x)
    for precision in ("bfloat16", "float32"):
        finetune(model, InMemory(60), InMemory(20), replace(SETTINGS, max_epochs=1, precision=precision))
        assert model.eval().head(model.backbone(x)).dtype == torch.float32
        assert model(x).dtype == torch.float32
        again = small_model()
        again.load_state_dict(model.state_dict())
        assert torch.equal(again.eval()(x), model(x))  # what was trained computes as what is saved


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_half_precision_is_refused_without_a_gpu():
    with pytest.raises(ParameterError, match="precision='float16' needs a GPU"):
        make_accelerator("float16")


def test_windows_in_float64_and_labels_that_are_none():
    windows = InMemory(60)
    windows.x = windows.x.astype(np.float64)
    settings = replace(SETTINGS, max_epochs=1)
    assert finetune(small_model(), windows, InMemory(20), settings).history
    windows.labels = windows.labels + 1
    with pytest.raises(ParameterError, match="'train' has labels from 1 to 2"):
        finetune(small_model(), windows, InMemory(20), settings)


def test_early_stopping_ends_without_a_gain():
    settings = replace(SETTINGS, lr=1e-12, weight_decay=0.0, max_epochs=30, early_stopping=2)
    found = finetune(small_model(), InMemory(60), InMemory(20), settings)
    assert len(found.history) == found.best_epoch + 2 < 30


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    settings = replace(SETTINGS, max_epochs=1)
    finetune(small_model(), InMemory(60), InMemory(20), settings, checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match=r"belongs to another training: lr is 0.01 there and 0.001 here\."):
        finetune(small_model(), InMemory(60), InMemory(20), replace(settings, lr=1e-3), checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match="data is None there and other here"):
        finetune(
            small_model(), InMemory(60), InMemory(20), settings, checkpoint=tmp_path, fingerprint={"data": "other"}
        )
    with pytest.raises(CheckpointError, match="training windows is 60, labels"):
        finetune(small_model(), InMemory(60, seed=4), InMemory(20), settings, checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match="parameters is"):
        finetune(small_model(head="matt"), InMemory(60), InMemory(20), settings, checkpoint=tmp_path)


def test_windows_that_are_not_finite_stop_it_and_leave_the_checkpoint(tmp_path):
    settings, bad = replace(SETTINGS, max_epochs=2), InMemory(60)
    bad.x[7] = np.nan
    with pytest.raises((NonFiniteLossError, NotFiniteError), match=r"not finite|NaN"):
        finetune(small_model(), bad, InMemory(20), settings, checkpoint=tmp_path / "bad")
    assert not (tmp_path / "bad" / "checkpoint.safetensors").exists()


# ---- settings


def test_early_layers_learn_more_slowly_and_manifolds_do_not_decay():
    model = small_model()
    settings = FineTuning(lr=1e-2, layer_decay=0.5, weight_decay=0.1)
    groups = parameter_groups(model, 0.1, lr=1e-2, **group_options(model, settings))
    head, backbone = ({id(p) for p in part.parameters()} for part in (model.head, model.backbone))
    for group in groups:
        for p in group["params"]:
            assert group["lr"] == pytest.approx(1e-2 * (0.5 if id(p) in backbone else 1.0))
            assert group["weight_decay"] == (0.1 if p.ndim > 1 and not on_manifold(p) else 0.0)
    assert head & {id(p) for group in groups for p in group["params"]}
    other = small_model(frozen=True)
    frozen = parameter_groups(other, 0.1, lr=1e-2, **group_options(other, settings))
    assert len([p for group in frozen for p in group["params"]]) == len(head) + 2


def test_the_rate_rises_and_falls():
    settings = FineTuning(warmup_epochs=1, max_epochs=4)
    rates = [settings.rate(step, steps=10) for step in range(40)]
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert (max(rates), rates[10]) == (1.0, 1.0)
    assert 0.01 <= rates[-1] < 0.03


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lr": 0.0}, "lr=0.0 must be above 0"),
        ({"layer_decay": 1.5}, "layer_decay=1.5"),
        ({"precision": "half"}, "precision='half'"),
        ({"label_smoothing": 1.0}, "label_smoothing=1.0"),
        ({"shards": 0}, "shards=0"),
        ({"early_stopping": 0}, "early_stopping=0"),
        ({"warmup_epochs": -5.0}, "warmup_epochs=-5.0 must be 0 or more"),
        ({"warmup_epochs": float("nan")}, "warmup_epochs=nan"),
        ({"warmup_epochs": 50.0}, "below max_epochs=50"),
        ({"schedule": "linear"}, "schedule='linear'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change, said):
    with pytest.raises(ParameterError, match=said):
        FineTuning(**change)


CHECKED = replace(SETTINGS, max_epochs=2, batch_size=16)


def started(folder):
    """A checkpoint inside the second epoch of a fine-tuning."""

    class Interrupted(Exception):
        pass

    def stop(epoch, step, *_):
        if (epoch, step) == (2, 2):
            raise Interrupted

    with pytest.raises(Interrupted):
        finetune(*(small_model(), InMemory(60), InMemory(20), CHECKED), checkpoint=folder, save_every=1, on_step=stop)
    return folder / checkpoints.FILE


def test_a_checkpoint_of_format_1_inside_an_epoch_is_continued(tmp_path):
    path = started(tmp_path)
    with safe_open(path, framework="pt") as file:
        notes = json.loads(file.metadata()["state"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert notes["progress"]["step"] == 1
    path.write_bytes(save({**tensors}, metadata={"state": json.dumps({**notes, "format": 1})}))
    model, whole = small_model(), small_model()
    finetune(model, InMemory(60), InMemory(20), CHECKED, checkpoint=tmp_path)
    finetune(whole, InMemory(60), InMemory(20), CHECKED)
    assert all(torch.equal(x, whole.state_dict()[name]) for name, x in model.state_dict().items())
    for progress in ({"step": 1, "losses": []}, {"step": -1, "losses": []}, {"step": "1"}, {"step": 99, "losses": []}):
        broken = {**notes, "format": 1, "progress": progress}
        path.write_bytes(save({**tensors}, metadata={"state": json.dumps(broken)}))
        with pytest.raises(CheckpointError, match="progress inside an epoch"):
            finetune(small_model(), InMemory(60), InMemory(20), CHECKED, checkpoint=tmp_path)


def test_changed_bits_of_a_checkpoint_are_noticed(tmp_path):
    path = started(tmp_path)
    whole = path.read_bytes()
    for _, changed in damaged(whole, 20, seed=0):
        path.write_bytes(changed)
        with pytest.raises(CheckpointError, match=r"checkpoint\.safetensors"):
            finetune(small_model(), InMemory(60), InMemory(20), CHECKED, checkpoint=tmp_path)
