"""Run the tutorials in a Jupyter kernel and store their outputs in the notebooks.

python docs/build_notebooks.py [NOTEBOOK…]
"""

import base64
import io
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image

TUTORIALS = Path(__file__).parent / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))


def executed(file: Path) -> Any:
    """Return a notebook with the outputs of a new kernel; the file is not changed."""
    notebook = nbformat.read(file, as_version=4)
    quiet = ["--IPKernelApp.log_level=40"]  # it warns of its port, which is open to this machine
    client = NotebookClient(notebook, timeout=300, record_timing=False, extra_arguments=quiet)
    client.execute(cwd=str(TUTORIALS))
    notebook.metadata["language_info"] = {"name": "python"}  # the rest tells of this machine
    return notebook


def smaller(notebook: Any) -> Any:
    """Reduce the pictures of a notebook to 200 colours, which is enough for charts."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                image = Image.open(io.BytesIO(base64.b64decode(output.data["image/png"])))
                content = io.BytesIO()
                image.convert("RGB").quantize(200).save(content, "png", optimize=True)
                output.data["image/png"] = base64.b64encode(content.getvalue()).decode()
    return notebook


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:] or NOTEBOOKS):
        nbformat.write(smaller(executed(file)), file)
        print(f"wrote {file.name}")
