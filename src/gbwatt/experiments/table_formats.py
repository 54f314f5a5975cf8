"""Tables as data, written as Markdown, LaTeX, CSV or for the terminal; and Markdown pages with tables."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from gbwatt._text import replace_unsafe
from gbwatt.errors import ParameterError
from gbwatt.experiments.row_io import guarded

if TYPE_CHECKING:
    import rich.table

#: How the numbers of a column are formatted.
Kind = Literal["text", "percent", "difference", "seconds", "p"]
#: A number in the unit of its column, a text, or nothing.
Value = str | float | None


@dataclass(frozen=True)
class Column:
    """Header of a column.

    Attributes
    ----------
    name : str
        Title of the column.
    group : str
        Data set that the column belongs to; empty: none.
    kind : Kind
        How numbers are formatted.
    spread : bool
        Whether the column is the ± of the column on its left; Markdown, LaTeX and the terminal join the two.
    """

    name: str
    group: str = ""
    kind: Kind = "text"
    spread: bool = False


@dataclass(frozen=True)
class Table:
    """A table of results.

    Attributes
    ----------
    title : str
        Title above the table.
    header : tuple of Column
        Headers of the columns.
    lines : tuple of tuple of Value
        Values of each line, one for each column.
    notes : tuple of str
        Notes below the table.
    more : tuple of Table
        Further tables of the same runs.
    """

    title: str
    header: tuple[Column, ...]
    lines: tuple[tuple[Value, ...], ...]
    notes: tuple[str, ...] = ()
    more: tuple[Table, ...] = ()

    @property
    def tables(self) -> tuple[Table, ...]:
        """The table itself and the tables of ``more``."""
        return self, *self.more

    @property
    def groups(self) -> tuple[str, ...]:
        """Data sets, in the order of the columns."""
        return tuple(dict.fromkeys(column.group for column in self.header if column.group))

    def stacked(self) -> Table:
        """Return the table with the data sets below each other instead of side by side, named in the first column."""
        common = [index for index, column in enumerate(self.header) if not column.group]
        shared = {column.name: replace(column, group="") for column in self.header if column.group}
        where = {(column.group, column.name): index for index, column in enumerate(self.header)}
        lines = []
        for group in self.groups:
            indices = [where.get((group, name)) for name in shared]
            for line in self.lines:
                values = [None if index is None else line[index] for index in indices]
                if any(value is not None for value in values):
                    lines.append((group, *(line[index] for index in common), *values))
        header = (Column("data set"), *(self.header[index] for index in common), *shared.values())
        return replace(self, header=header, lines=tuple(lines))


def without_empty(table: Table, names: frozenset[str]) -> Table:
    """Return the table without those of the columns ``names`` that are empty."""
    filled = [any(line[i] not in (None, "") for line in table.lines) for i in range(len(table.header))]
    kept = [i for i, column in enumerate(table.header) if filled[i] or column.name not in names]
    lines = tuple(tuple(line[i] for i in kept) for line in table.lines)
    return replace(table, header=tuple(table.header[i] for i in kept), lines=lines)


def show(value: Value, kind: Kind = "percent") -> str:
    """Return a value as text, with the digits that its kind has.

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
    r"""Return a text in one line with control characters escaped, so that it is safe to print.

    Examples
    --------
    >>> print(visible("a\x1b[2J\nb"))
    a\x1b[2J b
    """
    return visible_lines(re.sub(r"\s*[\r\n\t]\s*", " ", text))


def visible_lines(text: str) -> str:
    """Return a text with control characters escaped, except line ends and tabs."""
    return replace_unsafe(text.replace("\r\n", "\n").replace("\r", "\n"), keep="\t\n")


# Characters of Markdown markup, the beginning of HTML tags and entities, and the part that makes an address a link.
_MARKUP = re.compile(r"[\\`*_~\[\]|]")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_ENTITY = re.compile(r"&(?=[A-Za-z#])")
_ADDRESS = re.compile(r":(?=//)|(?<=www)\.", re.IGNORECASE)


def markdown(text: str) -> str:
    r"""Escape a text for Markdown, so that no part of it is a link, emphasis, code, HTML or the end of a cell.

    Web addresses stay plain text, too.  Mail addresses may still become links.

    Examples
    --------
    >>> print(markdown("<b> | [a](b) < 0.05 *"), markdown("https://example.org"))
    &lt;b> \| \[a\](b) < 0.05 \* https\://example.org
    """
    escaped = _ADDRESS.sub(r"\\\g<0>", _MARKUP.sub(r"\\\g<0>", visible(text)))
    return _TAG.sub("&lt;", _ENTITY.sub("&amp;", escaped))


def to_markdown(table: Table) -> str:
    """Format a table as Markdown, with data sets below each other and notes at the end."""
    sections = _split_by_dataset(table)
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
    """Format a table as LaTeX with booktabs rules, with data sets below each other and notes at the end."""
    sections = _split_by_dataset(table)
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
            rf"\begin{{tabular}}{{{_column_spec(sections, header)}}}",
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


_MAX_UNWRAPPED = 30  # characters; columns with longer texts are wrapped


def _column_spec(sections: Sequence[tuple[str, Table]], header: Sequence[Column]) -> str:
    """Return the column specification of a LaTeX table: numbers on the right, text on the left, long text wrapped."""
    lines = [line for _, section in sections for line in _joined_lines(section)]
    longest = [max((len(line[index]) for line in lines), default=0) for index in range(len(header))]
    specs = ["l" if length <= _MAX_UNWRAPPED else "p{4.5cm}" for length in longest]
    return "".join(spec if column.kind == "text" else "r" for column, spec in zip(header, specs, strict=True))


def _latex_row(texts: Sequence[str]) -> str:
    """Return one row of a LaTeX table with escaped texts."""
    return " & ".join(map(escape, texts)) + r" \\"


_GREEK = {"ε": "varepsilon", "θ": "theta", "κ": "kappa", "λ": "lambda", "μ": "mu", "ρ": "rho", "σ": "sigma"}
_LATEX_ESCAPES = str.maketrans(
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
    r"""Escape a text for LaTeX; Greek letters and signs become formulas.

    Examples
    --------
    >>> print(escape("50 % of A_1 & θ"))
    50 \% of A\_1 \& $\theta$
    """
    if re.fullmatch(r"[+-][\d.]+", text):
        return f"${text}$"  # a sign, not a hyphen
    return visible(text).translate(_LATEX_ESCAPES)


def to_csv(table: Table) -> str:
    """Format a table as CSV, with one line for each model, setting and data set, and without notes.

    Text that a spreadsheet would evaluate as a formula gets a leading apostrophe, see
    :func:`~gbwatt.experiments.row_io.guarded`.
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
    """Format a table for the terminal, with data sets below each other and notes at the end."""
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
    sections = _split_by_dataset(table)
    for column in _joined_header(sections[0][1]):
        drawn.add_column(Text(visible(column.name)), justify="left" if column.kind == "text" else "right")
    for name, section in sections:
        if name:
            drawn.add_row(Text(visible(name), style="bold"))
        for line in _joined_lines(section):
            drawn.add_row(*(Text(visible(text)) for text in line))
        drawn.add_section()
    return drawn


def _split_by_dataset(table: Table) -> list[tuple[str, Table]]:
    """Return the table of each data set that has lines, with its name; the whole table if there are no data sets."""
    if not table.groups:
        return [("", table)]
    whole = table.stacked()
    parts = {group: tuple(line[1:] for line in whole.lines if line[0] == group) for group in table.groups}
    whole = replace(whole, header=whole.header[1:], lines=())
    return [(group, replace(whole, lines=lines)) for group, lines in parts.items() if lines] or [("", whole)]


def _joined_header(table: Table) -> tuple[Column, ...]:
    """Return the header with each column for ± joined to the column on its left."""
    joined: list[Column] = []
    for column in table.header:
        if column.spread and joined:
            joined[-1] = replace(joined[-1], name=f"{joined[-1].name} ±")
        else:
            joined.append(column)
    return tuple(joined)


def _joined_lines(table: Table) -> Iterator[list[str]]:
    """Yield the texts of each line, with each ± joined to the value on its left."""
    for line in table.lines:
        texts: list[str] = []
        for column, value in zip(table.header, line, strict=True):
            text = show(value, column.kind)
            if not column.spread or not texts:
                texts.append(text)
            elif text:
                texts[-1] += f" ± {text}"
        yield texts


# --------------------------------------------------------------------------------------------------------------- pages

# A table or figure of a page with the comments around it, and the first of these comments.
_SLOT = re.compile(
    r"^<!-- (?P<kind>table|figure): *(?P<request>[^\n]*?) *-->\n(?P<old>.*?)^<!-- /(?P=kind) -->$",
    re.MULTILINE | re.DOTALL,
)
_SLOT_START = re.compile(r"<!--\s*(?P<kind>table|figure):[^\n]*")

#: Makes Markdown from the name of an experiment, a reference and seeds; the last two may be None.
MakeMarkdown = Callable[[str, str | None, str | None], str]


def fill(page: str, make_table: MakeMarkdown, make_figure: MakeMarkdown) -> str:
    r"""Replace the tables and figures of a Markdown page; the rest of the page does not change.

    Each table or figure is between two comments on lines of their own.  The first comment names the experiment and
    optionally seeds and, for a table, the reference::

        <!-- table: main | reference: MAtt -->
        <!-- /table -->

        <!-- figure: theta | seeds: 1 -->
        <!-- /figure -->

    Parameters
    ----------
    page : str
        Content of the page.
    make_table, make_figure : callable
        Functions from experiment, reference and seeds to Markdown.

    Raises
    ------
    ParameterError
        The page has no such comments, or malformed ones.

    Examples
    --------
    >>> page = "Before\n<!-- table: main | reference: MAtt -->\nold\n<!-- /table -->"
    >>> print(fill(page, lambda experiment, reference, seeds: f"{experiment} with {reference}\n", None))
    Before
    <!-- table: main | reference: MAtt -->
    main with MAtt
    <!-- /table -->
    """
    slots, starts = list(_SLOT.finditer(page)), list(_SLOT_START.finditer(page))
    if not starts:
        raise ParameterError("the page has no table, such as <!-- table: main --> followed by <!-- /table -->.")
    if len(slots) < len(starts):
        raise ParameterError(_malformed_slot_message(page, [slot.start() for slot in slots]))

    def replaced(slot: re.Match[str]) -> str:
        """Return the two comments of a table or figure with new content between them."""
        head = slot[0].partition("\n")[0]
        experiment, options = _parse_request(slot["request"], head)
        if slot["kind"] == "figure" and "reference" in options:
            raise ParameterError(f"{head}: figures have no reference; remove it.")
        make = make_table if slot["kind"] == "table" else make_figure
        made = make(experiment, options.get("reference"), options.get("seeds"))
        return f"{head}\n{made}<!-- /{slot['kind']} -->"

    return _SLOT.sub(replaced, page)


def _malformed_slot_message(page: str, valid_starts: list[int]) -> str:
    """Return the error message for the first ``<!-- table: … -->`` or ``<!-- figure: … -->`` that cannot be replaced.

    Such a comment is not alone on its line, or has no closing comment.  ``valid_starts`` are the positions of
    the others.
    """
    start = next(start for start in _SLOT_START.finditer(page) if start.start() not in valid_starts)
    line = page.count("\n", 0, start.start()) + 1
    return (
        f"line {line}, {start[0].strip()}: the comment must be alone on its line, and <!-- /{start['kind']} --> must "
        "follow on a line of its own."
    )


def _parse_request(request: str, head: str) -> tuple[str, dict[str, str]]:
    """Split "main | reference: MAtt" into the experiment and the options; ``head`` is the comment, for errors."""
    name, *rest = (part.strip() for part in request.split("|"))
    options = {key.strip(): value.strip() for key, _, value in (part.partition(":") for part in rest)}
    if len(options) < len(rest) or not options.keys() <= {"reference", "seeds"} or not all(options.values()):
        raise ParameterError(f"{head} is not valid; an example: <!-- table: main | reference: MAtt | seeds: 1 -->.")
    return name, options
