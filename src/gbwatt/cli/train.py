"""``gbwatt train``: train a model for one subject, test it once on held-out trials, and save it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from rich.console import Console

from gbwatt._text import number_ranges
from gbwatt.cli.options import (
    INTERRUPTED,
    AsJson,
    DatasetNames,
    Protocol,
    Reading,
    Root,
    Seed,
    SourceName,
    SplitNumber,
    Subjects,
    TestOn,
    Threads,
    TrainedPreprocess,
    TrainOn,
    kernel_note,
    key_values,
    kind_of_recordings,
    numbers,
    percent,
    print_json,
    print_scores,
    reading,
    recordings,
    require_free,
    subjects,
    use_threads,
)
from gbwatt.data import BySession, BySubject, Dataset, Splitter, find_dataset
from gbwatt.data.loading import SEPARATOR, split_number
from gbwatt.data.preprocessing import Preprocessing
from gbwatt.errors import ParameterError

if TYPE_CHECKING:
    from gbwatt.decoding import TrainingRecord, TrainingResult
    from gbwatt.decoding.evaluation import TrainingSetup

#: Where models are saved, and the data set, by default.
FOLDER, DEFAULT = Path("gbwatt-models"), "simulated-ssvep"
#: Numbers and ranges of subjects.
_NUMBERS = re.compile(r"[0-9][0-9, -]*")


def train(
    dataset: DatasetNames = None,
    subject: Subjects = None,
    train_on: TrainOn = None,
    test_on: TestOn = None,
    protocol: Protocol = None,
    model: Annotated[str, typer.Option(help="Name of a model; see `gbwatt models`.")] = "gbwatt",
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Recipe (regularisation and mean) of gbwatt, bwatt and matt: best, paper or release; default: best."
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="Paradigm of the recording: mi, ssvep or erp; default: that of the data set. If the data set has no "
            "paradigm, it is selected by cross-validation on the training trials."
        ),
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="Option of the model, e.g. theta=1.5; repeatable.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate; default: that of the paradigm or model.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Batch size; default: that of the paradigm or model.", min=2)
    ] = None,
    max_epochs: Annotated[
        int | None, typer.Option(help="Maximum number of epochs; default: that of the paradigm or model.", min=1)
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="Weight decay; default: that of the paradigm or model.", min=0)
    ] = None,
    early_stopping: Annotated[
        int | None, typer.Option(help="Stop after this many epochs without a lower validation loss.", min=1)
    ] = None,
    members: Annotated[
        int | None,
        typer.Option(
            help="Number of networks to train with different seeds; their probabilities are averaged. Default: 1.",
            min=1,
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Number of processes that train the networks of --members; 0: one per core.", min=0)
    ] = 1,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Calibrate the probabilities by a temperature, on validation trials or, where the model has none, by "
            "cross-validation of the training trials (three more trainings).",
        ),
    ] = False,
    init: Annotated[
        list[str] | None,
        typer.Option(
            help="Folder of a model, or name of weights of the package, to begin with; repeatable for several "
            "networks. Files are prepared by the preprocessing steps of the weights, unless --preprocess is given."
        ),
    ] = None,
    freeze: Annotated[
        list[str] | None, typer.Option(help="Part of the network that is not trained, e.g. features; repeatable.")
    ] = None,
    layer_lr: Annotated[
        list[str] | None,
        typer.Option(help="Factor of the learning rate of a part, e.g. features=0.1; repeatable."),
    ] = None,
    align: Annotated[
        str | None, typer.Option(help="Whiten the trials of each domain: euclidean or riemannian; default: not.")
    ] = None,
    domain_norm: Annotated[
        str | None,
        typer.Option(
            help="Normalise covariances by domain (gbwatt, bwatt, matt): affine-invariant or bures-wasserstein; "
            "default: not."
        ),
    ] = None,
    domains: Annotated[
        str | None, typer.Option(help="Domains of --align and --domain-norm: subject or session; default: subject.")
    ] = None,
    seed: Seed = 0,
    split: SplitNumber = 0,
    root: Root = None,
    source: SourceName = None,
    read: Reading = None,
    preprocess: TrainedPreprocess = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for the model; default: a new one in gbwatt-models.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing model in the folder.")] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Folder for checkpoints after each epoch; the same command resumes interrupted training."),
    ] = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Train a model on one or several subjects, test it once on held-out trials, and save it.

    Without arguments, GBWAtt is trained on simulated recordings, which need no files.
    """
    from gbwatt.decoding import train_and_evaluate
    from gbwatt.decoding.callbacks import EpochDisplay
    from gbwatt.models.registry import entry

    chosen = choose_recordings(dataset, subject, train_on, test_on, protocol)
    entry(model)  # raises an error for unknown names
    if lr is not None and not lr > 0:
        raise ParameterError(f"lr={lr} must be above 0.")
    folder = output or FOLDER / default_name(chosen, model, seed, split)
    require_free(folder, kind="model", force=force)
    use_threads(threads)
    console = Console(quiet=as_json, soft_wrap=True)
    if jobs != 1 and not members:
        raise ParameterError(f"--jobs {jobs} is for the networks of an ensemble; choose their number with --members.")

    def announce(setup: TrainingSetup) -> None:
        """Print data, model and a note on missing kernels before training."""
        prepared = _preparation_text(setup) if init and preprocess is None else None
        for text in filter(None, (describe_data(setup), prepared, describe_model(setup), kernel_note())):
            console.print(text, highlight=False, markup=False)

    result = train_and_evaluate(
        chosen.dataset.name,
        model,
        subject=chosen.subject,
        split=split,
        protocol=chosen.protocol,
        task=task,
        recipe=recipe,
        options=key_values(option),
        lr=lr,
        batch_size=batch_size,
        max_epochs=max_epochs,
        weight_decay=weight_decay,
        early_stopping=early_stopping,
        n_members=members,
        n_jobs=jobs or -1,
        calibration="temperature" if calibrate else None,
        initialization=init or None,
        frozen=freeze or None,
        layer_lr=key_values(layer_lr, "layer-lr") or None,
        alignment=align,
        domain_norm=domain_norm,
        domains=domains,
        seed=seed,
        checkpoint=checkpoint,
        callbacks=[EpochDisplay(Console(stderr=True))],
        on_start=announce,
        folder=folder,
        root=root,
        reading=reading(source, read, preprocess),
    )
    if as_json:
        print_json(document_of(result))
    if result.record.status == "interrupted":
        Console(stderr=True, soft_wrap=True).print(interruption(result), highlight=False, markup=False)
        raise typer.Exit(INTERRUPTED)
    print_result(console, result, [] if root is None else ["--root", str(root)])


class Choice(NamedTuple):
    """Recordings to train and test on: a data set, its subjects, and how they are split."""

    dataset: Dataset
    subject: int | list[int] | Literal["all"] | None = None
    protocol: str | Splitter | None = None


def choose_recordings(
    dataset: list[str] | None,
    subject: str | None,
    train_on: list[str] | None,
    test_on: list[str] | None,
    protocol: str | None,
) -> Choice:
    """Return the recordings that the options of ``gbwatt train`` select.

    ``--train`` and ``--test`` have numbers of subjects of the data set, or files, which replace it.
    """
    if train_on is None and test_on is None:
        return Choice(find_dataset(recordings(dataset) or DEFAULT), subjects(subject), protocol)
    if train_on is None or test_on is None:
        raise ParameterError("--train and --test belong together; give both.")
    if subject is not None or protocol is not None:
        raise ParameterError("--train and --test select and split the subjects; leave out --subject and --protocol.")
    if all(_NUMBERS.fullmatch(text) for text in (*train_on, *test_on)):
        parts = [tuple(numbers(name, ",".join(given))) for name, given in (("train", train_on), ("test", test_on))]
        data_set = find_dataset(recordings(dataset) or DEFAULT)
        return Choice(data_set, sorted({*parts[0], *parts[1]}), BySubject(parts[0], parts[1]))
    if dataset is not None:
        raise ParameterError("--train and --test have files, which replace --dataset; leave it out, or give numbers.")
    names = [*train_on, *test_on]
    if all(split_number(name)[0] is None for name in names):
        names = [f"{number}={name}" for number, name in enumerate(names, start=1)]
    data_set = find_dataset(names)
    numbered = [split_number(name)[0] or 0 for name in names]
    first, second = dict.fromkeys(numbered[: len(train_on)]), dict.fromkeys(numbered[len(train_on) :])
    if len(set(numbered)) == 1:  # the files are sessions
        sessions = [str(number) for number in range(1, len(names) + 1)]
        return Choice(data_set, None, BySession(tuple(sessions[: len(train_on)]), (), tuple(sessions[len(train_on) :])))
    if shared := set(first) & set(second):
        raise ParameterError(
            f"subject {min(shared)} is in both train and test, besides other subjects; give its files alone, or all "
            "files with --dataset and --protocol leave-one-session-out, of which --split selects the tested one."
        )
    return Choice(data_set, None, BySubject(tuple(first), tuple(second)))


def default_name(choice: Choice, model: str, seed: int, split: int) -> str:
    """Return the default name of the folder of a model.

    Examples
    --------
    >>> default_name(Choice(find_dataset("simulated-mi"), [1, 2, 3]), "matt", 0, 0)
    'simulated-mi-s1-3-matt-seed0'
    """
    dataset, subject = choice.dataset, choice.subject
    first = dataset.subjects[0] if dataset.subjects else 1
    if subject is None and not dataset.all_by_default:
        subject = first
    if subject is None or isinstance(subject, str):
        subject = list(dataset.subjects) or first
    shown = str(subject) if isinstance(subject, int) else number_ranges(subject).replace(", ", "_")
    name = Path(dataset.name.partition(SEPARATOR)[0].partition("=")[2] or dataset.name.replace(":", "-")).stem
    return f"{name}-s{shown}-{model}-seed{seed}" + (f"-split{split}" if split else "")


def describe_data(setup: TrainingSetup) -> str:
    """Return a line on the recordings, for the terminal: data set, tested part, and numbers of trials."""
    kind, (train, valid, test) = kind_of_recordings(setup.dataset, bool(setup.trials.truths)), setup.sizes.values()
    text = (
        f"{setup.dataset} ({kind}), tested: {setup.split.name}. Trials: {train} training, {valid} validation, {test} "
        "test."
    )
    if setup.protocol is None or setup.split_number is None:
        return text
    n = len(setup.protocol.splits(setup.trials))
    others = f" This is split {setup.split_number} of {n}, from 0; `gbwatt benchmark` runs all of them."
    return text + others * (n > 1)


def _preparation_text(setup: TrainingSetup) -> str | None:
    """Return a line on the preprocessing steps taken from initial weights, for the terminal; None if there are none."""
    steps = setup.reading.get("preprocessing")
    if not steps:
        return None
    return f"Preprocessing of the initial weights: {'; '.join(map(str, Preprocessing.from_records(steps).steps))}."


def describe_model(setup: TrainingSetup) -> str:
    """Return a line on the model and its training, for the terminal: recipe, parameters, epochs and seed."""
    recipe = setup.options.get("recipe", setup.recipe)
    if setup.paradigm == "auto":
        return (
            f"{setup.model} ({recipe} recipe), seed {setup.seed}. Settings for mi, ssvep and erp are compared by "
            "cross-validation first; --task skips this."
        )
    if not setup.usual_epochs:
        return f"{setup.model}: {setup.n_parameters} parameters, a classical pipeline without training epochs."
    most = "at most " if setup.training.get("early_stopping") else ""
    epochs = f"{most}{setup.max_epochs} epoch{'s' * (setup.max_epochs != 1)}"
    usual = f" (default: {setup.usual_epochs})" if setup.max_epochs != setup.usual_epochs else ""
    return (
        f"{setup.model}{f' ({recipe} recipe)' if recipe else ''}: {setup.n_parameters} parameters, {epochs}{usual}, "
        f"seed {setup.seed}."
    )


# --------------------------------------------------------------------------------------------------------------- result


def document_of(result: TrainingResult) -> dict[str, Any]:
    """Return the document that ``--json`` prints: the training record and the folder of the model."""
    folder = None if result.folder is None else str(result.folder)
    if result.record.status == "interrupted" and not result.record.epochs:
        return {"status": result.record.status, "epochs": 0, "folder": folder}
    values = result.record.to_dict()
    return {**{name: value for name, value in values.items() if name not in ("seen", "format")}, "folder": folder}


def print_result(console: Console, result: TrainingResult, root: list[str]) -> None:
    """Print epochs, test scores, folder and next commands; ``root`` are the words of ``--root`` for these."""
    record = result.record
    weights = f"best weights from epoch {record.best_epoch}" if record.best_epoch else "initial weights"
    if not record.trials.get("valid"):
        weights = "weights of the last epoch"
    course = f"{record.epochs} epochs in {record.seconds:.0f} s; {weights}"
    if record.settings.get("reason", "as requested") != "as requested":
        console.print(f"Settings: {record.settings['paradigm']}, {record.settings['reason']}.", highlight=False)
    console.print(
        f"{course}{_selection_text(record)}." if record.epochs else f"Fitted in {record.seconds:.1f} s.",
        highlight=False,
    )
    if "temperature" in record.training:
        console.print(
            f"Probabilities are calibrated; temperature {record.training['temperature']:.3g}.", highlight=False
        )
    print_scores(console, f"Test, once, on {record.tested_on}", record.test or {})
    console.print(f"Saved in {result.folder}", highlight=False, markup=False)
    for title, command in (("Next", "evaluate"), ("Explain it", "explain")):
        words = shlex.join(["gbwatt", command, str(result.folder), *root])
        console.print(f"{title}: {words}", highlight=False, markup=False)


def _selection_text(record: TrainingRecord) -> str:
    """Return as text how the best epoch was selected; empty without validation trials."""
    best = record.at_best_epoch
    if "valid_loss" not in best:
        return ""
    return f", which has the lowest validation loss (validation accuracy {percent(best['valid_accuracy'])})"


def interruption(result: TrainingResult) -> str:
    """Return the message after an interruption: what was saved, and how to continue."""
    record = result.record
    if not record.epochs and record.checkpoint is None:
        return "Interrupted before the first epoch was complete; nothing new was saved."
    if not record.epochs:
        return f"Interrupted. Complete epochs, if any, are saved in {record.checkpoint}. Run the same command again."
    done = f"Interrupted after epoch {record.epochs} of {record.training['max_epochs']}"
    if record.checkpoint is not None:
        return f"{done}. The state is saved in {record.checkpoint}. Run the same command again to continue."
    return (
        f"{done}. The best weights so far, of epoch {record.best_epoch}, are saved in {result.folder}, marked as "
        "interrupted and not tested. To start again, run the same command with --force. With --checkpoint FOLDER, "
        "interrupted training can be resumed."
    )
