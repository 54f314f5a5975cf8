"""Writes the files of this folder: ``python -m tests.golden.write_fixtures [NAME ...]``; all of them without names.

They are what the program wrote and said at one time, and should stay as they are: what this writes again differs only
in durations and versions.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import torch

from gbwatt import EEGDecoder, GBWAttClassifier
from gbwatt.data import load
from gbwatt.decoding import Callback
from tests.golden import documents, doors, saved, test_numbers, test_public_names, test_result_tables, test_run_keys
from tests.golden.program import DATA, keep, run


class _Interrupt(Callback):
    """Ctrl-C after the third epoch."""

    def on_epoch_end(self, net, **_):
        if len(net.history) == 3:
            raise KeyboardInterrupt


def saved_files():
    """Models, and a training that was interrupted."""
    saved.write_recordings()
    saved.write_simulated()
    for name in ("classifier", "trained", "matt", "checkpoint"):
        shutil.rmtree(DATA / name, ignore_errors=True)
    trials, recordings = saved.simulated(), load(saved.RECORDINGS, 1)
    saved.classifier(trials).save_pretrained(DATA / "classifier")
    saved.matt(recordings).save_pretrained(DATA / "matt")
    assert run(*saved.TRAIN, "-o", DATA / "trained").code == 0
    found = {
        name: _described(kind.from_pretrained(DATA / name), of)
        for name, kind, of in (
            ("classifier", GBWAttClassifier, trials),
            ("trained", GBWAttClassifier, trials),
            ("matt", EEGDecoder, recordings),
        )
    }
    asked = ("evaluate", DATA / "trained", "--dataset", "simulated-ssvep", "--subject", 1, "--all", "--json")
    document = run(*asked).document
    found["trained"] |= {
        "uses": {use: part["n"] for use, part in document["uses"].items()},
        "training": document["training"],
        "accuracy": document["accuracy"],
    }
    everything = load(saved.RECORDINGS, "all")
    with suppress(KeyboardInterrupt):
        saved.continued(DATA / "checkpoint", callbacks=[_Interrupt()]).fit(everything)
    with tempfile.TemporaryDirectory() as folder:
        state = shutil.copytree(DATA / "checkpoint", Path(folder) / "state")
        decoder = saved.continued(state).fit(everything)
        assert len(decoder.history_) == 6
        found["checkpoint"] = {"history": decoder.history_}
    keep("saved_files", found)


def _described(decoder, trials):
    n = sum(p.numel() for p in decoder.net_.module_.parameters())
    return {**saved.describe(decoder, trials), "n_parameters": n}


def _row(seed, status, **columns):
    run = {"dataset": "simulated-mi", "subject": 1 + seed, "model": "gbwatt", "seed": seed, "data": "0123456789abcdef"}
    run |= {"split": 0, "options": {"theta": 1.5, "recipe": "paper"}, "training": {"lr": 0.001, "max_epochs": 3}}
    run |= {"fraction": 1.0, "noise": 0.2 * seed, "noisy_training": seed == 2}
    return {"run": run, "status": status, "finished": f"2025-01-0{1 + seed}T00:00:00+00:00", **columns}


def rows():
    """A store of three rows, and its export."""
    for name in ("results.db", "results.csv"):
        (DATA / name).unlink(missing_ok=True)
    scores = {"balanced_accuracy": 1 / 3, "kappa": -0.25, "auc": 0.625, "loss": 0.1 + 0.2}
    doors.add_rows(
        DATA / "results.db",
        [
            _row(
                0,
                "done",
                accuracy=0.3,
                **scores,
                per_class={
                    "left ☜": {"recall": 1 / 3, "precision": 1 / 6, "n": 3.0},
                    "=right": {"recall": 2 / 7, "precision": 0.5, "n": 7.0},
                },
                confusion=[[1, 2], [5, 2]],
                valid_accuracy=1.0,
                valid_loss=1e-300,
                best_epoch=2,
                epochs=3,
                history={"train_loss": [1.5, 1 / 7, 0.125], "valid_loss": [1e300, 0.5, 0.75]},
                conditions={"before": {"share": 0.5, "median": 1e4, "largest": 1e300}},
                trials={"train": 252, "valid": 36, "test": 10},
                parameters=72339,
                preprocessing=[{"step": "band", "low": None, "unit": "µV", "quotes": 'a "b", c\n'}],
                seconds=0.1,
                seconds_per_epoch=0.03,
                versions={"python": "3.11"},
                warnings=["one\ntwo", ""],
            ),
            _row(1, "failed", traceback='Traceback\n  "θ", =1\r\nValueError: no'),
            _row(2, "done", accuracy=0.5),
        ],
    )
    assert run("store", "export", DATA / "results.csv", "--store", DATA / "results.db").code == 0
    keep("rows", doors.stored_rows(DATA / "results.db"))


def json_output():
    """Forms of documents."""
    found, before = {}, Path.cwd()
    for group in documents.GROUPS:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["GBWATT_DATA"] = f"{folder}/none"
            os.chdir(folder)
            try:
                found[group] = documents.observe(group)
            finally:
                os.chdir(before)
    keep("json_output", found)


WRITTEN = {
    "saved_files": saved_files,
    "rows": rows,
    "json_output": json_output,
    "numbers": lambda: keep("numbers", test_numbers.observe()),
    "public_names": lambda: keep("public_names", test_public_names.observe()),
    "result_tables": lambda: keep("result_tables", test_result_tables.observe()),
    "run_keys": lambda: keep("run_keys", test_run_keys.observe(DATA)),
}


def main(names):
    torch.set_num_threads(1)
    for name in names or WRITTEN:
        WRITTEN[name]()
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
