"""Train a decoder for one subject of MAMEM-SSVEP-II, and draw its gradients.

GBWATT_DATA=... python examples/explain_mamem.py --subject 11 --output figures
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from gbwatt import GBWAttClassifier, explain, plotting
from gbwatt.data import find_dataset, load
from gbwatt.data.sets.mamem import ELECTRODES


def main() -> None:
    """Train, test, explain and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", type=int, default=11)
    parser.add_argument("--output", type=Path, default=Path("figures"))
    arguments = parser.parse_args()
    trials = load("mamem-ssvep-ii", arguments.subject)
    (split,) = find_dataset("mamem-ssvep-ii").protocol.splits(trials)
    decoder = GBWAttClassifier(task="ssvep", validation=trials[split.valid]).fit(trials[split.train])
    test = trials[split.test]
    print(f"accuracy on {split.name}: {decoder.score(test):.2f}")

    randomisation = explain.randomisation(decoder, test)
    attribution = randomisation.trained
    label = f"|∂ logit / ∂ x| (1/{test.unit})"
    for method in (explain.gradient, explain.gradient_times_input, explain.integrated_gradients):
        strongest = method(decoder, test).channels().argmax(1)
        print(f"strongest channel by class, {method.__name__}:", [test.ch_names[index] for index in strongest])
    print("rank correlation with random weights:", randomisation.correlation.round(2))
    heat = plotting.heatmaps(
        attribution.by_class(), attribution.class_names, attribution.ch_names, attribution.times, label
    )
    plotting.save(heat, arguments.output / "explanations-heatmaps.svg")
    # the files do not name the channels; the order of these electrodes is assumed
    scalp = plotting.topomaps(attribution.channels(), attribution.class_names, tuple(ELECTRODES), label)
    plotting.save(scalp, arguments.output / "explanations-topomaps.svg")

    for index, name in enumerate(test.ch_names):
        without = test.X.copy()
        without[:, index] = 0
        print(f"accuracy without {name}: {decoder.score(replace(test, X=without)):.2f}")
    for curve in (explain.deletion(decoder, test, attribution), explain.insertion(decoder, test, attribution)):
        print(f"{curve.kind}: gain over a random order {curve.gain:+.3f}")
    internals = explain.look_inside(decoder, test)
    print(f"attention weights: {internals.attention.min():.3f} to {internals.attention.max():.3f}, 1/m is {1 / 7:.3f}")
    metric = explain.learnt_metric(decoder)
    print(f"M: eigenvalues {metric.eigenvalues.min():.2f} to {metric.eigenvalues.max():.2f}")


if __name__ == "__main__":
    main()
