"""What the configuration of a fleet's run means where it is silent.

Options at their default are left out of it, so that runs keep their names when options are added.
What is left out is therefore part of the format, and can never change.
"""

from typing import Any

FLEET = "fleet"
UNSAID: dict[str, Any] = {
    "shape.features": None,
    "shape.activation": "relu",
    "shape.head_bias": True,
    "shape.model": "mlp",
    "recipe.optimizer": "sgd",
    "recipe.nesterov": False,
    "recipe.beta1": 0.9,
    "recipe.beta2": 0.999,
    "recipe.epsilon": 1e-8,
    "recipe.schedule": "milestones",
    "recipe.warmup": 0.0,
    "recipe.loss": "cross_entropy",
    "recipe.smoothing": 0.1,
    "recipe.focusing": 2.0,
    "recipe.head_bias_decay": None,
    "data.selection.imbalance": 1.0,
    "data.selection.tail": "step",
    "data.selection.label_noise": 0.0,
    "data.selection.test_share": 0.0,
    "data.selection.selection_seed": 0,
}
"""By path, the value of an option that a run does not name."""
UNSAID_OF_DATA = {"fashion": {"classes": 10}}
"""The same of some kinds of data."""


def completed(config: dict[str, Any]) -> dict[str, Any]:
    """A fleet's configuration with everything that it leaves unsaid.

    >>> completed({"shape": {"width": 8}, "recipe": {"loss": "mse"}})["recipe"]["optimizer"]
    'sgd'
    """
    found = {name: dict(part) if isinstance(part, dict) else part for name, part in config.items()}
    for path, value in UNSAID.items():
        *parts, name = path.split(".")
        inner = found
        for part in parts:
            inner[part] = dict(inner.get(part, {}))
            inner = inner[part]
        inner.setdefault(name, value)
    data = found.get("data", {})
    for name, value in UNSAID_OF_DATA.get(str(data.get("kind")), {}).items():
        data.setdefault(name, value)
    return found
