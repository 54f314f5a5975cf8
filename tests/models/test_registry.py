"""Every registered model runs, trains all its parameters, and can fit a tiny data set, on all three tasks."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from gbwatt.clinical import BACKBONES
from gbwatt.errors import ParameterError
from gbwatt.models import create, entry, list_models
from gbwatt.models.presets import TASKS
from gbwatt.nn.optim import RiemannianAdam, make_optimizer

FOR_TASKS = [name for name in list_models() if entry(name).for_tasks]
OWN = [name for name in FOR_TASKS if entry(name).extra is None]
EXTERNAL = [pytest.param(name, marks=pytest.mark.ecosystem) for name in FOR_TASKS if entry(name).extra]
MODELS = [*OWN, *EXTERNAL]
TRAINED = [*(name for name in OWN if not entry(name).classical), *EXTERNAL]  # by gradient steps


def test_the_registry_is_complete():
    paper = {"eegnet", "shallowconvnet", "sccnet", "fbcnet", "tcnetfusion", "mbeegse"}
    paper |= {"spdnet", "spdnetbn", "matt", "gdlnet", "gbwatt"}
    assert paper <= set(list_models())
    assert len(OWN) + len(EXTERNAL) == len(FOR_TASKS)
    assert set(list_models()) - set(FOR_TASKS) == set(BACKBONES)  # tested with the corpora they are for
    assert all(entry(name).summary for name in list_models())


def recordings(task: str, trials: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    """Classes that differ in the frequency of an oscillation, and in the channels that show it."""
    signal = TASKS[task].signal
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(trials) % signal.n_outputs
    t = torch.arange(signal.n_times) / signal.sfreq
    x = 0.3 * torch.randn(trials, signal.n_chans, signal.n_times, generator=generator)
    for trial, label in enumerate(y.tolist()):
        phase = 6.28 * torch.rand((), generator=generator)
        x[trial, label :: signal.n_outputs] += torch.sin(2 * torch.pi * (7 + 4 * label) * t + phase)
    return x, y


def build(name: str, task: str) -> nn.Module:
    torch.manual_seed(0)
    try:
        return create(name, task=task)
    except ImportError as problem:
        pytest.skip(str(problem))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", MODELS)
def test_model_gives_finite_logits_for_both_layouts(name, task):
    model, (x, _) = build(name, task).eval(), recordings(task)
    logits = model(x)
    assert logits.shape == (10, TASKS[task].signal.n_outputs)
    assert torch.isfinite(logits).all()
    if entry(name).extra is None:
        assert torch.equal(model(x[:, None]), logits)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", TRAINED)
def test_gradients_reach_all_parameters(name, task):
    model, (x, y) = build(name, task), recordings(task)
    nn.functional.cross_entropy(model(x), y).backward()
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    assert trained
    for parameter_name, parameter in trained:
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name
    dead = [n for n, p in trained if not n.endswith("bias") and p.grad.abs().max() == 0]
    assert not dead


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", TRAINED)
def test_model_learns_a_tiny_set_by_heart(name, task):
    model, (x, y) = build(name, task), recordings(task)
    optimizer = RiemannianAdam(model.parameters(), lr=5e-3)
    for _ in range(20):
        for _ in range(10):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(x).argmax(1) == y).double().mean()
        model.train()
        if accuracy == 1:
            break
    assert accuracy == 1


@pytest.mark.parametrize("name", MODELS)
def test_config_builds_the_model_again_and_can_be_written_down(name):
    model, (x, _) = build(name, "ssvep").eval(), recordings("ssvep")
    again = create(name, **json.loads(json.dumps(model.config))).eval()
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(x), model(x))


def test_unknown_names_get_a_suggestion():
    with pytest.raises(ParameterError, match="Did you mean 'gbwatt'"):
        create("gbwat", n_chans=4, n_outputs=2, n_times=50)
    with pytest.raises(ParameterError, match="task='motor'"):
        create("gbwatt", task="motor")


@pytest.mark.parametrize(("task", "parameters"), [("mi", 9026), ("ssvep", 72195), ("ern", 24476)])
def test_matt_has_as_many_parameters_as_its_authors_report(task, parameters):
    assert sum(p.numel() for p in create("matt", task=task).parameters()) == parameters


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        ("matt", "Riemannian Adam", "Adam and QR"),
        ("gdlnet", "Riemannian Adam", "RAdam"),
        ("spdnetbn", "converged mean", "Karcher step"),
    ],
)
def test_a_baseline_says_where_it_is_not_what_its_authors_have(name, ours, theirs):
    assert ours in entry(name).summary
    assert theirs in entry(name).summary


@pytest.mark.parametrize("name", ["matt", "gdlnet", "spdnetbn"])
def test_baselines_are_trained_by_riemannian_adam(name):
    assert type(make_optimizer(create(name, task="ssvep"), 1e-3, 1e-2)) is RiemannianAdam


def test_a_task_gives_what_is_not_given():
    model = create("gbwatt", task="ssvep", n_outputs=3)
    assert model(torch.randn(2, 8, 125)).shape == (2, 3)
    assert model.config["n_temporal"] == 15


@pytest.mark.parametrize("name", [n for n in OWN if n in {"spdnet", "spdnetbn", "matt", "gbwatt", "bwatt"}])
def test_every_spd_model_offers_the_same_regularisation(name):
    """So that comparisons stay fair.  (Leading subspaces, of which GDLNet is made, do not change by it.)"""
    x, _ = recordings("mi")
    plain, shrunk = (build_with(name, shrinkage=s).eval() for s in (0.0, 0.3))
    shrunk.load_state_dict(plain.state_dict())
    assert (plain(x) - shrunk(x)).abs().max() > 1e-4


def build_with(name: str, **options) -> nn.Module:
    torch.manual_seed(0)
    return create(name, task="mi", **options)


def test_options_of_spdnet_change_the_model():
    signal = {"n_chans": 4, "n_outputs": 2, "n_times": 60}
    plain = create("spdnet", **signal)
    for options in ({"n_spatial": 5}, {"n_temporal": 7}, {"kernel": 9}, {"k": 2}, {"batchnorm": True}):
        other = create("spdnet", **signal, **options)
        assert {n: p.shape for n, p in plain.named_parameters()} != {n: p.shape for n, p in other.named_parameters()}
    x = torch.randn(3, 4, 60)
    for options in ({"eps": 0.1}, {"reeig": 0.3}):
        other = create("spdnet", **signal, **options)
        other.load_state_dict(plain.state_dict())
        assert (plain.eval()(x) - other.eval()(x)).abs().max() > 1e-5
    assert create("spdnetbn", **signal, momentum=0.5).norm.momentum == 0.5


@pytest.mark.parametrize("name", ["eegnet", "shallowconvnet", "sccnet", "fbcnet", "tcnetfusion", "mbeegse"])
def test_convolutional_networks_have_no_weight_decay_unless_it_helps_and_are_trained_as_long(name):
    for task in ("mi", "ssvep", "ern"):
        own, ours = entry(name).training_for(task), entry("gbwatt").training_for(task)
        helped = task == "ssvep" and name in ("shallowconvnet", "sccnet")
        assert own.weight_decay == (ours.weight_decay if helped else 0)
        assert (own.batch_size, own.max_epochs) == (ours.batch_size, ours.max_epochs)
    assert entry(name).training_for(None).weight_decay == 0


@pytest.mark.parametrize(
    ("arguments", "name", "meant"),
    [
        ({"n_channels": 22}, "n_channels", "n_chans"),
        ({"n_channels": 22, "n_outputs": 4, "n_times": 438}, "n_channels", "n_chans"),
        ({"n_chans": 22, "n_classes": 4, "n_times": 438}, "n_classes", "n_outputs"),
        ({"n_chans": 22, "n_outputs": 4, "n_times": 438, "n_segmnets": 3}, "n_segmnets", "n_segments"),
        ({"task": "mi", "n_channels": 22}, "n_channels", "n_chans"),
    ],
)
def test_an_unknown_argument_is_named_with_a_suggestion(arguments, name, meant):
    with pytest.raises(ParameterError, match=rf"^{name}: the model 'matt' has no such.*Did you mean '{meant}'"):
        create("matt", **arguments)


def test_an_argument_that_resembles_none_is_listed_with_those_there_are():
    with pytest.raises(ParameterError, match=r"^colour: .*it has n_chans, .*metric") as caught:
        create("matt", task="mi", colour="red")
    assert "Did you mean" not in str(caught.value)
    with pytest.raises(ParameterError, match="n_chans and n_outputs and n_times cannot be inferred"):
        create("matt", colour="red")
