"""Classifiers on any module that gives tokens; those of braindecode are tested where it is installed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gbwatt.clinical import HEADS, AnyBackbone, FoundationClassifier, WeightsFileError, load_weights
from gbwatt.errors import InputError
from gbwatt.models import create
from gbwatt.nn.optim import on_manifold
from tests.decoding.windows import CHANNELS, TIMES, InMemory, small_model


def epochs(n=6):
    return torch.from_numpy(InMemory(n).x)


@pytest.mark.parametrize("head", HEADS)
def test_every_head_gives_logits_and_gradients_reach_all_parameters(head):
    model = _base() if head == "base" else small_model(head=head)
    logits = model(epochs())
    assert logits.shape == (6, 2)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


def _base():
    torch.manual_seed(0)
    patches = nn.Sequential(nn.Unflatten(2, (4, 20)), nn.Linear(20, 16))
    return FoundationClassifier(patches, CHANNELS, 2, TIMES, head="base")


def test_without_a_head_there_is_the_pooled_token_alone():
    model, x = _base(), epochs()
    pooled = model.backbone(x).mean((1, 2))
    torch.testing.assert_close(model(x), model.final_layer(pooled))


def test_heads_differ_in_metric_and_score():
    gbw, matt = small_model(head="gbwatt").head.attention, small_model(head="matt").head.attention
    assert {name for name, _ in gbw.named_parameters()} - {name for name, _ in matt.named_parameters()} == {"metric.M"}
    assert "squared" in repr(matt.score)


@pytest.mark.parametrize("change", [{"n_groups": 4}, {"k": 2}, {"theta": 0.5}, {"shrinkage": 0.2}, {"eps": 1e-2}])
def test_every_option_of_the_head_changes_the_logits(change):
    x = epochs()
    usual, other = small_model().eval(), small_model(**change).eval()
    assert not torch.allclose(usual(x), other(x), atol=1e-6)


def test_a_frozen_backbone_is_left_as_it_is():
    model = small_model(frozen=True).train()
    assert not model.backbone.training
    assert model.head.training
    trained = {name.split(".")[0] for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {"head", "final_layer"}


def test_what_was_frozen_before_stays_frozen():
    patches = nn.Sequential(nn.Unflatten(2, (4, 20)), nn.Linear(20, 16)).requires_grad_(False)
    model = FoundationClassifier(patches, CHANNELS, 2, TIMES)
    assert not any(p.requires_grad for p in model.backbone.parameters())


def test_a_backbone_in_float64_is_probed_in_its_own_precision():
    patches = nn.Sequential(nn.Unflatten(2, (4, 20)), nn.Linear(20, 16)).double()
    model = FoundationClassifier(patches, CHANNELS, 2, TIMES).double()
    assert model(epochs().double()).dtype == torch.float64


def test_stages_have_every_parameter_once_and_the_head_last():
    model = small_model()
    stages = model.stages()
    found = [id(p) for stage in stages for p in stage]
    assert sorted(found) == sorted(id(p) for p in model.parameters())
    assert any(on_manifold(p) for p in stages[-1])
    assert not any(on_manifold(p) for stage in stages[:-1] for p in stage)


def test_matrices_are_in_float32_whatever_the_backbone_is_in():
    model, x = small_model().eval(), epochs()
    seen = []
    model.head.attention.register_forward_hook(lambda _m, inputs, _out: seen.append(inputs[0].dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(x)
    assert seen == [torch.float32]
    torch.testing.assert_close(logits.float(), model(x), atol=0.05, rtol=0.05)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: small_model(head="gbwat"), "Did you mean 'gbwatt'"),
        (
            lambda: FoundationClassifier(nn.Unflatten(2, (4, 20)), 4, 2, 80, head="base", k=3),
            "head='base' has no option k",
        ),
        (lambda: small_model(n_groups=5), "n_groups=5 does not divide the width of the tokens, 16"),
        (lambda: small_model(tetha=1.0), "Did you mean 'theta'"),
        (lambda: FoundationClassifier(nn.Flatten(), 4, 2, 80), r"the backbone returns \(1, 320\)"),
        (lambda: small_model()(torch.zeros(2, 3, TIMES)), "does not fit a model for epochs"),
        (lambda: create("labram", n_chans=23, n_outputs=2, n_times=2000), "needs pretrained weights"),
    ],
)
def test_what_cannot_be_is_refused(make, said):
    with pytest.raises(InputError, match=said):
        make()


def test_weights_of_an_unknown_backbone_are_not_guessed(tmp_path):
    file = tmp_path / "some.pt"
    torch.save({"weight": torch.zeros(2)}, file)
    with pytest.raises(WeightsFileError, match="weights of AnyBackbone"):
        load_weights(AnyBackbone(nn.Linear(2, 2)), file)
