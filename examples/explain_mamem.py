"""What a decoder of MAMEM-SSVEP-II looks at: trains it for one subject, and draws where its gradients are.

GBWATT_DATA=... python examples/explain_mamem.py --subject 11 --output pictures
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from gbwatt import GBWAttClassifier, explain, plotting
from gbwatt.data import find_dataset, load
from gbwatt.data.sets.mamem import ELECTRODES


def main() -> None:
    """Train, test, explain, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", type=int, default=11)
    parser.add_argument("--output", type=Path, default=Path("pictures"))
    given = parser.parse_args()
    trials = load("mamem-ssvep-ii", given.subject)
    (split,) = find_dataset("mamem-ssvep-ii").protocol.splits(trials)
    decoder = GBWAttClassifier(task="ssvep", validation=trials[split.valid]).fit(trials[split.train])
    test = trials[split.test]
    print(f"accuracy on {split.name}: {decoder.score(test):.2f}")

    tested = explain.randomisation(decoder, test)
    found = tested.trained
    label = f"|∂ logit / ∂ x| (1/{test.unit})"
    for method in (explain.gradient, explain.gradient_times_input, explain.integrated_gradients):
        strongest = method(decoder, test).channels().argmax(1)
        print(f"strongest channel by class, {method.__name__}:", [test.ch_names[place] for place in strongest])
    print("rank correlation with random weights:", tested.correlation.round(2))
    heat = plotting.heatmaps(found.by_class(), found.class_names, found.ch_names, found.times, label)
    plotting.save(heat, given.output / "explanations-heatmaps.svg")
    # the files do not name the channels: these are the electrodes in an order that is only assumed
    scalp = plotting.topomaps(found.channels(), found.class_names, tuple(ELECTRODES), label)
    plotting.save(scalp, given.output / "explanations-topomaps.svg")

    for place, name in enumerate(test.ch_names):
        without = test.X.copy()
        without[:, place] = 0
        print(f"accuracy without {name}: {decoder.score(replace(test, X=without)):.2f}")
    for curve in (explain.deletion(decoder, test, found), explain.insertion(decoder, test, found)):
        print(f"{curve.kind}: gain over a random order {curve.gain:+.3f}")
    inside = explain.look_inside(decoder, test)
    print(f"attention weights: {inside.attention.min():.3f} to {inside.attention.max():.3f}, 1/m is {1 / 7:.3f}")
    metric = explain.learnt_metric(decoder)
    print(f"M: eigenvalues {metric.eigenvalues.min():.2f} to {metric.eigenvalues.max():.2f}")


if __name__ == "__main__":
    main()
