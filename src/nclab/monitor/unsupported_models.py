"""Refuses models whose forward pass runs around its hooks."""

from torch import nn

from nclab.errors import ModelError

INSTEAD = "Use monitor.measure(loader) at chosen moments"


def refuse_unsupported(model: nn.Module) -> None:
    """Say in one line why hooks cannot read the training pass of a model, if they cannot.

    >>> refuse_unsupported(nn.DataParallel(nn.Linear(2, 2)))
    """
    for name, module in model.named_modules():
        where = f"module {name!r}" if name else "the model"
        if isinstance(getattr(module, "_orig_mod", None), nn.Module) or (
            getattr(module, "_compiled_call_impl", None) is not None
        ):
            raise ModelError(
                f"Expected a model that is not compiled, got {where} under torch.compile, which "
                f"runs around hooks. {INSTEAD}, or watch the model before compiling it."
            )
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
