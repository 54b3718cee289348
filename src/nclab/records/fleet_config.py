"""Defaults and stored names of the options in the configuration of a fleet's run.

Options at their default are omitted from a run's configuration, so that runs keep their names when
options are added. The defaults of omitted options and the stored names are therefore part of the
format and must never change.
"""

from typing import Any

FLEET = "fleet"
OMITTED_DEFAULTS: dict[str, Any] = {
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
"""Defaults, by stored path, of options that a run's configuration omits."""
OMITTED_DATA_DEFAULTS = {"fashion": {"classes": 10}}
"""Defaults of omitted options of some data sets."""
STORED_NAMES = {"focal_gamma": "focusing"}
"""Options that are stored under an older name, which the names of existing runs depend on."""


def stored(options: dict[str, Any]) -> dict[str, Any]:
    """Return options under the names of the format.

    >>> stored({"loss": "focal", "focal_gamma": 3.0})
    {'loss': 'focal', 'focusing': 3.0}
    """
    return {STORED_NAMES.get(name, name): value for name, value in options.items()}


def current(options: dict[str, Any]) -> dict[str, Any]:
    """Return stored options under their current names, the inverse of `stored`.

    >>> current({"loss": "focal", "focusing": 3.0})
    {'loss': 'focal', 'focal_gamma': 3.0}
    """
    names = {old: name for name, old in STORED_NAMES.items()}
    return {names.get(name, name): value for name, value in options.items()}


def completed(config: dict[str, Any]) -> dict[str, Any]:
    """Return a fleet's configuration with current names and with every omitted default.

    >>> completed({"shape": {"width": 8}, "recipe": {"loss": "mse"}})["recipe"]["optimizer"]
    'sgd'
    """
    result = {name: dict(part) if isinstance(part, dict) else part for name, part in config.items()}
    for path, value in OMITTED_DEFAULTS.items():
        *parts, name = path.split(".")
        inner = result
        for part in parts:
            inner[part] = dict(inner.get(part, {}))
            inner = inner[part]
        inner.setdefault(name, value)
    data = result.get("data", {})
    for name, value in OMITTED_DATA_DEFAULTS.get(str(data.get("kind")), {}).items():
        data.setdefault(name, value)
    return {**result, "recipe": current(result["recipe"])}
