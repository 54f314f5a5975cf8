"""``gbwatt models``: list the available models."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gbwatt.cli.options import AsJson, print_json
from gbwatt.errors import InputError

#: Input for which the parameters of models for corpora are counted: windows of TUAB.
_CORPUS_INPUT: dict[str, Any] = {"n_chans": 23, "n_outputs": 2, "n_times": 2000, "sfreq": 200.0, "weights": "random"}


def models(
    task: Annotated[str, typer.Option(help="Task for which parameters are counted: mi, ssvep or ern.")] = "mi",
    as_json: AsJson = False,
) -> None:
    """List all models, the packages they require, and their numbers of parameters."""
    from gbwatt.models import list_models
    from gbwatt.models.presets import find_task

    signal = find_task(task).signal
    rows = [_model_row(name, task) for name in list_models()]
    if as_json:
        print_json(rows)
        return
    console = Console()
    shape = f"{signal.n_chans} channels, {signal.n_times} samples, {signal.n_outputs} classes"
    table = Table("name", "description", "extra", "available", title=f"Models; parameters for {task} ({shape})")
    table.add_column("parameters", justify="right")
    for row in rows:
        count = "-" if row["parameters"] is None else str(row["parameters"])
        available = Text("yes") if row["here"] else Text("no", style="yellow")
        table.add_row(Text(row["name"]), Text(row["summary"]), Text(row["extra"] or "-"), available, count)
    console.print(table)
    console.print("Models for corpora: 23 channels, 2000 samples, 2 classes.", highlight=False)
    for reason in dict.fromkeys(row["reason"] for row in rows if row["reason"]):
        console.print(f"Not available: {reason}", highlight=False, markup=False, soft_wrap=True)
    console.print("Next: gbwatt train --model NAME", highlight=False)


def _model_row(name: str, task: str) -> dict[str, Any]:
    """Return registered properties of a model, its number of parameters, or the reason why it cannot be built."""
    from gbwatt.models import create, entry

    registered = entry(name)
    count, reason = None, None
    try:
        model = create(name, task=task) if registered.for_tasks else create(name, **_CORPUS_INPUT)
        count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    except (InputError, ImportError) as error:
        reason = str(error)
    return {
        "name": name,
        "summary": registered.summary,
        "extra": registered.extra,
        "here": reason is None,
        "reason": reason,
        "parameters": count,
    }
