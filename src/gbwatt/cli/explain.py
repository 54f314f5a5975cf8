"""``gbwatt explain``: figures and findings that explain a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gbwatt._validation import check_one_of
from gbwatt.cli.options import (
    AsJson,
    ModelFolder,
    Reading,
    Root,
    SourceName,
    TestedDataset,
    TestedSplit,
    TestedSubject,
    Threads,
    print_json,
    reading,
    require_free,
    require_writable,
    use_threads,
)

if TYPE_CHECKING:
    from gbwatt.report.explanation_figures import NamedFigure

CAPTIONS = "captions.md"  # file with findings and captions, beside the figures


def explain(
    folder: ModelFolder,
    dataset: TestedDataset = None,
    subject: TestedSubject = None,
    split: TestedSplit = None,
    method: Annotated[
        str,
        typer.Option(
            help="Attribution method: gradient, gradient-times-input, integrated-gradients or smooth-gradient."
        ),
    ] = "gradient",
    root: Root = None,
    source: SourceName = None,
    read: Reading = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the figures.")] = Path("explanation"),
    force: Annotated[bool, typer.Option("--force", help="Replace existing figures.")] = False,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Explain a model on test trials: print findings, and write figures with captions as SVG and PNG."""
    require_free(output, kind="explanation", force=force)
    require_writable(output)
    from gbwatt.decoding import EvaluationSet
    from gbwatt.explain import METHODS, Explanation
    from gbwatt.report.explanation_figures import explanation_figures

    check_one_of("method", method, tuple(METHODS))
    use_threads(threads)
    tested = EvaluationSet.open(folder, dataset, subject=subject, split=split, reading=reading(source, read), root=root)
    explanation = Explanation(tested.decoder, tested.trials, method)
    findings = [*filter(None, [tested.warning]), *explanation.findings()]
    figures = list(explanation_figures(explanation))
    title = f"{tested.decoder.model} in {folder}, on {tested.description}, by {method}"
    files = _save_figures(figures, output, title, findings)
    if as_json:
        about = {"model": tested.decoder.model, "dataset": tested.dataset, "split": tested.split}
        print_json({**about, **explanation.numbers, "findings": findings, "files": files})
        return
    console = Console(soft_wrap=True)
    for text in (f"{title}:", *findings):
        console.print(text, highlight=False, markup=False)
    console.print(f"{len(figures)} figures and {CAPTIONS} written to {output}", highlight=False, markup=False)


def _save_figures(figures: list[NamedFigure], output: Path, title: str, findings: list[str]) -> list[str]:
    """Write figures, and a Markdown file with findings and captions; return the paths of all files."""
    from gbwatt.plotting import save

    files: list[str] = []
    lines = [f"# Explanation of {title}", "", *(f"- {text}" for text in findings)]
    for name, figure, caption in figures:
        files += [str(path) for path in save(figure, output / name)]
        lines += ["", f"![{name}]({name}.svg)", "", caption]
    (output / CAPTIONS).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [*files, str(output / CAPTIONS)]
