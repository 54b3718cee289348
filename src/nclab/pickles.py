"""Files of torch.save, which are refused with the lines that convert them."""

from pathlib import Path
from typing import NoReturn

from nclab.errors import DataError

PICKLES = (".pt", ".pth", ".pkl", ".bin")
CONVERT = """\
    import torch; from safetensors.torch import save_file
    part = torch.load({name!r}, weights_only=True)
    save_file({{"features": part["features"], "labels": part["labels"]}}, {new!r})"""


def refuse_pickle(file: Path) -> NoReturn:
    """A pickle can run code: it is never opened.

    >>> refuse_pickle(Path("out/a.pt"))
    Traceback (most recent call last):
    nclab.errors.DataError: Expected a file without pickle, got a.pt. Convert it:
        import torch; from safetensors.torch import save_file
        part = torch.load('out/a.pt', weights_only=True)
        save_file({"features": part["features"], "labels": part["labels"]}, 'out/a.safetensors')
    """
    how = CONVERT.format(name=str(file), new=str(file.with_suffix(".safetensors")))
    raise DataError(f"Expected a file without pickle, got {file.name}. Convert it:\n{how}")
