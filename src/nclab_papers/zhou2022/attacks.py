"""Artificial results of zhou2022 for tests: ideal ones, and changes that alter a verdict."""

from nclab.claims.attacks import Attacks, Numbers, change_where, put
from nclab_papers.shared.study import ideal_study, seed_noise

LOSSES = ("cross_entropy", "label_smoothing", "focal", "mse", "mse_penalised")
DECAYS = (1e-3, 3e-3)
EITHER_SIGN = "a difference that may have either sign"
EQUIVALENCE = "an equivalence: shuffled arms are as similar as before"


def losses() -> Numbers:
    """Return invented results in which collapse and test accuracy do not depend on the loss."""
    rows = [
        {
            "loss": loss,
            "data": "teacher",
            "classes": 4,
            "weight_decay": decay,
            "seed": seed,
            "accuracy": 1.0,
            "nc1": 0.1 + seed_noise(seed) * (loss == "mse"),
            "test_accuracy": 0.9 + seed_noise(seed) * (loss == "focal"),
            "gap": 5.0 + seed_noise(seed),
            "predicted_gap": 5.1,
        }
        for seed in range(8)
        for loss in LOSSES
        for decay in DECAYS
    ]
    return ideal_study(rows, weight_decays=list(DECAYS))


ATTACKS = Attacks(
    verdicts={"findings/losses-smoothing-is-decay": ("holds", "calculus")},
    ideal={"zhou2022_losses": losses},
    spoiled={
        "findings/losses-smoothing-is-decay": put("rows.0.found", 3.0),
        "zhou2022/collapse-alike": change_where("networks", "nc1", 0.9, loss="mse"),
        "zhou2022/generalise-alike": change_where("networks", "test_accuracy", 0.8, loss="focal"),
        "findings/losses-gap": change_where("networks", "gap", 8.0, loss="label_smoothing"),
    },
    not_shuffled={
        "zhou2022/collapse-alike": EQUIVALENCE,
        "zhou2022/generalise-alike": EQUIVALENCE,
        "findings/losses-gap": "an equivalence with the target under each loss",
    },
    no_code={
        "zhou2022/collapse-alike": EITHER_SIGN,
        "zhou2022/generalise-alike": EITHER_SIGN,
        "findings/losses-gap": EITHER_SIGN,
    },
)
