"""YAML documents: with the line of everything, without the surprises of YAML, changed by assignments."""

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

#: Where a value is: ``("models", 2, "options", "theta")``.
Place = tuple[str | int, ...]
#: Where values come from: "line 14", or an assignment.
Origins = dict[Place, str]
#: The keys that may be at a place; None where any may.
Keys = Callable[[Place], tuple[str, ...] | None]


_SHOWN, _LONG = 50, 600  # problems in a message, and letters of each


class Problem(NamedTuple):
    """Something wrong, and where."""

    place: Place
    text: str


class ConfigurationError(ParameterError):
    """A configuration is wrong.  The message has all that is, each with its place.

    Attributes
    ----------
    problems : tuple of Problem
    """

    def __init__(self, source: str, problems: Sequence[Problem], origins: Mapping[Place, str] | None = None) -> None:
        known = origins or {}
        order = {place: number for number, place in enumerate(known)}
        self.problems = tuple(
            sorted(dict.fromkeys(problems), key=lambda one: order.get(_nearest(one.place, known), -1))
        )
        count = "an error" if len(self.problems) == 1 else f"{len(self.problems)} errors"
        lines = [f"  {_describe(problem, known)}" for problem in self.problems[:_SHOWN]]
        if len(self.problems) > _SHOWN:
            lines.append(f"  and {len(self.problems) - _SHOWN} more.")
        super().__init__("\n".join([f"{source} has {count}:", *lines]))


def _nearest(place: Place, origins: Mapping[Place, str]) -> Place:
    """The place itself, or the one above it, whose origin is known; else the top."""
    return next((place[:n] for n in range(len(place), 0, -1) if place[:n] in origins), ())


def _describe(problem: Problem, origins: Mapping[Place, str]) -> str:
    place, origin = show(problem.place), origins.get(_nearest(problem.place, origins))
    where = f"{place} ({origin})" if origin else place
    text = problem.text if len(problem.text) <= _LONG else f"{problem.text[:_LONG]}…"
    return f"{where}: {text}" if where else text


def show(place: Place) -> str:
    """A place as it is written.

    Examples
    --------
    >>> show(("models", 2, "options", "theta"))
    'models[2].options.theta'
    """
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")


def said(check: Callable[..., object], *arguments: object) -> str | None:
    """What a check says about arguments; None if nothing."""
    try:
        check(*arguments)
    except InputError as error:
        return str(error)
    return None


# ------------------------------------------------------------------------------------------------------------- reading

_TAG = "tag:yaml.org,2002:"
#: Limits of a document.  Experiments stay far below them; files that would take all memory or time do not.
MOST_BYTES = 200_000
MOST_VALUES = 10_000  # keys and values, those behind an alias (*) counted wherever it stands
MOST_LEVELS = 30
MOST_DIGITS = 18  # of a whole number, which then fits into 64 bits
_WHOLE = re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML 1.2, roughly: ``1e-3`` is a number, and ``on``, ``no`` and ``2020-01-01`` are text."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        None: [
            (_TAG + "null", re.compile(r"^(?:~|null|)$")),
            (_TAG + "bool", re.compile(r"^(?:[Tt]rue|[Ff]alse)$")),
            (_TAG + "int", _WHOLE),
            (_TAG + "float", re.compile(r"^[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|\.inf|\.nan)$")),
            (_TAG + "merge", re.compile(r"^<<$")),
        ]
    }


def read_document(file: Path) -> tuple[dict[str, Any], Origins]:
    """The mapping in a file, and the line of every value in it."""
    try:
        content, origins = _parse(_text(file))
    except FileNotFoundError:
        raise ConfigurationError(str(file), [Problem((), f"there is no such file.{_neighbour(file)}")]) from None
    except OSError as error:
        why = f"it cannot be read: {error.strerror or error}; give a file that can be."
        raise ConfigurationError(str(file), [Problem((), why)]) from None
    except UnicodeDecodeError:
        raise ConfigurationError(
            str(file), [Problem((), "it is not text in UTF-8; save it as such in an editor.")]
        ) from None
    except yaml.YAMLError as error:
        raise ConfigurationError(str(file), [Problem((), _syntax(error))]) from None
    if not isinstance(content, dict):
        what = "empty" if content is None else f"a {type(content).__name__}"
        raise ConfigurationError(str(file), [Problem((), f"it is {what}; keys with values are needed: `name: main`.")])
    return content, origins


def _neighbour(file: Path) -> str:
    there = [str(other) for other in sorted(file.parent.glob("*.y*ml"))]
    close = difflib.get_close_matches(str(file), there, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _text(file: Path) -> str:
    with file.open("rb") as content:
        read = content.read(MOST_BYTES + 1)
    if len(read) > MOST_BYTES:
        raise yaml.YAMLError(f"it has more than {MOST_BYTES} bytes; an experiment has some thousand")
    return read.decode("utf-8-sig")


def _parse(text: str) -> tuple[Any, Origins]:
    """The content of a document and the lines of its values; any error is of YAML."""
    try:
        _require_small(text)
        return _constructed(text)
    except yaml.YAMLError:
        raise
    except (ValueError, OverflowError, LookupError) as error:  # \U00110000, for instance
        raise yaml.YAMLError(f"a value cannot be read ({error})") from error


def _require_small(text: str) -> None:
    """Refuse, before anything is built, what would become too large, and what is not needed here."""
    open_, sizes = [_Open(None, 0)], dict[str, int]()
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            if any(one.anchor == event.anchor for one in open_):
                raise _refused(event, f"what the anchor &{event.anchor} names must not contain itself")
            open_[-1].size += sizes.get(event.anchor, 1)  # an unknown one is an error later
        elif isinstance(event, yaml.NodeEvent):
            if event.tag is not None:
                raise _refused(event, f"the tag {event.tag!r} is not supported; leave it out")
            open_.append(_Open(event.anchor, 1))
            if len(open_) > MOST_LEVELS:
                raise _refused(event, f"values are nested more than {MOST_LEVELS - 1} levels deep; write fewer levels")
        if isinstance(event, yaml.ScalarEvent):
            _require_usual(event)
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionEndEvent):
            done = open_.pop()
            open_[-1].size += done.size
            if done.anchor is not None:
                sizes[done.anchor] = done.size
        if open_[-1].size > MOST_VALUES:
            text = f"there are more than {MOST_VALUES} values, with those that aliases (*) stand for; write fewer"
            raise _refused(event, text)


@dataclass
class _Open:
    """A value whose end was not reached yet."""

    anchor: str | None
    size: int


def _require_usual(event: Any) -> None:
    if event.implicit[0] and len(event.value) > MOST_DIGITS and _WHOLE.match(event.value):
        raise _refused(event, f"the number {event.value[:20]}… has more than {MOST_DIGITS} digits")
    if not event.value.isprintable() and any("\ud800" <= sign <= "\udfff" for sign in event.value):
        raise _refused(event, "the text has half of a surrogate pair, which is no character")


def _refused(event: Any, text: str) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(problem=text, problem_mark=event.start_mark)


def _constructed(text: str) -> tuple[Any, Origins]:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, {}
        origins = {place: f"line {line}" for place, line in _lines(node)}
        return loader.construct_document(node), origins
    finally:
        loader.dispose()


def _lines(node: Any, place: Place = ()) -> Iterator[tuple[Place, int]]:
    """The line of everything below a node; an error where a mapping has a key twice."""
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield (*place, number), item.start_mark.line + 1
            yield from _lines(item, (*place, number))
    if isinstance(node, yaml.MappingNode):
        for key, value in _distinct(node):
            yield (*place, key.value), key.start_mark.line + 1
            yield from _lines(value, (*place, key.value))


def _distinct(node: Any) -> Iterator[tuple[Any, Any]]:
    seen: dict[str, int] = {}
    for key, value in node.value:
        if key.tag not in (_TAG + "str", _TAG + "merge"):
            raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is not text", problem_mark=key.start_mark)
        if key.value in seen:
            text = f"the key {key.value!r} is there twice, first in line {seen[key.value]}"
            raise yaml.MarkedYAMLError(problem=text, problem_mark=key.start_mark)
        seen[key.value] = key.start_mark.line + 1
        yield key, value


def _syntax(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"it is not YAML: {error}."
    what = " ".join(filter(None, (getattr(error, "context", None), getattr(error, "problem", None))))
    return f"line {mark.line + 1}, column {mark.column + 1}: {what}."


# --------------------------------------------------------------------------------------------------------- assignments


def assign(
    mapping: Mapping[str, Any], assignments: Sequence[str], keys: Keys
) -> tuple[dict[str, Any], Origins, list[Problem]]:
    """A copy with values assigned; where they come from; and what cannot be assigned.

    ``models.0.training.lr=1e-3`` assigns to the first, ``models.*.training.lr=1e-3`` to all.
    """
    changed, origins, problems = copy.deepcopy(dict(mapping)), Origins(), list[Problem]()
    for text in assignments:
        try:
            origins.update(dict.fromkeys(_assign(changed, text, keys), f"--set {text}"))
        except (ParameterError, yaml.YAMLError) as error:
            said = _syntax(error) if isinstance(error, yaml.YAMLError) else str(error)
            problems.append(Problem((f"--set {text[:200]}",), said))
    return changed, origins, problems


def _assign(mapping: dict[str, Any], text: str, keys: Keys) -> list[Place]:
    path, equals, value = text.partition("=")
    steps = re.sub(r"\[(\d+)\]", r".\1", path.strip()).split(".")
    if not equals or not all(steps):
        raise ParameterError("it is not of the form key=value, e.g. seeds=3 or models.0.training.lr=1e-3.")
    if len(steps) > MOST_LEVELS:
        raise ParameterError(f"the key has {len(steps)} levels; at most {MOST_LEVELS} are possible.")
    content, _ = _parse(value)
    return _put(mapping, (), steps, content, keys)


def _put(node: Any, place: Place, steps: Sequence[str], content: Any, keys: Keys) -> list[Place]:
    """Put a value below a node, into mappings that are made where there are none; its places."""
    if isinstance(node, list) and node and steps[0] == "*":
        numbers = map(str, range(len(node)))
        return [found for n in numbers for found in _put(node, place, [n, *steps[1:]], content, keys)]
    key = _step(node, place, steps[0], keys)
    here = (*place, key)
    if len(steps) == 1:
        node[key] = copy.deepcopy(content)
        return [here]
    if isinstance(node, dict) and node.get(steps[0]) is None:
        node[key] = {}
    return _put(node[key], here, steps[1:], content, keys)


def _step(node: Any, place: Place, step: str, keys: Keys) -> str | int:
    """The key of a step; an error if there can be none."""
    if isinstance(node, list):
        if step.isdecimal() and len(step) < MOST_DIGITS and int(step) < len(node):
            return int(step)
        raise ParameterError(f"{show(place)} has {len(node)} items, 0 to {len(node) - 1}, * for all; {step!r} is none.")
    if not isinstance(node, dict):
        raise ParameterError(f"{show(place)} is {node!r}: nothing is below it.")
    allowed = keys(place)
    if allowed is not None and step not in node:
        check_one_of(f"key of {show(place)}" if place else "key", step, allowed)
    return step
