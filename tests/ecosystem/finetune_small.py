"""A small training that several processes can do together: ``finetune_small.py FOLDER N_VALID [KILL_AT]``."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch

from gbwatt.clinical.finetuning import FineTuning, finetune, make_accelerator
from tests.decoding.windows import InMemory, small_model

SETTINGS = FineTuning(lr=1e-2, batch_size=32, max_epochs=3, warmup_epochs=0.5, shards=4, layer_decay=0.8)


def main(folder: Path, n_valid: int, kill_at: int | None) -> None:
    torch.set_num_threads(1)
    accelerator = make_accelerator()
    done = 0

    def count(*_: object) -> None:
        nonlocal done
        done += 1
        if done == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    course = finetune(
        small_model(),
        InMemory(150),
        InMemory(n_valid, seed=1),
        SETTINGS,
        accelerator=accelerator,
        checkpoint=folder / "checkpoint",
        save_every=2,
        on_step=count,
    )
    if accelerator.is_main_process:
        kept = {"processes": accelerator.num_processes, "history": course.history, "steps": done}
        (folder / "course.json").write_text(json.dumps(kept))
    accelerator.end_training()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
