"""Made-up rows that behave exactly as the thesis says, to be spoiled one claim at a time."""

from typing import Any

from nclab_papers.pan2023.conjectures import CONVERGED, PERFECT

DECAYS = (1e-4, 3e-4, 5e-4, 1e-3, 3e-3, 7e-3, 1e-2)
DEEP_DECAYS = (1e-4, 3e-4, 5e-4, 1e-3, 3e-3, 5e-3, 1e-2)
SEEDS = tuple(range(8))
LAYERS = 14
ERRORS = (0.01, 0.05)


def fig31() -> dict[str, Any]:
    """Affine collapses with weight decay, plain a little, none less and less until it fails."""
    rows = []
    for seed in SEEDS:
        for place, decay in enumerate(DECAYS):
            shift = 0.001 * seed
            for norm, intra, inter in (
                ("affine", 0.45 + 0.08 * place, -0.1 - 0.03 * place),
                ("plain", 0.4 + 0.03 * place, 0.05),
                ("none", 0.6 - 0.05 * place, 0.3),
            ):
                failed = norm == "none" and decay > 5e-3
                rows.append(
                    {
                        "norm": norm,
                        "weight_decay": decay,
                        "seed": seed,
                        "accuracy": 0.6 if failed else 1.0,
                        "loss": 0.5 * decay,
                        "min_intra": 1.0 if failed else intra - shift,
                        "max_inter": 1.0 if failed else inter,
                        "alpha": 8.0 - place,
                        "beta": 2.5 - 0.1 * place,
                        "converged": not failed,
                        "run": f"{norm}-{decay}-{seed}",
                    }
                )
    return {"config": {"classes": 4}, "rows": rows}


def norms() -> dict[str, Any]:
    """The affine rows, with guarantees that grow and are kept."""
    rows = [
        row
        | {
            "mean_intra": row["min_intra"] + 0.02,
            "balanced_loss": row["loss"],
            "excess_loss": 0.1 * row["loss"],
            "optimal_loss": 0.9 * row["loss"],
            "guaranteed_mean_intra": row["min_intra"] - 0.2,
            "guaranteed_min_intra": row["min_intra"] - 0.3,
            "guarantee_slack": 0.1,
        }
        for row in fig31()["rows"]
        if row["norm"] == "affine"
    ]
    optima = [
        {"weight_decay": decay, "alpha": 3.0, "beta": 1.5, "product": 4.5, "optimal_loss": decay}
        for decay in DECAYS
    ]
    return {"config": {"classes": 4}, "rows": rows, "optima": optima}


def complexity() -> dict[str, Any]:
    """Deeper teachers, weaker collapse."""
    rows = [
        {
            "norm": "affine",
            "weight_decay": decay,
            "seed": seed,
            "teacher_depth": depth,
            "accuracy": 1.0,
            "min_intra": 0.98 - 0.02 * depth,
            "max_inter": -0.3 + 0.01 * depth,
            "converged": True,
        }
        for seed in SEEDS
        for decay in (1e-3, 3e-3)
        for depth in (1, 3, 6, 9)
    ]
    return {"config": {"classes": 4}, "rows": rows}


def fig33() -> dict[str, Any]:
    """Layers sharpen, depth falls, inter is positive in the middle at 3e-3 and 5e-3."""
    rows, depths, runs = [], [], []
    for seed in SEEDS:
        for place, decay in enumerate(DEEP_DECAYS):
            key = {"weight_decay": decay, "seed": seed}
            failed = decay == 1e-2
            first = max(6 - place, 2)
            for layer in range(1, LAYERS + 1):
                bump = 0.05 * layer if decay in (3e-3, 5e-3) and layer < 9 else 0.0
                rows.append(
                    {
                        **key,
                        "layer": layer,
                        "ncc_accuracy": 1.0 if layer >= first else 0.9 + 0.01 * layer,
                        "min_intra": 0.2 + 0.05 * layer,
                        "max_inter": -0.02 * layer + 2 * bump / 3,
                    }
                )
            depths += [{**key, "epsilon": error, "depth": first} for error in ERRORS]
            accuracy = 0.3 if failed else 1.0
            runs.append({**key, "norm": "affine", "accuracy": accuracy, "converged": not failed})
    config = {"classes": 4, "layers": LAYERS + 1}
    return {"config": config, "rows": rows, "depths": depths, "runs": runs}


def conjectures() -> dict[str, Any]:
    """Small slack everywhere."""
    places = [(data, layers) for data in ("conic", "teacher") for layers in (6, 15)]
    worst = [
        {
            "conjecture": name,
            "data": data,
            "layers": layers,
            "reading": reading,
            "seed": seed,
            "smallest_e": 0.002 * seed,
        }
        for name in ("3.1.1", "3.2.1", "3.2.2")
        for data, layers in places
        for reading in (CONVERGED, PERFECT)
        for seed in SEEDS
    ]
    accuracies = [
        {"data": data, "layers": layers, "seed": seed, "weight_decay": 1e-3, "accuracy": 1.0}
        for data, layers in places
        for seed in SEEDS
    ]
    tried = [{"data": data, "layers": layers} for data, layers in places]
    config = {"classes": 4, "places": tried, "seeds": list(SEEDS)}
    return {
        "config": config,
        "worst": worst,
        "accuracies": accuracies,
        "small": 0.05,
        "skipped": 0,
    }


def guarantees() -> dict[str, Any]:
    """Bounds that are kept and tell more with weight decay."""
    curve = [
        {
            "excess_loss": excess,
            "intra_lower": 1 - 3 * excess,
            "true_intra": 1 - 2 * excess,
            "thesis_intra_lower": 1 - 5 * excess**0.5,
            "inter_upper": None if excess > 1e-3 else -1 / 3 + 4 * excess**0.5,
            "true_inter": -1 / 3 + 3 * excess**0.5,
            "thesis_inter_upper": -1 / 3 + 30 * excess ** (1 / 6),
        }
        for excess in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
    ]
    networks = [
        {
            "weight_decay": decay,
            "seed": seed,
            "loss": decay,
            "intra_cosine": [0.9, 0.8],
            "class_intra_lower": [0.6, 0.5],
            "accuracy": 1.0,
            "mean_guaranteed": 0.45 + 0.05 * place,
            "thesis_intra_lower": 0.0,
        }
        for seed in SEEDS
        for place, decay in enumerate((5e-4, 1e-3, 3e-3, 5e-3))
    ]
    return {"config": {"num_classes": 4}, "curve": curve, "networks": networks}


EXPERIMENTS = {
    "pan2023_guarantees": guarantees,
    "pan2023_fig31": fig31,
    "pan2023_norms": norms,
    "pan2023_complexity": complexity,
    "pan2023_fig33": fig33,
    "pan2023_conjectures": conjectures,
}
