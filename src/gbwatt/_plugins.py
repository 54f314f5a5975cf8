"""Models, data sets and executors that packages add to gbwatt by entry points."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from gbwatt.errors import PluginError

#: Groups of entry points: modules that register models when they are imported; tuples of data sets; and executors,
#: each under the name of its data set.
MODELS, DATASETS, EXECUTORS = "gbwatt.models", "gbwatt.datasets", "gbwatt.executors"

Named = TypeVar("Named")


@cache
def find_plugins(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, sorted by name.  They are looked up once and not imported."""
    return tuple(sorted(entry_points(group=group), key=lambda plugin: (plugin.name, plugin.value)))


@cache
def load_plugin(plugin: EntryPoint) -> Any:
    """Import a plugin and return its object.

    Raises
    ------
    PluginError
        If it cannot be imported.  The message names it, its package and the cause.
    """
    try:
        return plugin.load()
    except Exception as error:  # whatever the module of another package raises
        raise plugin_error(plugin, f"cannot be imported ({type(error).__name__}: {error})") from error


def plugin_error(plugin: EntryPoint, problem: str) -> PluginError:
    """Return an error that names a plugin, its package and the problem."""
    package = "an unknown package" if plugin.dist is None else plugin.dist.name
    where = f"{plugin.name} = {plugin.value!r} (entry point of {package}, group {plugin.group})"
    return PluginError(f"the plugin {where} {problem}; update {package} or uninstall it.")


class PluginMapping(MutableMapping[str, Named]):
    """Objects by their attribute ``name``: built-in ones, and those of plugins between them.

    Plugins are imported when a name is not built in, or when the mapping is iterated over.

    Parameters
    ----------
    group : str
        Group of entry points, each of which is a tuple of objects.
    kind : type
        Class of the objects.
    first, last : sequence
        Built-in objects that are listed before and after those of plugins.
    """

    def __init__(self, group: str, kind: type[Named], first: Sequence[Named], last: Sequence[Named]) -> None:
        self.group, self.kind = group, kind
        self._objects: dict[str, Named] = {_name_of(item): item for item in (*first, *last)}
        self._after = [_name_of(item) for item in last]
        self._complete = False

    def _load_plugins(self) -> None:
        """Import all plugins once, and add their objects between the built-in ones."""
        if self._complete:
            return
        added: dict[str, Named] = {}
        for plugin in find_plugins(self.group):
            for item in self._checked_objects(plugin):
                if _name_of(item) in self._objects or _name_of(item) in added:
                    raise plugin_error(plugin, f"has {_name_of(item)!r}, a name that is already in use")
                added[_name_of(item)] = item
        last = {name: self._objects.pop(name) for name in self._after if name in self._objects}
        self._objects |= {**added, **last}
        self._complete = True

    def _checked_objects(self, plugin: EntryPoint) -> tuple[Named, ...]:
        """Return the objects of a plugin; raise PluginError unless they are a tuple of the right class."""
        items = load_plugin(plugin)
        if not isinstance(items, tuple) or not all(isinstance(item, self.kind) for item in items):
            problem = f"is a {type(items).__name__}, but a tuple of {self.kind.__name__} objects is needed"
            raise plugin_error(plugin, problem)
        return items

    def __getitem__(self, name: str) -> Named:
        if name not in self._objects:
            self._load_plugins()
        return self._objects[name]

    def __setitem__(self, name: str, item: Named) -> None:
        self._objects[name] = item

    def __delitem__(self, name: str) -> None:
        del self._objects[name]

    def __iter__(self) -> Iterator[str]:
        self._load_plugins()
        return iter(self._objects)

    def __len__(self) -> int:
        self._load_plugins()
        return len(self._objects)


def _name_of(item: Any) -> str:
    """The attribute ``name`` of an object, under which it is registered."""
    return str(item.name)
