"""Damaged and hostile experiment files: every one is refused by a named error or is an experiment, and quickly."""

from __future__ import annotations

import random
import time

import pytest
import yaml

from gbwatt.experiments.config import PACKAGED, Experiment, read_experiment
from tests.fuzz.damage import Tally, damaged

pytestmark = pytest.mark.fuzz

FILES = sorted(file for file in PACKAGED.glob("*.yaml") if file.stem != "clinical")
SECONDS = 10  # of the processor, for one file


@pytest.fixture
def judge(tmp_path):
    """Reads texts as experiments; those that are some have their grid."""
    tally = Tally()

    def add(case, content, same=lambda _: False):
        path = tmp_path / "experiment.yaml"
        path.write_bytes(content)
        started = time.process_time()
        tally.add(case, lambda: grid(path), same, whole)
        if time.process_time() - started > SECONDS:
            tally.wrong.append(f"{case}: took {time.process_time() - started:.0f} s")

    add.tally = tally
    return add


def grid(path):
    experiment = read_experiment(path)
    return experiment, experiment.labelled_runs(simulated="always", seeds=1)


def whole(found):
    """An experiment with runs, every one of which has a key."""
    experiment, cells = found
    return isinstance(experiment, Experiment) and len({cell.run.key for cell in cells}) > 0


def test_damaged_files_are_refused_or_experiments(judge):
    """A change of a digit or of a title cannot be detected: that is another experiment, and complete."""
    for number, file in enumerate(FILES):
        original = read_experiment(file)
        for case, content in damaged(file.read_bytes(), 25, seed=number):
            judge(f"{file.stem} {case}", content, lambda found, original=original: found[0] == original)
    judge.tally.finish(at_least=200)
    assert judge.tally.counts["same"] > 0


#: What a hostile file has in the place of a value.
ANYTHING = [
    *("null", "true", "0", "-1", "1e400", ".nan", ".inf", "-.inf", "9" * 4000, "1" * 30, "''", '"\\0"', '"\\x1b[2J"'),
    *(
        '"\\ud800"',
        '"\\U00110000"',
        "!!python/name:os.system x",
        "!!binary aGk=",
        "!!timestamp 2020-01-01",
        "!!set {a}",
    ),
    *("!!int x", "!!bool x", "!!float x", "2020-01-01", "[]", "{}", "[[]]", "{a: {b: {c: 1}}}", "[1, 1]", "*unknown"),
    *(
        "&a [*a]",
        "{? [a] : b}",
        "{1: 2}",
        "{<<: 3}",
        "{<<: [a]}",
        "x" * 1000,
        "/etc/passwd",
        "../../x.edf",
        "moabb:../x",
    ),
    *("all", "always", "2", "0.25", "[0, 1]", "[0.5, 1]", "spdnet", "{theta: 1}", "'{} of [2]'", "mamem-ssvep-ii"),
    *("'{:4000000000}'", "'{0.__class__}'", "'{:{}}'", "'{'", "'%s'", "[" * 200 + "]" * 200, "10000000000"),
    *("{axis: noise, values: [1e400]}", "{axis: options.theta, values: [1, 2], label: '{:>999999999}'}"),
    *("{axis: fraction, values: [0.5], label: '{!r:>99}'}", "{n_spatial: 1000000, n_temporal: 1000000}"),
    *("{kernel: 100000000}", "{k: 1000000000000}", "{n_segments: 10000000}", "{theta: [1]}", "{eps: {a: 1}}"),
    *("[" + ", ".join(["x"] * 3000) + "]", "[" + ", ".join(map(str, range(4000))) + "]", "|\n  a\n  b", "'a\n\n  b'"),
]
BASE = """
name: small
title: Small
datasets: [simulated-ssvep]
subjects: [1]
seeds: 1
simulated: auto
training: {max_epochs: 2, lr: 0.001}
models:
  - {label: GBWAtt, model: gbwatt, options: {theta: 1.5}, training: {batch_size: 16}}
vary: {axis: options.theta, values: [1, 1.5], label: "t {}"}
validation: false
"""


def places(node, path=()):
    """Every value of a document."""
    if path:
        yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def test_hostile_values_are_refused_or_experiments(judge):
    rng = random.Random(1)
    judge("as it is", BASE.encode(), lambda found: len(found[1]) == 2)
    assert judge.tally.counts == {"same": 1}
    known = list(places(yaml.safe_load(BASE)))
    for number in range(400):
        document, path, value = yaml.safe_load(BASE), rng.choice(known), rng.choice(ANYTHING)
        put(document, path, "@@@")
        text = yaml.safe_dump(document, allow_unicode=True, width=10**6).replace("'@@@'", value)
        judge(f"{number}: {path} = {value:.50}", text.encode("utf-8", "surrogatepass"))
    judge.tally.finish(at_least=400)
    assert judge.tally.counts["undetectable"] > 10  # other experiments, which are right


def put(node, path, value):
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value


def test_bombs_are_refused(judge):
    for width in (2, 3, 10, 50):
        for levels in (8, 20, 60):
            lists = ["a0: &a0 [x, x]"]
            lists += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
            mappings = ["a0: &a0 {x: 1}"]
            mappings += [
                f"a{n}: &a{n} {{{', '.join(f'k{m}: *a{n - 1}' for m in range(width))}}}" for n in range(1, levels)
            ]
            merges = ["a0: &a0 {x: 1}"]
            merges += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * width)}]}}" for n in range(1, levels)]
            for kind, lines in (("lists", lists), ("mappings", mappings), ("merges", merges)):
                judge(f"{kind} {width}^{levels}", (BASE + "\n".join(lines)).encode())
    for text in (
        "[" * 100_000,
        "{a: " * 20_000,
        "- " * 50_000,
        "? " * 50_000,
        "&a " * 9000,
        "'" * 99_999,
        "a: b\n" * 30_000,
    ):
        judge(f"{text[:10]!r} …", text.encode())
    judge.tally.finish(at_least=40)
    assert set(judge.tally.counts) == {"refused"}
