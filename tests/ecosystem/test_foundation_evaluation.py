"""Fine-tuned foundation models are evaluated, explained and reported like any other model."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("braindecode", reason="braindecode is not installed: pip install 'gbwatt[clinical]'")

import torch
from typer.testing import CliRunner

from gbwatt.cli import app
from gbwatt.data import Trials
from gbwatt.data.formats.npz import write_npz
from gbwatt.data.montage import REFERENTIAL
from gbwatt.decoding import evaluate, load_decoder
from gbwatt.errors import MismatchError
from gbwatt.models import create
from gbwatt.models.serialization import save_pretrained

pytestmark = pytest.mark.ecosystem


@pytest.fixture
def windows():
    x = 20 * np.random.default_rng(0).standard_normal((8, 23, 400))
    return Trials(
        X=x, y=[0, 1] * 4, class_names=("normal", "abnormal"), ch_names=REFERENTIAL, sfreq=200, subject=1,
        dataset="windows",
    )  # fmt: skip


def test_a_folder_of_finetune_is_evaluated_on_windows_of_its_shape(windows, tmp_path):
    signal = {"n_chans": 23, "n_outputs": 2, "n_times": 400, "sfreq": 200.0}
    model = create("biot", **signal, ch_names=windows.ch_names, weights="random").eval()
    save_pretrained(model, tmp_path, name="biot", class_names=windows.class_names)
    with torch.no_grad():
        expected = model(torch.from_numpy(windows.X.astype(np.float32))).double().softmax(-1)
    decoder = load_decoder(tmp_path)
    assert np.allclose(decoder.predict_proba(windows), expected, atol=1e-5)
    result = evaluate(tmp_path, windows)
    assert (result.n, result.class_names, list(result.uses)) == (8, windows.class_names, ["unknown"])
    with pytest.raises(MismatchError, match="ch_names"):
        evaluate(tmp_path, windows.replace(ch_names=REFERENTIAL[::-1]))


@pytest.mark.parametrize("head", ["base", "gbwatt"])
def test_a_folder_of_finetune_is_explained_and_reported(head, windows, tmp_path):
    model = create(
        "biot",
        n_chans=23,
        n_outputs=2,
        n_times=400,
        sfreq=200.0,
        ch_names=windows.ch_names,
        weights="random",
        head=head,
    )
    save_pretrained(model, tmp_path / "model", name="biot", class_names=windows.class_names)
    write_npz(windows, tmp_path / "windows.npz")
    arguments = [str(tmp_path / "model"), "--dataset", str(tmp_path / "windows.npz"), "--output"]
    assert CliRunner().invoke(app, ["explain", *arguments, str(tmp_path / "explanation")]).exit_code == 0
    assert (tmp_path / "explanation" / "captions.md").stat().st_size
    assert CliRunner().invoke(app, ["report", *arguments, str(tmp_path / "report.html")]).exit_code == 0
    assert "normal" in (tmp_path / "report.html").read_text()
