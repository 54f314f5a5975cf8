"""Models of braindecode: errors without it or with a broken torchaudio, and the models themselves."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from gbwatt.errors import PackageError, ParameterError, ShapeError, install_command
from gbwatt.models import braindecode as adapters
from gbwatt.models import registry, torchaudio_repair
from gbwatt.models.braindecode import atcnet_lengths, conformer_lengths, filter_bands
from gbwatt.models.presets import TASKS
from gbwatt.models.torchaudio_repair import main

NAMES = ("atcnet", "eegconformer", "eegnet", "fbcnet", "sccnet", "shallowconvnet")
MI = {"n_chans": 22, "n_outputs": 4, "n_times": 438, "sfreq": 125.0}


def fail_with(error):
    def importer(name):
        raise error

    return importer


# ------------------------------------------------------------------------------------------- without a working package


def test_all_are_registered_with_what_they_need():
    assert set(NAMES) == {name for name in registry.list_models() if registry.entry(name).extra == "braindecode"}


@pytest.mark.parametrize("missing", ["braindecode", "braindecode.models", "torchaudio"])
@pytest.mark.parametrize("name", NAMES)
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, name, missing):
    monkeypatch.setattr(adapters, "import_module", fail_with(ModuleNotFoundError("no module", name=missing)))
    with pytest.raises(PackageError, match=rf"{missing} is not installed.*pip install 'gbwatt\[braindecode\]'"):
        registry.create(name, **MI)


@pytest.mark.parametrize(
    "error",
    [
        OSError("Could not load this library: /site-packages/torchaudio/lib/_torchaudio.abi3.so"),
        OSError("libc10_cuda.so: cannot open shared object file: No such file or directory"),
        RuntimeError("PyTorch has CUDA version 12.6 whereas TorchAudio has CUDA version 13.0"),
    ],
    ids=["wrapped", "plain", "version"],
)
def test_a_torchaudio_that_does_not_load_is_explained_with_its_remedy(monkeypatch, error):
    monkeypatch.setattr(adapters, "import_module", fail_with(error))
    with pytest.raises(PackageError, match=r"built for CUDA.*python -m gbwatt\.models\.torchaudio_repair$") as caught:
        registry.create("eegnet", **MI)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [ModuleNotFoundError("no module", name="mne"), OSError("disk full")])
def test_other_errors_of_an_import_are_left_as_they_are(monkeypatch, error):
    monkeypatch.setattr(adapters, "import_module", fail_with(error))
    with pytest.raises(type(error)) as caught:
        registry.create("eegnet", **MI)
    assert caught.value is error


@pytest.mark.parametrize("name", ["sccnet", "fbcnet", "atcnet", "eegconformer"])
def test_models_with_filters_in_seconds_ask_for_the_sampling_rate(name):
    with pytest.raises(ParameterError, match=f"{name}.*give sfreq"):
        registry.create(name, n_chans=22, n_outputs=4, n_times=438)


def test_filter_bands_stay_below_half_the_sampling_rate():
    assert filter_bands(125.0) == filter_bands(128.0) == [(low, low + 4.0) for low in range(4, 40, 4)]
    assert max(high for _, high in filter_bands(60.0)) == 28
    with pytest.raises(ParameterError, match="sfreq=16"):
        filter_bands(16)


@pytest.mark.parametrize("n_times, sfreq", [(1125, 250.0), (438, 125.0), (250, 125.0), (160, 128.0), (100, 125.0)])
def test_pools_of_atcnet_leave_enough_samples_for_its_windows(n_times, sfreq):
    """As many as braindecode requires; otherwise it changes all lengths, with a warning."""
    lengths = atcnet_lengths(n_times, sfreq)
    assert n_times // (lengths["conv_block_pool_size_1"] * lengths["conv_block_pool_size_2"]) >= 11


def test_lengths_of_the_papers_are_those_at_their_sampling_rate():
    """Altaheri et al. 2022, table 1, and Song et al. 2023, table 1: both at 250 Hz."""
    assert list(atcnet_lengths(1125, 250.0).values()) == [64, 8, 7]
    assert list(conformer_lengths(250.0).values()) == [25, 75, 15]


# ------------------------------------------------------------------------------------------------------------- repair

FAKE = """
from pathlib import Path
if list((Path(__file__).parent / "lib").glob("_torchaudio*.so")):
    raise OSError("Could not load this library")
"""


@pytest.fixture
def torchaudio(tmp_path, monkeypatch):
    """A package of that name, with a library that does not load and one that does."""
    folder = tmp_path / "torchaudio"
    (folder / "lib").mkdir(parents=True)
    (folder / "__init__.py").write_text(FAKE)
    (folder / "lib" / "_torchaudio.abi3.so").write_bytes(b"built for CUDA")
    (folder / "lib" / "good.so").symlink_to(torch._C.__file__)
    monkeypatch.delitem(sys.modules, "torchaudio", raising=False)  # or its folder would be found instead
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    assert torchaudio_repair.package_folder() == folder
    return folder


def libraries(folder):
    return sorted(path.name for path in (folder / "lib").iterdir())


def test_repair_sets_aside_what_does_not_load_and_restore_puts_it_back(torchaudio, capsys):
    before = libraries(torchaudio)
    assert not torchaudio_repair.imports()
    assert main([]) == 0
    assert libraries(torchaudio) == ["_torchaudio.abi3.so.aside", "good.so"]
    assert "_torchaudio.abi3.so.aside" in capsys.readouterr().out
    assert torchaudio_repair.imports()
    assert main(["--restore"]) == 0
    assert libraries(torchaudio) == before
    assert (torchaudio / "lib" / "_torchaudio.abi3.so").read_bytes() == b"built for CUDA"


def test_repair_leaves_a_torchaudio_that_loads_alone(torchaudio, capsys):
    (torchaudio / "__init__.py").write_text("")
    before = libraries(torchaudio)
    assert main([]) == 0
    assert libraries(torchaudio) == before
    assert "nothing to do" in capsys.readouterr().out


def test_repair_says_when_it_does_not_help(torchaudio, capsys):
    (torchaudio / "__init__.py").write_text("raise RuntimeError('another fault')")
    assert main([]) == 1
    assert "still fails" in capsys.readouterr().out


def test_repair_does_nothing_without_torchaudio(monkeypatch, capsys):
    monkeypatch.setattr(torchaudio_repair, "find_spec", lambda name: None)
    assert main([]) == 0
    assert main(["--restore"]) == 0
    assert capsys.readouterr().out == "torchaudio is not installed: nothing to do.\nno library is disabled.\n"


def test_the_command_of_the_message_works_and_imports_no_part_of_braindecode(torchaudio):
    """Nor does anything else import it before a model is built: the command imports all models."""
    python, *arguments = adapters.REPAIR.split()
    assert python == "python"
    done = subprocess.run([sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "can be imported now" in done.stdout
    assert "_torchaudio.abi3.so.aside" in libraries(torchaudio)
    assert [line for line in done.stderr.splitlines() if not line.startswith("import time:")] == []  # no warnings
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "gbwatt.models.gbwatt" in imported
    assert not imported & {"braindecode", "torchaudio"}


# --------------------------------------------------------------------------------------------------------- the models


@pytest.fixture
def braindecode():
    if find_spec("braindecode") is None:
        pytest.skip(f"braindecode is not installed: {install_command('braindecode')}")
    return adapters.braindecode_models()


@pytest.mark.ecosystem
@pytest.mark.parametrize(
    "name, parameters",
    [
        ("eegnet", 2292),
        ("shallowconvnet", 44804),
        ("sccnet", 8354),
        ("fbcnet", 11812),
        ("atcnet", 113220),
        ("eegconformer", 666172),
    ],
)
def test_parameter_counts(braindecode, name, parameters):
    model = registry.create(name, **MI)
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == parameters


@pytest.mark.ecosystem
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", NAMES)
def test_logits_and_gradients_for_every_task(braindecode, name, task):
    signal = TASKS[task].signal
    model = registry.create(name, task=task)
    x = torch.randn(4, signal.n_chans, signal.n_times, generator=torch.Generator().manual_seed(0))
    logits = model(x)
    assert logits.shape == (4, signal.n_outputs)
    assert torch.isfinite(logits).all()
    torch.nn.functional.cross_entropy(logits, torch.arange(4) % 2).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.requires_grad)
    assert any(float(p.grad.abs().max()) > 0 for p in model.final_layer.parameters())


@pytest.mark.ecosystem
@pytest.mark.parametrize("name", NAMES)
def test_input_and_state_are_those_of_the_other_models(braindecode, name):
    model = registry.create(name, **MI)
    x = torch.randn(4, 22, 438, generator=torch.Generator().manual_seed(0))
    model(x)
    other = registry.create(name, **model.config)
    other.load_state_dict(model.state_dict())
    model.eval(), other.eval()
    assert torch.equal(model(x), other(x))
    assert torch.equal(model(x), model(x[:, None]))
    assert torch.equal(model(x), copy.deepcopy(model)(x))
    with pytest.raises(ShapeError, match=r"epochs \(batch, 22, 438\)"):
        model(x[..., 1:])


@pytest.mark.ecosystem
@pytest.mark.parametrize(
    "name, options",
    [
        ("eegnet", {"F1": 4}),
        ("shallowconvnet", {"pool_time_stride": 14}),
        ("sccnet", {"n_spatial_filters": 10}),
        ("fbcnet", {"n_bands": [(8.0, 12.0)]}),
        ("atcnet", {"n_windows": 3}),
        ("eegconformer", {"num_layers": 2}),
    ],
)
def test_options_reach_braindecode_and_the_config(braindecode, name, options):
    plain, changed = registry.create(name, **MI), registry.create(name, **MI, **options)
    assert options.items() <= changed.config.items()
    assert len({sum(p.numel() for p in model.parameters()) for model in (plain, changed)}) == 2


@pytest.mark.ecosystem
@pytest.mark.parametrize("n_times", [125, 600])
def test_the_filter_bank_of_fbcnet_is_that_of_braindecode(braindecode, n_times):
    torch.manual_seed(0)
    model = registry.create("fbcnet", n_chans=8, n_outputs=5, n_times=n_times, sfreq=125.0)
    bands = filter_bands(125.0)
    theirs = braindecode.FBCNet(n_chans=8, n_outputs=5, n_times=n_times, sfreq=125.0, n_bands=bands).double().eval()
    theirs.load_state_dict({**theirs.state_dict(), **model.network.state_dict()})
    x = torch.randn(4, 8, n_times)
    filtered = theirs.spectral_filtering(x.double()).float()
    torch.testing.assert_close(model.network.spectral_filtering(x), filtered, rtol=0, atol=3e-6)
    torch.testing.assert_close(model.eval()(x), theirs(x.double()).float(), rtol=1e-4, atol=1e-5)


@pytest.mark.ecosystem
@pytest.mark.parametrize("n_chans, n_times", [(3, 250), (3, 438), (8, 100), (8, 125)])
@pytest.mark.parametrize("name", ["atcnet", "eegconformer"])
def test_short_epochs_and_few_channels_need_no_options(braindecode, name, n_chans, n_times):
    model = registry.create(name, n_chans=n_chans, n_outputs=2, n_times=n_times, sfreq=125.0)
    assert model.training
    assert model(torch.randn(4, n_chans, n_times)).shape == (4, 2)


@pytest.mark.ecosystem
def test_a_network_that_fails_only_when_it_is_applied_is_refused(braindecode):
    with pytest.raises(ParameterError, match=r"EEGConformer cannot be built for n_chans=3, n_times=40"):
        registry.create("eegconformer", n_chans=3, n_outputs=2, n_times=40, sfreq=125.0)


@pytest.mark.ecosystem
@pytest.mark.parametrize("name", ["eegnet", "shallowconvnet"])
def test_epochs_that_are_too_short_are_refused(braindecode, name):
    with pytest.raises(ParameterError, match=r"n_times=20.*too short"):
        registry.create(name, n_chans=3, n_outputs=2, n_times=20)
