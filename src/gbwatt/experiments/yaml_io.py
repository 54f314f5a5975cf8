"""YAML documents: reading them with line numbers, and assigning values."""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gbwatt._validation import check_one_of
from gbwatt.errors import InputError, ParameterError

#: Path of a value: ``("models", 2, "options", "theta")``.
KeyPath = tuple[str | int, ...]
#: Origin of each value: "line 14", or the option "--set KEY=VALUE".
Origins = dict[KeyPath, str]
#: Function that returns the keys allowed at a path; None: any.
AllowedKeys = Callable[[KeyPath], tuple[str, ...] | None]


_MAX_PROBLEMS, _MAX_CHARACTERS = 50, 600  # number of problems in a message, and of characters of each


class Problem(NamedTuple):
    """An error in a document: the path of the value, and the message."""

    path: KeyPath
    text: str


class ConfigurationError(ParameterError):
    """Errors of an experiment.  The message lists all of them, each with its path and line.

    Attributes
    ----------
    problems : tuple of Problem
    """

    def __init__(self, source: str, problems: Sequence[Problem], origins: Mapping[KeyPath, str] | None = None) -> None:
        """Make the message; ``source`` is the name of the document, ``origins`` gives the line of each value."""
        known = origins or {}
        order = {path: number for number, path in enumerate(known)}
        self.problems = tuple(
            sorted(dict.fromkeys(problems), key=lambda one: order.get(_nearest_known_path(one.path, known), -1))
        )
        count = "an error" if len(self.problems) == 1 else f"{len(self.problems)} errors"
        lines = [f"  {_describe_problem(problem, known)}" for problem in self.problems[:_MAX_PROBLEMS]]
        if len(self.problems) > _MAX_PROBLEMS:
            lines.append(f"  and {len(self.problems) - _MAX_PROBLEMS} more.")
        super().__init__("\n".join([f"{source} has {count}:", *lines]))


def _nearest_known_path(path: KeyPath, origins: Mapping[KeyPath, str]) -> KeyPath:
    """Return the path or its closest parent with a known origin, which an error message can give; else the root."""
    return next((path[:n] for n in range(len(path), 0, -1) if path[:n] in origins), ())


def _describe_problem(problem: Problem, origins: Mapping[KeyPath, str]) -> str:
    """Return a problem as text, with its key and the line or command-line option that the value is from."""
    path, origin = show(problem.path), origins.get(_nearest_known_path(problem.path, origins))
    where = f"{path} ({origin})" if origin else path
    text = problem.text if len(problem.text) <= _MAX_CHARACTERS else f"{problem.text[:_MAX_CHARACTERS]}…"
    return f"{where}: {text}" if where else text


def show(path: KeyPath) -> str:
    """Return a path as text.

    Examples
    --------
    >>> show(("models", 2, "options", "theta"))
    'models[2].options.theta'
    """
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def error_of(check: Callable[..., object], *arguments: object) -> str | None:
    """Return the message of the error that a check raises; None if it passes."""
    try:
        check(*arguments)
    except InputError as error:
        return str(error)
    return None


# ------------------------------------------------------------------------------------------------------------- reading

_TAG = "tag:yaml.org,2002:"  # prefix of the standard tags
#: Limits of a document, far above the size of an experiment, against files that exhaust memory or time.
MOST_BYTES = 200_000
MOST_VALUES = 10_000  # keys and values; those of an alias (*) count each time
MOST_LEVELS = 30
MOST_DIGITS = 18  # of an integer, which then fits into 64 bits
_INTEGER = re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML 1.2, roughly: ``1e-3`` is a number, and ``on``, ``no`` and ``2020-01-01`` are text."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        None: [
            (_TAG + "null", re.compile(r"^(?:~|null|)$")),
            (_TAG + "bool", re.compile(r"^(?:[Tt]rue|[Ff]alse)$")),
            (_TAG + "int", _INTEGER),
            (_TAG + "float", re.compile(r"^[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|\.inf|\.nan)$")),
            (_TAG + "merge", re.compile(r"^<<$")),
        ]
    }


def read_document(file: Path) -> tuple[dict[str, Any], Origins]:
    """Read the mapping in a YAML file.

    Returns
    -------
    content : dict
        The mapping.
    origins : dict
        The line of every value in it, by path.

    Raises
    ------
    ConfigurationError
        If the file cannot be read, is not valid YAML, is too large, or does not contain a mapping.
    """
    try:
        content, origins = _parse_yaml(_read_text(file))
    except FileNotFoundError:
        raise ConfigurationError(str(file), [Problem((), f"the file does not exist.{_suggest_file(file)}")]) from None
    except OSError as error:
        why = f"the file cannot be read: {error.strerror or error}."
        raise ConfigurationError(str(file), [Problem((), why)]) from None
    except UnicodeDecodeError:
        raise ConfigurationError(str(file), [Problem((), "the file is not UTF-8 text; save it as UTF-8.")]) from None
    except yaml.YAMLError as error:
        raise ConfigurationError(str(file), [Problem((), _syntax_error_text(error))]) from None
    if not isinstance(content, dict):
        what = "empty" if content is None else f"a {type(content).__name__}"
        raise ConfigurationError(
            str(file), [Problem((), f"the file is {what}; it must contain keys with values, such as `name: main`.")]
        )
    return content, origins


def _suggest_file(file: Path) -> str:
    """Return a sentence with the most similar YAML file name in the same folder; empty if there is none."""
    others = [str(other) for other in sorted(file.parent.glob("*.y*ml"))]
    close = difflib.get_close_matches(str(file), others, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _read_text(file: Path) -> str:
    """Read a file as text; raise an error if it is too large."""
    with file.open("rb") as content:
        data = content.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise yaml.YAMLError(f"the file has more than {MOST_BYTES} bytes; an experiment has a few thousand")
    return data.decode("utf-8-sig")


def _parse_yaml(text: str) -> tuple[Any, Origins]:
    """Return the content of a document and the lines of its values; any error is a YAMLError."""
    try:
        _require_small_document(text)
        return _build_content(text)
    except yaml.YAMLError:
        raise
    except (ValueError, OverflowError, LookupError) as error:  # \U00110000, for instance
        raise yaml.YAMLError(f"a value cannot be read ({error})") from error


def _require_small_document(text: str) -> None:
    """Reject documents that are too large or use tags or recursive aliases, before any value is built."""
    open_nodes, sizes = [_OpenNode(None, 0)], dict[str, int]()
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            if any(node.anchor == event.anchor for node in open_nodes):
                raise _error_at(event, f"the value of the anchor &{event.anchor} must not contain itself")
            open_nodes[-1].size += sizes.get(event.anchor, 1)  # an unknown one is an error later
        elif isinstance(event, yaml.NodeEvent):
            if event.tag is not None:
                raise _error_at(event, f"the tag {event.tag!r} is not supported; remove it")
            open_nodes.append(_OpenNode(event.anchor, 1))
            if len(open_nodes) > MOST_LEVELS:
                raise _error_at(event, f"values are nested more than {MOST_LEVELS - 1} levels deep; use fewer levels")
        if isinstance(event, yaml.ScalarEvent):
            _require_usable_scalar(event)
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionEndEvent):
            closed = open_nodes.pop()
            open_nodes[-1].size += closed.size
            if closed.anchor is not None:
                sizes[closed.anchor] = closed.size
        if open_nodes[-1].size > MOST_VALUES:
            text = f"the file has more than {MOST_VALUES} values, including those of aliases (*); use fewer"
            raise _error_at(event, text)


@dataclass
class _OpenNode:
    """A mapping, list or scalar whose end has not been reached: its anchor, and its number of values so far."""

    anchor: str | None
    size: int


def _require_usable_scalar(event: Any) -> None:
    """Reject scalars that YAML accepts but that break later steps: huge integers and lone surrogates."""
    if event.implicit[0] and len(event.value) > MOST_DIGITS and _INTEGER.match(event.value):
        raise _error_at(event, f"the number {event.value[:20]}… has more than {MOST_DIGITS} digits")
    if not event.value.isprintable() and any("\ud800" <= sign <= "\udfff" for sign in event.value):
        raise _error_at(event, "the text has half of a surrogate pair, which is not a character")


def _error_at(event: Any, text: str) -> yaml.YAMLError:
    """Return an error that points at the position of a YAML event."""
    return yaml.MarkedYAMLError(problem=text, problem_mark=event.start_mark)


def _build_content(text: str) -> tuple[Any, Origins]:
    """Build the content of a YAML text, and return it with the line of each of its values."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, {}
        origins = {path: f"line {line}" for path, line in _line_numbers(node)}
        return loader.construct_document(node), origins
    finally:
        loader.dispose()


def _line_numbers(node: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, int]]:
    """Yield the path of every value below a YAML node with its line number; raise an error for a repeated key."""
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield (*path, number), item.start_mark.line + 1
            yield from _line_numbers(item, (*path, number))
    if isinstance(node, yaml.MappingNode):
        for key, value in _unique_items(node):
            yield (*path, key.value), key.start_mark.line + 1
            yield from _line_numbers(value, (*path, key.value))


def _unique_items(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield keys and values of a mapping; raise an error for a repeated key or one that is not text."""
    seen: dict[str, int] = {}
    for key, value in node.value:
        if key.tag not in (_TAG + "str", _TAG + "merge"):
            raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is not text", problem_mark=key.start_mark)
        if key.value in seen:
            text = f"the key {key.value!r} is repeated; it is first in line {seen[key.value]}"
            raise yaml.MarkedYAMLError(problem=text, problem_mark=key.start_mark)
        seen[key.value] = key.start_mark.line + 1
        yield key, value


def _syntax_error_text(error: Exception) -> str:
    """Return an error of the YAML parser as text, with line and column if they are known."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"the file is not valid YAML: {error}."
    what = " ".join(filter(None, (getattr(error, "context", None), getattr(error, "problem", None))))
    return f"line {mark.line + 1}, column {mark.column + 1}: {what}."


# --------------------------------------------------------------------------------------------------------- assignments


def assign(
    mapping: Mapping[str, Any], assignments: Sequence[str], allowed_keys: AllowedKeys
) -> tuple[dict[str, Any], Origins, list[Problem]]:
    """Assign values given as ``key=value`` to a copy of a mapping.

    ``models.0.training.lr=1e-3`` assigns to the first model, ``models.*.training.lr=1e-3`` to all.

    Returns
    -------
    changed : dict
        The copy.
    origins : dict
        The assignment that each assigned value is from, by path.
    problems : list of Problem
        Assignments that are not valid.
    """
    changed, origins, problems = copy.deepcopy(dict(mapping)), Origins(), list[Problem]()
    for text in assignments:
        try:
            origins.update(dict.fromkeys(_apply_assignment(changed, text, allowed_keys), f"--set {text}"))
        except (ParameterError, yaml.YAMLError) as error:
            message = _syntax_error_text(error) if isinstance(error, yaml.YAMLError) else str(error)
            problems.append(Problem((f"--set {text[:200]}",), message))
    return changed, origins, problems


def _apply_assignment(mapping: dict[str, Any], text: str, allowed_keys: AllowedKeys) -> list[KeyPath]:
    """Apply one assignment ``key=value`` to a mapping in place; return the paths that were assigned."""
    name, equals, value = text.partition("=")
    steps = re.sub(r"\[(\d+)\]", r".\1", name.strip()).split(".")
    if not equals or not all(steps):
        raise ParameterError("the assignment must have the form key=value, e.g. seeds=3 or models.0.training.lr=1e-3.")
    if len(steps) > MOST_LEVELS:
        raise ParameterError(f"the key has {len(steps)} levels; at most {MOST_LEVELS} are allowed.")
    content, _ = _parse_yaml(value)
    return _put(mapping, (), steps, content, allowed_keys)


def _put(node: Any, path: KeyPath, steps: Sequence[str], content: Any, allowed_keys: AllowedKeys) -> list[KeyPath]:
    """Assign a value inside a mapping or list, in place; return the paths that were assigned.

    ``path`` is the path of ``node``, ``steps`` are the keys from there to the value.  Missing mappings are created.
    """
    if isinstance(node, list) and node and steps[0] == "*":
        numbers = map(str, range(len(node)))
        return [assigned for n in numbers for assigned in _put(node, path, [n, *steps[1:]], content, allowed_keys)]
    key = _resolve_step(node, path, steps[0], allowed_keys)
    new_path = (*path, key)
    if len(steps) == 1:
        node[key] = copy.deepcopy(content)
        return [new_path]
    if isinstance(node, dict) and node.get(steps[0]) is None:
        node[key] = {}
    return _put(node[key], new_path, steps[1:], content, allowed_keys)


def _resolve_step(node: Any, path: KeyPath, step: str, allowed_keys: AllowedKeys) -> str | int:
    """Return the key of a mapping or the index of a list that a step of an assignment stands for."""
    if isinstance(node, list):
        if step.isdecimal() and len(step) < MOST_DIGITS and int(step) < len(node):
            return int(step)
        raise ParameterError(
            f"{show(path)} has {len(node)} items; {step!r} must be an index from 0 to {len(node) - 1}, or * for all."
        )
    if not isinstance(node, dict):
        raise ParameterError(f"{show(path)} is {node!r}, which has no keys.")
    allowed = allowed_keys(path)
    if allowed is not None and step not in node:
        check_one_of(f"key of {show(path)}" if path else "key", step, allowed)
    return step
