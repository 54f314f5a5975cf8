"""``gbwatt search``: search for the settings of a model on training and validation trials."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gbwatt import _io
from gbwatt._text import number_ranges
from gbwatt.cli.options import (
    INTERRUPTED,
    AsJson,
    DatasetNames,
    Protocol,
    Reading,
    Root,
    SearchedPreprocess,
    Seed,
    SourceName,
    SplitNumber,
    Subjects,
    TestOn,
    Threads,
    TrainOn,
    kernel_note,
    key_values,
    percent,
    print_json,
    reading,
    require_free,
    require_writable,
    use_threads,
)
from gbwatt.cli.train import choose_recordings, describe_data, document_of, print_result
from gbwatt.data.splits import PROTOCOLS, find_protocol
from gbwatt.errors import ParameterError

if TYPE_CHECKING:
    from gbwatt.decoding import SearchResult, TrainingResult
    from gbwatt.decoding.evaluation import TrainingSetup
    from gbwatt.decoding.search_space import Space
    from gbwatt.decoding.search_study import Candidate

#: Number of candidates in the printed table.
SHOWN = 5
#: Options of ``gbwatt train`` with other names than the training settings.
_OPTION_NAMES = {"n_members": "members"}


def search(
    dataset: DatasetNames = None,
    subject: Subjects = None,
    train_on: TrainOn = None,
    test_on: TestOn = None,
    protocol: Protocol = None,
    model: Annotated[str, typer.Option(help="Name of a model; see `gbwatt models`.")] = "gbwatt",
    recipe: Annotated[
        str | None, typer.Option(help="Recipe of gbwatt, bwatt and matt: best, paper or release; default: best.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="Paradigm of the recording: mi, ssvep or erp; default: that of the data set.")
    ] = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            help="Setting to vary: a range, lr=1e-4:1e-2:log or n_segments=1:4, or values, shrinkage=0,0.1,0.3; "
            "repeatable. Default: settings near the usual ones of the model."
        ),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="Fixed option of the model, e.g. theta=1.5; repeatable.")
    ] = None,
    max_epochs: Annotated[
        int | None, typer.Option(help="Maximum number of epochs; default: that of the paradigm or model.", min=1)
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Score candidates in cross-validation of the training trials; default: on the validation trials.",
            min=2,
        ),
    ] = None,
    objective: Annotated[str, typer.Option(help="Score to optimise: loss or balanced_accuracy.")] = "loss",
    trials: Annotated[
        int, typer.Option("--trials", help="Number of candidates, those in the storage included.", min=1)
    ] = 30,
    timeout: Annotated[
        float | None, typer.Option(help="Number of seconds after which no candidate is started.", min=0)
    ] = None,
    pruning: Annotated[
        str, typer.Option(help="Rule to stop bad candidates early: median, halving or none.")
    ] = "median",
    storage: Annotated[
        Path | None,
        typer.Option(help="File for all candidates; the same command resumes an interrupted search."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Number of processes; 0: one per core. The search is reproducible with 1.", min=0)
    ] = 1,
    seed: Seed = 0,
    split: SplitNumber = 0,
    root: Root = None,
    source: SourceName = None,
    read: Reading = None,
    preprocess: SearchedPreprocess = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Train the best candidate, test it once on held-out trials, and save it here."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing model in the folder.")] = False,
    settings: Annotated[Path | None, typer.Option(help="Write the best settings to this file, .json or .yaml.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write a table of all candidates to this CSV file.")] = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Search for the settings of a model with Optuna, on training and validation trials.

    Test trials are not used, except once for the final model with --output.
    """
    from gbwatt.decoding import search as search_settings
    from gbwatt.models.registry import entry

    chosen = choose_recordings(dataset, subject, train_on, test_on, protocol)
    entry(model)  # raises an error for unknown names
    _check_files(settings, csv)
    if output is not None:
        require_free(output, kind="model", force=force)
        require_writable(output)
    use_threads(threads)
    console = Console(quiet=as_json, soft_wrap=True)
    progress = Console(stderr=True, soft_wrap=True)

    def announce(setup: TrainingSetup, varied: Space) -> None:
        """Print data, model, space and a note on missing kernels before the search."""
        for text in filter(None, (describe_data(setup), _describe_search(setup, varied, folds), kernel_note())):
            console.print(text, highlight=False, markup=False)

    result = search_settings(
        chosen.dataset.name,
        model,
        space=space,
        subject=chosen.subject,
        split=split,
        protocol=chosen.protocol,
        task=task,
        recipe=recipe,
        options=key_values(option),
        training={} if max_epochs is None else {"max_epochs": max_epochs},
        folds=folds,
        objective=objective,
        n_candidates=trials,
        timeout=timeout,
        pruning=pruning,
        storage=storage,
        jobs=jobs,
        seed=seed,
        on_start=announce,
        on_candidate=lambda candidate: progress.print(_candidate_line(candidate), highlight=False, markup=False),
        root=root,
        reading=reading(source, read, preprocess),
    )
    if csv is not None:
        result.to_csv(csv)
    best = None if result.interrupted and not result.ranking else result.best  # raises an error if all have failed
    if best is not None:
        _print_candidates(console, result)
    if best is not None and settings is not None:
        _write_settings(result.arguments, settings)
    trained = None if output is None or result.interrupted else _train_best(console, result, output)
    if as_json:
        print_json(_document_of(result, storage, trained))
    message = _interruption(result, trained, storage)
    if message is not None:
        progress.print(message, highlight=False, markup=False)
        raise typer.Exit(INTERRUPTED)
    if trained is not None:
        print_result(console, trained, [] if root is None else ["--root", str(root)])


def _check_files(settings: Path | None, csv: Path | None) -> None:
    """Raise ParameterError for output files of another kind, or in folders that do not exist."""
    if settings is not None and settings.suffix not in (".json", ".yaml", ".yml"):
        raise ParameterError(f"settings={str(settings)!r} has another ending; give a name in .json or .yaml.")
    for name, file in (("settings", settings), ("csv", csv)):
        if file is not None and not file.parent.is_dir():
            raise ParameterError(f"{name}={str(file)!r}: there is no folder {str(file.parent)!r}; create it first.")


def _describe_search(setup: TrainingSetup, space: Space, folds: int | None) -> str:
    """Return a line on the search, for the terminal: model, way of scoring, and space."""
    way = "the validation trials" if folds is None else f"{folds} folds of the training trials"
    varied = "; ".join(f"{name}={dimension}" for name, dimension in space.items())
    return f"{setup.model}, scored on {way}. Space: {varied}."


# -------------------------------------------------------------------------------------------------------------- output


def _candidate_line(candidate: Candidate) -> str:
    """Return a line on a finished candidate: its scores, or why it has none."""
    settings = _settings_text(candidate)
    if candidate.score is None:
        return f"candidate {candidate.number}: {candidate.status}, {candidate.reason} ({settings})"
    scores = f"loss {candidate.loss:.3f}, balanced accuracy {percent(candidate.balanced_accuracy or 0.0)}"
    return f"candidate {candidate.number}: {scores} in {candidate.seconds:.0f} s ({settings})"


def _settings_text(candidate: Candidate) -> str:
    """Return the settings of a candidate as text."""
    return ", ".join(f"{name}={_value_text(value)}" for name, value in candidate.settings.items())


def _value_text(value: Any) -> str:
    """Return a setting as ``--option`` and ``--space`` of the command line take it."""
    return value if isinstance(value, str) else _io.to_json(value, indent=None)


def _print_candidates(console: Console, result: SearchResult) -> None:
    """Print the best candidates, the importance of settings, and the command that trains the best one."""
    counts = {status: sum(one.status == status for one in result.candidates) for status in ("done", "pruned", "failed")}
    course = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    table = Table("candidate", title=f"Best of {len(result.candidates)} candidates ({course})", title_justify="left")
    for name in ("loss", "balanced accuracy", "epochs", "seconds"):
        table.add_column(name, justify="right")
    table.add_column("settings", overflow="fold")
    for one in result.ranking[:SHOWN]:
        numbers = (f"{one.loss:.3f}", percent(one.balanced_accuracy or 0.0), str(one.epochs), f"{one.seconds:.0f}")
        table.add_row(str(one.number), *numbers, Text(_settings_text(one)))
    console.print(table, soft_wrap=False)
    if result.importance:
        shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in result.importance.items())
        console.print(f"Importance: {shares}.", highlight=False, markup=False)
    console.print(f"Train the best: {shlex.join(train_command(result))}", highlight=False, markup=False)


def train_command(result: SearchResult) -> list[str]:
    """Return the words of the ``gbwatt train`` command that trains the best candidate."""
    arguments = result.arguments
    read, options = dict(arguments.pop("reading", {})), arguments.pop("options", {})
    given = {"source": read.pop("source", None), "preprocess": read.pop("preprocessing", None)}
    given |= _protocol_options(arguments.pop("protocol", None), arguments)
    named = {name: value for name, value in given.items() if value is not None}
    arguments = {"dataset": arguments.pop("data"), **named, **arguments}
    words = ["gbwatt", "train"]
    for name, value in arguments.items():
        words += [f"--{_OPTION_NAMES.get(name, name).replace('_', '-')}", _value_text(value)]
    for option, values in (("--read", read), ("--option", options)):
        words += [word for name, value in values.items() for word in (option, f"{name}={_value_text(value)}")]
    return words


def _protocol_options(protocol: dict[str, Any] | None, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the options of ``gbwatt train`` for subjects and protocol; the subject is taken out of ``arguments``."""
    subject = arguments.pop("subject")
    if protocol is not None and "test" in protocol and "train" in protocol:
        return {name: number_ranges(protocol[name]).replace(" ", "") for name in ("train", "test")}
    numbers = subject if isinstance(subject, int) else number_ranges(subject).replace(" ", "")
    names = [] if protocol is None else [name for name in PROTOCOLS if find_protocol(name) == find_protocol(protocol)]
    return {"subject": numbers, "protocol": names[0] if names else None}


def _write_settings(arguments: dict[str, Any], file: Path) -> None:
    """Write the arguments of :func:`~gbwatt.decoding.train_and_evaluate` to a JSON or YAML file."""
    text = _io.to_json(arguments) + "\n"
    if file.suffix != ".json":
        text = yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True)
    _io.write_atomically(file, text.encode())


def _document_of(result: SearchResult, storage: Path | None, trained: TrainingResult | None) -> dict[str, Any]:
    """Return the document that ``--json`` prints."""
    return {
        **result.to_dict(),
        "command": train_command(result) if result.ranking else None,
        "storage": None if storage is None else str(storage),
        "trained": None if trained is None else document_of(trained),
    }


def _train_best(console: Console, result: SearchResult, folder: Path) -> TrainingResult:
    """Train the best candidate with a progress display, test it once and save it."""
    from gbwatt.decoding.callbacks import EpochDisplay

    console.print(f"Training with the settings of candidate {result.best.number}.", highlight=False)
    return result.train(folder, callbacks=[EpochDisplay(Console(stderr=True))])


def _interruption(result: SearchResult, trained: TrainingResult | None, storage: Path | None) -> str | None:
    """Return the message after an interruption: what was kept, and how to continue; None if there was none."""
    if trained is not None and trained.record.status == "interrupted":
        kept = f"saved in {trained.folder}, marked as interrupted" if trained.folder else "not saved"
        return f"Interrupted during the final training. Its best weights so far are {kept} and not tested."
    if not result.interrupted:
        return None
    done = f"Interrupted after {len(result.candidates)} candidates."
    if storage is None:
        return f"{done} With --storage FILE, an interrupted search can be resumed."
    return f"{done} They are stored in {storage}. Run the same command again to continue."
