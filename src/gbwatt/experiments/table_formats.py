"""Tables as data, and as Markdown, LaTeX, CSV or on the screen."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from gbwatt._text import replace_unsafe
from gbwatt.experiments.row_io import guarded

if TYPE_CHECKING:
    import rich.table

Kind = Literal["text", "percent", "difference", "seconds", "p"]
#: A number in the unit of its column, words in its place, or nothing.
Value = str | float | None


@dataclass(frozen=True)
class Column:
    """Head of a column.

    Attributes
    ----------
    name : str
    group : str
        What it has in common with its neighbours: the data set.
    kind : Kind
        How its numbers are written.
    spread : bool
        Whether it is the ± of the column on its left, and joined with it where people read.
    """

    name: str
    group: str = ""
    kind: Kind = "text"
    spread: bool = False


@dataclass(frozen=True)
class Table:
    """A table before it is written.

    Attributes
    ----------
    title : str
    header : tuple of Column
    lines : tuple of tuple of Value
    notes : tuple of str
        What stands below.
    more : tuple of Table
        Tables made of the same runs.
    """

    title: str
    header: tuple[Column, ...]
    lines: tuple[tuple[Value, ...], ...]
    notes: tuple[str, ...] = ()
    more: tuple[Table, ...] = ()

    @property
    def tables(self) -> tuple[Table, ...]:
        """The table itself and those that belong to it."""
        return self, *self.more

    @property
    def groups(self) -> tuple[str, ...]:
        """Data sets, in the order of the columns."""
        return tuple(dict.fromkeys(column.group for column in self.header if column.group))

    def stacked(self) -> Table:
        """The same with data sets below each other instead of beside each other; long, but no wider than a screen."""
        common = [place for place, column in enumerate(self.header) if not column.group]
        shared = {column.name: replace(column, group="") for column in self.header if column.group}
        where = {(column.group, column.name): place for place, column in enumerate(self.header)}
        lines = []
        for group in self.groups:
            places = [where.get((group, name)) for name in shared]
            for line in self.lines:
                values = [None if place is None else line[place] for place in places]
                if any(value is not None for value in values):
                    lines.append((group, *(line[place] for place in common), *values))
        header = (Column("data set"), *(self.header[place] for place in common), *shared.values())
        return replace(self, header=header, lines=tuple(lines))


def without_empty(table: Table, names: frozenset[str]) -> Table:
    """Without those columns of these names in which nothing stands."""
    filled = [any(line[i] not in (None, "") for line in table.lines) for i in range(len(table.header))]
    kept = [i for i, column in enumerate(table.header) if filled[i] or column.name not in names]
    lines = tuple(tuple(line[i] for i in kept) for line in table.lines)
    return replace(table, header=tuple(table.header[i] for i in kept), lines=lines)


def show(value: Value, kind: Kind = "percent") -> str:
    """A value in writing: the one place that says with how many digits.

    Examples
    --------
    >>> show(67.2727), show(-0.5, "difference"), show(0.00004, "p"), show(None)
    ('67.27', '-0.50', '< 0.001', '')
    """
    if value is None or isinstance(value, str):
        return value or ""
    if kind == "difference":
        return f"{round(value, 2) + 0.0:+.2f}"  # never -0.00
    if kind == "p":
        return f"{value:.3f}" if value >= 0.001 else "< 0.001"
    return f"{value:#.3g}".rstrip(".") if kind == "seconds" else f"{value:.2f}"


def visible(text: str) -> str:
    r"""Text in one line, with control characters written out: no name moves a cursor or changes what follows it.

    Examples
    --------
    >>> print(visible("a\x1b[2J\nb"))
    a\x1b[2J b
    """
    return visible_lines(re.sub(r"\s*[\r\n\t]\s*", " ", text))


def visible_lines(text: str) -> str:
    """Text with control characters written out; lines and tabs stay."""
    return replace_unsafe(text.replace("\r\n", "\n").replace("\r", "\n"), keep="\t\n")


# What begins a link, an image, code, emphasis, a cell or an escape; what begins a tag or an entity of HTML; and what
# makes a link of an address.
_MARKUP = re.compile(r"[\\`*_~\[\]|]")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_ENTITY = re.compile(r"&(?=[A-Za-z#])")
_ADDRESS = re.compile(r":(?=//)|(?<=www)\.", re.IGNORECASE)


def markdown(text: str) -> str:
    r"""Text as Markdown shows it: nothing in it is a link, emphasis, code, HTML or the end of a cell.

    Addresses of web pages stay plain text, too.  Mail addresses may still be linked.

    Examples
    --------
    >>> print(markdown("<b> | [a](b) < 0.05 *"), markdown("https://example.org"))
    &lt;b> \| \[a\](b) < 0.05 \* https\://example.org
    """
    escaped = _ADDRESS.sub(r"\\\g<0>", _MARKUP.sub(r"\\\g<0>", visible(text)))
    return _TAG.sub("&lt;", _ENTITY.sub("&amp;", escaped))


def to_markdown(table: Table) -> str:
    """Markdown: data sets below each other, each under its name, and notes at the end."""
    sections = _sections(table)
    header = _joined_header(sections[0][1])
    rows = [[markdown(column.name) for column in header]]
    rows += [["---" if column.kind == "text" else "---:" for column in header]]
    for name, section in sections:
        rows += [[f"**{markdown(name)}**", *[""] * (len(header) - 1)]] if name else []
        rows += [list(map(markdown, line)) for line in _joined_lines(section)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    notes = [f"- {markdown(note)}" for note in table.notes]
    return "\n".join([f"### {markdown(table.title)}", "", *lines, "", *notes]).rstrip() + "\n"


def to_latex(table: Table) -> str:
    """LaTeX with rules of booktabs: data sets below each other, each under its name, and notes at the end."""
    sections = _sections(table)
    header = _joined_header(sections[0][1])
    rows = []
    for name, section in sections:
        rows += [rf"\multicolumn{{{len(header)}}}{{l}}{{\textit{{{escape(name)}}}}} \\"] if name else []
        rows += [_latex_row(line) for line in _joined_lines(section)] + [r"\addlinespace"]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape(table.title)}}}",
            rf"\begin{{tabular}}{{{_alignment(sections, header)}}}",
            r"\toprule",
            _latex_row([column.name for column in header]),
            r"\midrule",
            *rows[:-1],
            r"\bottomrule",
            r"\end{tabular}",
            *(rf"\par\footnotesize {escape(note)}" for note in table.notes),
            r"\end{table}",
            "",
        ]
    )


_WIDE = 30  # letters, from which on words are wrapped


def _alignment(sections: Sequence[tuple[str, Table]], header: Sequence[Column]) -> str:
    """Numbers to the right, words to the left, and sentences in a column of a few centimetres."""
    lines = [line for _, section in sections for line in _joined_lines(section)]
    longest = [max((len(line[place]) for line in lines), default=0) for place in range(len(header))]
    words = ["l" if length <= _WIDE else "p{4.5cm}" for length in longest]
    return "".join(word if column.kind == "text" else "r" for column, word in zip(header, words, strict=True))


def _latex_row(texts: Sequence[str]) -> str:
    return " & ".join(map(escape, texts)) + r" \\"


_GREEK = {"ε": "varepsilon", "θ": "theta", "κ": "kappa", "λ": "lambda", "μ": "mu", "ρ": "rho", "σ": "sigma"}
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{sign: "\\" + sign for sign in "&%$#_{}"},
        **{sign: f"${sign}$" for sign in "<>"},
        "±": r"$\pm$",
        "×": r"$\times$",
        "−": "$-$",
        "–": "--",
        "²": "$^2$",
        "⁴": "$^4$",
        **{letter: rf"$\{name}$" for letter, name in _GREEK.items()},
        "→": r"$\to$",
    }
)


def escape(text: str) -> str:
    r"""Text as LaTeX prints it.

    Examples
    --------
    >>> print(escape("50 % of A_1 & θ"))
    50 \% of A\_1 \& $\theta$
    """
    if re.fullmatch(r"[+-][\d.]+", text):
        return f"${text}$"  # a sign, not a hyphen
    return visible(text).translate(_LATEX)


def to_csv(table: Table) -> str:
    """CSV with a line for each model, setting and data set, and every number in a column of its own; no notes.

    Text that spreadsheets would take for a formula has an apostrophe before it, as in files of rows.
    """
    table = table.stacked() if table.groups else table
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(guarded(visible(column.name)) for column in table.header)
    for line in table.lines:
        values = zip(table.header, line, strict=True)
        texts = (guarded(visible(value)) if isinstance(value, str) else show(value, c.kind) for c, value in values)
        writer.writerow(texts)
    return out.getvalue()


def to_rich(table: Table) -> rich.table.Table:
    """For the screen: data sets below each other, each under its name, and notes at the end."""
    from rich import box
    from rich.table import Table as Rich
    from rich.text import Text

    drawn = Rich(
        title=Text(visible(table.title)),
        title_justify="left",
        caption=Text("\n".join(map(visible, table.notes))),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    sections = _sections(table)
    for column in _joined_header(sections[0][1]):
        drawn.add_column(Text(visible(column.name)), justify="left" if column.kind == "text" else "right")
    for name, section in sections:
        if name:
            drawn.add_row(Text(visible(name), style="bold"))
        for line in _joined_lines(section):
            drawn.add_row(*(Text(visible(text)) for text in line))
        drawn.add_section()
    return drawn


def _sections(table: Table) -> list[tuple[str, Table]]:
    """The lines of each data set that has any, with its name; all lines, if there are no data sets."""
    if not table.groups:
        return [("", table)]
    whole = table.stacked()
    parts = {group: tuple(line[1:] for line in whole.lines if line[0] == group) for group in table.groups}
    whole = replace(whole, header=whole.header[1:], lines=())
    return [(group, replace(whole, lines=lines)) for group, lines in parts.items() if lines] or [("", whole)]


def _joined_header(table: Table) -> tuple[Column, ...]:
    """Header with each ± in the column that it belongs to."""
    found: list[Column] = []
    for column in table.header:
        if column.spread and found:
            found[-1] = replace(found[-1], name=f"{found[-1].name} ±")
        else:
            found.append(column)
    return tuple(found)


def _joined_lines(table: Table) -> Iterator[list[str]]:
    for line in table.lines:
        texts: list[str] = []
        for column, value in zip(table.header, line, strict=True):
            text = show(value, column.kind)
            if not column.spread or not texts:
                texts.append(text)
            elif text:
                texts[-1] += f" ± {text}"
        yield texts
