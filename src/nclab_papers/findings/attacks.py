"""Artificial results on the terminal phase, and changes that alter a verdict; for tests."""

from typing import Any

from nclab.claims.attacks import Attacks, Change, Numbers, Row, change_rows, change_where

TOPICS = ("collapse", "generalisation", "margins", "robustness", "centres")
NETWORKS = ("vgg", "mlp")


def terminal_phase() -> Numbers:
    """Return invented results in which every quantity improves by 0.1 after interpolation."""
    rows = []
    for seed in range(8):
        for moment, gain in (("before", 0.0), ("after", 0.1 + 0.001 * (-1) ** seed)):
            row: Row = {"seed": seed, "moment": moment, "epoch": 10 + 40 * (moment == "after")}
            row |= dict.fromkeys(("nc1_within_variation", "nc2_equiangularity_means"), 0.4 - gain)
            row |= dict.fromkeys(("margin", "normalised_margin"), 0.2 + gain)
            row |= dict.fromkeys(("test_accuracy", "test_agreement"), 0.7 + gain)
            row |= {"test_centre_accuracy": 0.7 + gain, "test_margins": [0.2 + gain] * 9}
            row |= {"attacked": [0.5 + gain, 0.3 + gain], "noisy": [0.6 + gain, 0.5 + gain]}
            rows += [{"network": network, **row} for network in NETWORKS]
    config = {"radii": [0.02, 0.05], "noises": [0.1, 0.3]}
    return {"config": config, "seeds": list(range(8)), "rows": rows}


def at_the_end(name: str, value: Any) -> Change:
    """Return a function that sets a quantity to `value` in all rows of the end of training."""
    return change_where("rows", name, value, moment="after")


def exchanged_moments(row: Row) -> Row:
    """Return the `moment` and `epoch` that the other measurement of the same run has."""
    is_first = row["moment"] == "before"
    return {"moment": "after" if is_first else "before", "epoch": 60 - row["epoch"]}


SPOILED = {
    "collapse": at_the_end("nc2_equiangularity_means", 0.4),
    "generalisation": at_the_end("test_accuracy", 0.7),
    "margins": at_the_end("test_margins", [0.2] * 5 + [0.3] * 4),
    "robustness": at_the_end("attacked", [0.6, 0.2]),
    "centres": at_the_end("test_agreement", 0.7),
}
CLAIMS = [f"findings/terminal-{topic}-{network}" for topic in TOPICS for network in NETWORKS]
ATTACKS = Attacks(
    ideal={"findings_terminal_phase": terminal_phase},
    spoiled={name: SPOILED[name.split("-")[1]] for name in CLAIMS},
    shuffled=dict.fromkeys(CLAIMS, change_rows("rows", exchanged_moments, every=2)),
    no_code=dict.fromkeys(CLAIMS, "its numbers come from training"),
)
