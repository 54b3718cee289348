"""Refuses models whose forward pass runs around its hooks."""

from torch import nn

from nclab.errors import ModelError
from nclab.features.evaluation import compiled_parts, is_inside
from nclab.features.recorder import is_weight_layer

INSTEAD = "Use monitor.measure(loader) at chosen moments"


def refuse_unsupported(model: nn.Module) -> None:
    """Say in one line why hooks cannot read the training pass of a model, if they cannot.

    >>> refuse_unsupported(nn.DataParallel(nn.Linear(2, 2)))
    """
    compiled = compiled_parts(model)
    weights = [name for name, module in model.named_modules() if is_weight_layer(module)]
    if compiled and all(is_inside(name, compiled) for name in weights):
        first = compiled[0].removesuffix("_orig_mod").removesuffix(".")
        where = f"module {first!r}" if first else "the model"
        raise ModelError(
            f"Expected a model that is not compiled, got {where} under torch.compile, which runs "
            f"around hooks. {INSTEAD}, or leave the classifier out: compile what comes before it, "
            "as in model.body.compile()."
        )
    for name, module in model.named_modules():
        where = f"module {name!r}" if name else "the model"
        if isinstance(module, nn.DataParallel) and len(module.device_ids) > 1:
            raise ModelError(
                f"Expected one device, got DataParallel over {len(module.device_ids)}. "
                f"{INSTEAD}, or train with DistributedDataParallel."
            )
        kinds = [kind.__name__ for kind in type(module).__mro__]
        if any("FSDP" in kind or "FullySharded" in kind for kind in kinds):
            raise ModelError(
                f"Expected whole weights, got {where} under FSDP, which shards them. {INSTEAD} "
                "on the gathered model."
            )
