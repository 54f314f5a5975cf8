"""BIOT and LaBraM of braindecode as backbones: tokens, channels, and published weights."""

from __future__ import annotations

import argparse

import numpy as np
import pytest
import torch

pytest.importorskip("braindecode", reason="braindecode is not installed: pip install 'gbwatt[clinical]'")

from gbwatt.clinical import BACKBONES, HEADS, WeightsFileError, load_weights
from gbwatt.clinical.backbones import BIOT, LaBraM, derivation
from gbwatt.clinical.finetuning import finetuning_of, group_options
from gbwatt.data.montage import BIPOLAR, REFERENTIAL
from gbwatt.errors import InputError
from gbwatt.models import create, entry
from gbwatt.models.serialization import load_pretrained, save_pretrained
from gbwatt.nn.optim import parameter_groups

pytestmark = pytest.mark.ecosystem

TIMES = 400
SMALL = {"n_chans": 23, "n_outputs": 3, "n_times": TIMES, "sfreq": 200.0, "weights": "random"}


def epochs(n=2, channels=23, seed=0):
    return 20 * torch.randn(n, channels, TIMES, generator=torch.Generator().manual_seed(seed))


def random_like(state):
    """Other weights of the same shapes."""
    generator = torch.Generator().manual_seed(7)
    return {
        name: torch.randn(x.shape, generator=generator) if x.is_floating_point() else x for name, x in state.items()
    }


# ---- tokens


def test_tokens_of_biot_are_those_whose_mean_is_braindecodes_encoding():
    torch.manual_seed(0)
    backbone, x = BIOT(REFERENTIAL, TIMES).eval(), epochs()
    with torch.no_grad():
        tokens = backbone(x)
        bipolar = backbone.derivation @ x
        scaled = bipolar / (bipolar.abs().quantile(0.95, dim=-1, keepdim=True) + 1e-8)
        torch.testing.assert_close(tokens.mean((1, 2)), backbone.encoder(scaled))
    assert tokens.shape == (2, 16, 3, 256)


def test_tokens_of_labram_are_those_whose_pooled_mean_braindecode_classifies():
    torch.manual_seed(0)
    backbone, x = LaBraM(REFERENTIAL, TIMES).eval(), epochs()
    with torch.no_grad():
        tokens = backbone(x)
        backbone.network.fc_norm = backbone.fc_norm
        pooled = backbone.network(x / 100, ch_names=list(REFERENTIAL))  # its own classifier is the identity here
        torch.testing.assert_close(backbone.pool(tokens), pooled)
    assert tokens.shape == (2, 23, 2, 200)


def test_a_token_belongs_to_its_channel_and_segment():
    """Through the embedding alone; a transformer mixes them."""
    torch.manual_seed(0)
    for backbone in (BIOT(BIPOLAR, TIMES).eval(), LaBraM(REFERENTIAL, TIMES).eval()):
        blocks = backbone.encoder.transformer.layers if isinstance(backbone, BIOT) else backbone.network.blocks
        for parameter in blocks.parameters():
            torch.nn.init.zeros_(parameter)
        channels = 16 if isinstance(backbone, BIOT) else 23
        x = epochs(1, channels)
        changed = x.clone()
        changed[:, 5, 200:] *= -2
        with torch.no_grad():
            difference = (backbone(changed) - backbone(x)).abs().amax(-1)[0]
        assert int(difference.amax(1).argmax()) == 5
        if isinstance(backbone, LaBraM):  # BIOT scales a channel as a whole
            assert difference[5].tolist() == sorted(difference[5].tolist())


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", BACKBONES)
def test_all_six_configurations_learn(name, head):
    torch.manual_seed(0)
    model = create(name, **SMALL, head=head)
    model(epochs()).square().sum().backward()
    named = dict(model.named_parameters())
    assert not [n for n, p in named.items() if p.grad is None]
    ids = [id(p) for stage in model.stages() for p in stage]
    assert sorted(ids) == sorted(map(id, named.values()))
    assert len(model.stages()) == {"biot": 4 + 2, "labram": 12 + 2}[name]


def test_rates_and_decay_of_labram_are_those_of_its_authors():
    """The last block learns at 0.65 of the head's rate, the embedding at 0.65¹³; embeddings do not decay."""
    model = create("labram", **SMALL, head="base")
    settings = finetuning_of("labram", 6, {"lr": 1.0, "max_epochs": 50, "weight_decay": 0.05})
    assert (settings.warmup_epochs, settings.label_smoothing) == (5.0, 0.1)
    assert finetuning_of("labram", 2, {"max_epochs": 50}).label_smoothing == 0
    groups = parameter_groups(model, settings.weight_decay, lr=settings.lr, **group_options(model, settings))
    found = {id(p): (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}
    network = model.backbone.network
    expected = {
        network.blocks[11].attn.qkv.weight: (0.65, 0.05),
        network.blocks[0].mlp[0].weight: (0.65**12, 0.05),
        network.blocks[0].gamma_1: (0.65**12, 0.0),
        network.patch_embed.temporal_conv.conv1.weight: (0.65**13, 0.05),
        network.position_embedding: (0.65**13, 0.0),
        network.cls_token: (0.65**13, 0.0),
        network.temporal_embedding: (1.0, 0.0),
        model.backbone.fc_norm.weight: (1.0, 0.0),
        model.final_layer.weight: (1.0, 0.05),
    }
    for parameter, (scale, decay) in expected.items():
        assert found[id(parameter)] == (pytest.approx(scale), decay)
    assert model.final_layer.weight.std() < 1e-4


def test_biot_is_trained_as_by_its_authors():
    settings = finetuning_of("biot", 2, vars(entry("biot").training_for(None)))
    assert (settings.lr, settings.batch_size, settings.max_epochs, settings.early_stopping) == (1e-3, 512, 100, 5)
    assert settings.rate(0, 10) == settings.rate(999, 10) == 1.0


@pytest.mark.parametrize("name", BACKBONES)
def test_a_saved_model_is_read_again_without_the_weights_of_its_backbone(name, tmp_path):
    torch.manual_seed(0)
    model, x = create(name, **SMALL).eval(), epochs()
    save_pretrained(model, tmp_path, name=name, class_names=("a", "b", "c"))
    again = load_pretrained(tmp_path).model
    with torch.no_grad():
        assert torch.equal(again(x), model(x))
    assert again.initialisation == "later weights"


@pytest.mark.parametrize("name", BACKBONES)
def test_half_precision_gives_nearly_the_same(name):
    torch.manual_seed(0)
    model, x = create(name, **SMALL).eval(), epochs()
    with torch.no_grad():
        full = model(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = model(x).float()
    torch.testing.assert_close(half, full, atol=0.1, rtol=0.1)


# ---- channels


def test_bipolar_channels_are_differences_of_electrodes_by_whatever_name():
    x = torch.randn(len(REFERENTIAL), 5)
    expected = x[REFERENTIAL.index("T3")] - x[REFERENTIAL.index("T5")]
    newer = [{"T3": "T7", "T4": "T8", "T5": "P7", "T6": "P8"}.get(name, name.title()) for name in REFERENTIAL]
    for names in (REFERENTIAL, [f"EEG {name}-REF" for name in REFERENTIAL], newer):
        torch.testing.assert_close((derivation(names) @ x)[BIPOLAR.index("T3-T5")], expected)
    assert torch.equal(derivation(BIPOLAR), torch.eye(16))


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("biot", {"n_chans": 3, "ch_names": ["FP1", "F7", "T3"]}, "ch_names lacks T5, O1"),
        ("biot", {"n_chans": 5}, "biot needs the names of 5 channels: give ch_names"),
        ("biot", {"n_times": 100}, "n_times=100: BIOT computes spectra of 200 samples"),
        ("labram", {"n_times": 500}, "n_times=500: LaBraM needs a multiple of 200 samples"),
        ("labram", {"n_chans": 2, "ch_names": ["CZ", "EKG"]}, "ch_names has EKG, which LaBraM does not know"),
        ("labram", {"n_chans": 2, "ch_names": ["CZ"]}, "ch_names has 1 names for n_chans=2"),
        ("labram", {"sfreq": 250.0}, "sfreq=250: labram needs 200 Hz; resample"),
        ("labram", {"weights": None}, "labram needs pretrained weights"),
        ("biot", {"weights": "nowhere.ckpt"}, "nowhere.ckpt does not exist"),
    ],
)
def test_what_a_backbone_cannot_do_is_refused(name, change, said):
    with pytest.raises((InputError, WeightsFileError), match=said):
        create(name, **{**SMALL, **change})


# ---- weights, in the formats of the two projects


def biot_files(backbone, folder):
    """As BIOT's authors save the encoder, a training's checkpoint around it, and braindecode's folder."""
    from safetensors.torch import save_file

    state = {name.removeprefix("encoder."): x for name, x in random_like(backbone.state_dict()).items()}
    torch.save({**state, "index": torch.arange(16)}, folder / "encoder.ckpt")
    wrapped = {f"model.biot.{name}": x for name, x in state.items()} | {"model.prediction.0.weight": torch.zeros(2, 2)}
    torch.save({"state_dict": wrapped, "epoch": 3}, folder / "pretrained.ckpt")
    hub = {f"encoder.{name}": x for name, x in state.items()}
    hub["final_layer.classification_head.weight"] = torch.zeros(2, 256)
    save_file(hub, folder / "model.safetensors")
    return state, [folder / "encoder.ckpt", folder / "pretrained.ckpt", folder]


def test_weights_of_biot_are_read_in_all_its_formats(tmp_path):
    state, files = biot_files(BIOT(BIPOLAR, TIMES), tmp_path)
    for file in files:
        backbone = BIOT(BIPOLAR, TIMES)
        report = load_weights(backbone, file)
        for name, x in backbone.state_dict().items():
            assert torch.equal(x, state[name.removeprefix("encoder.")]), name
        assert len(report.matched) == len(state)
        assert not report.new
    assert "of another classifier: final_layer.classification_head.weight" in str(report)


def test_of_eighteen_channels_of_biot_the_first_sixteen_are_taken(tmp_path):
    state = {name.removeprefix("encoder."): x for name, x in BIOT(BIPOLAR, TIMES).state_dict().items()}
    tokens = torch.randn(18, 256)
    torch.save({**state, "channel_tokens.weight": tokens}, tmp_path / "18.ckpt")
    backbone = BIOT(BIPOLAR, TIMES)
    report = load_weights(backbone, tmp_path / "18.ckpt")
    assert torch.equal(backbone.encoder.channel_tokens.weight, tokens[:16])
    assert report.cut == {"encoder.channel_tokens.weight": "the first 16 of 18"}


def labram_checkpoint(backbone, patches=16):
    """As LaBraM's authors save a pretraining: the student's weights under their own names, and more."""
    state = {}
    for name, x in random_like(backbone.network.state_dict()).items():
        name = name.replace("position_embedding", "pos_embed").replace("temporal_embedding", "time_embed")
        name = name.replace("patch_embed.temporal_conv.", "patch_embed.")
        name = name.replace(".mlp.0.", ".mlp.fc1.").replace(".mlp.2.", ".mlp.fc2.")
        state[f"student.{name}"] = x
    state["student.time_embed"] = torch.randn(1, patches, 200)
    extra = {"student.mask_token": 1, "student.lm_head.weight": 2, "student.norm.weight": 200, "lm_head.weight": 3}
    extra |= {"logit_scale": 1, "projection_head.0.weight": 4}
    return state, {**state, **{name: torch.zeros(size) for name, size in extra.items()}}


def test_weights_of_labram_are_read_from_its_pretraining(tmp_path):
    backbone = LaBraM(REFERENTIAL, TIMES)
    state, whole = labram_checkpoint(backbone)
    # a training's checkpoint has objects of whatever class beside its weights
    settings = {"args": argparse.Namespace(lr=1e-3, output=tmp_path), "epoch": np.int64(49), "best": np.float64(0.5)}
    torch.save(
        {"model": whole, "optimizer": {"state": {0: {"step": torch.ones(1)}}}, **settings}, tmp_path / "labram-base.pth"
    )
    report = load_weights(backbone, tmp_path / "labram-base.pth")
    found = backbone.network.state_dict()
    assert torch.equal(found["position_embedding"], state["student.pos_embed"])
    assert torch.equal(found["temporal_embedding"], state["student.time_embed"][:, :3])
    assert torch.equal(found["blocks.3.mlp.2.bias"], state["student.blocks.3.mlp.fc2.bias"])
    assert torch.equal(found["patch_embed.temporal_conv.conv2.weight"], state["student.patch_embed.conv2.weight"])
    assert report.new == ("fc_norm.weight", "fc_norm.bias")
    assert report.cut == {"network.temporal_embedding": "the first 3 of 16"}
    assert set(report.ignored) == {name for name in whole if name not in state}
    assert {why for name, why in report.ignored.items() if "norm" not in name} == {"only used in pretraining"}


def test_of_sixteen_seconds_all_places_in_time_are_taken(tmp_path):
    backbone = LaBraM(REFERENTIAL, 3200)
    state, whole = labram_checkpoint(backbone, patches=16)
    torch.save({"model": whole}, tmp_path / "labram-base.pth")
    load_weights(backbone, tmp_path / "labram-base.pth")
    assert torch.equal(backbone.network.temporal_embedding[:, :16], state["student.time_embed"])


def test_a_model_says_which_weights_it_began_with(tmp_path):
    _, whole = labram_checkpoint(LaBraM(REFERENTIAL, TIMES))
    torch.save({"model": whole}, tmp_path / "labram-base.pth")
    model = create("labram", **{**SMALL, "weights": tmp_path / "labram-base.pth"})
    assert model.initialisation.startswith("labram-base.pth, SHA-256 ")
    assert create("labram", **SMALL).initialisation == "random weights"


class Code:
    """What a file may have instead of tensors."""

    def __reduce__(self):
        return print, ("executed",)


@pytest.mark.parametrize(
    "kind", ["missing", "unknown", "shape", "other", "nan", "twice", "truncated", "text", "code", "folder", "empty"]
)
def test_weights_that_do_not_fit_are_refused_and_change_nothing(kind, tmp_path, capsys):
    backbone = BIOT(BIPOLAR, TIMES)
    before = {name: x.clone() for name, x in backbone.state_dict().items()}
    state = {name.removeprefix("encoder."): x for name, x in random_like(before).items()}
    name = "patch_embedding.projection.weight"
    whole = tmp_path / "file.ckpt"
    said = {
        "missing": "'encoder.patch_embedding.projection.weight' is missing",
        "unknown": "'surprise' does not belong to this backbone",
        "shape": r"is \(3, 101\) in the file and \(256, 101\) here",
        "other": "does not fit: 0 of",
        "truncated": "cannot be used as weights",
        "nan": "'patch_embedding.projection.weight' has NaN or infinite entries",
        "twice": "'encoder.patch_embedding.projection.weight' occurs twice",
        "text": "cannot be used as weights",
        "code": r"has no tensors by name: found an object .builtins\.print",
        "folder": "has none of model.safetensors, pytorch_model.bin",
        "empty": "has no tensors by name",
    }[kind]
    if kind == "missing":
        del state[name]
    if kind == "unknown":
        state["surprise"] = torch.zeros(1)
    if kind == "nan":
        state[name] = torch.full((256, 101), torch.nan)
    if kind == "twice":
        state[f"biot.{name}"] = state[name]
    if kind == "shape":
        state[name] = torch.zeros(3, 101)
    if kind == "other":
        state = LaBraM(REFERENTIAL, TIMES).network.state_dict()
    content = {"code": Code(), "empty": {"epoch": 3}}.get(kind, state)
    torch.save(content, whole)
    if kind == "truncated":
        whole.write_bytes(whole.read_bytes()[:1000])
    if kind == "text":
        whole.write_text("weights")
    if kind == "folder":
        whole = tmp_path / "folder"
        whole.mkdir()
    with pytest.raises(WeightsFileError, match=said):
        load_weights(backbone, whole)
    assert all(torch.equal(x, before[name]) for name, x in backbone.state_dict().items())
    assert "executed" not in capsys.readouterr().out
