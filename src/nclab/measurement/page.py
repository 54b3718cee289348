"""How a measurement is shown: as text, a picture, or one small file with picture and table."""

import base64
import html
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nclab.files import write_whole
from nclab.text import as_text

if TYPE_CHECKING:
    from nclab.figures.matplotlib_renderer import Drawing
    from nclab.figures.picture import Picture

STYLE = """
:root{color-scheme:light dark;--ink:#1f2328;--muted:#656d76;--line:#e4e7eb;--paper:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--muted:#9ba4ae;--line:#2d333b;--paper:#14181d}}
body{margin:2rem auto;max-width:1100px;padding:0 1.5rem;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
img{max-width:100%}h1{font-size:1.4rem}p{color:var(--muted);font-size:.9rem}
p.said{color:var(--ink);font-size:1rem;max-width:50rem}
table{border-collapse:collapse;font-size:.9rem}th,td{padding:.35rem 1rem .35rem 0;text-align:left;
border-bottom:1px solid var(--line)}
td{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
thead th+th{text-align:right}td.meaning,th.meaning{text-align:left;color:var(--muted)}
tbody th{font-weight:400}thead th{color:var(--muted)}div{overflow-x:auto}
"""


class Shown(ABC):
    """What is measured, as text at a prompt, as a table in a notebook, as a picture or a page."""

    @abstractmethod
    def _picture(self) -> "Picture": ...

    @abstractmethod
    def table_rows(self) -> list[dict[str, Any]]:
        """What the tables show."""

    @abstractmethod
    def lines(self) -> list[str]:
        """What is said below the table."""

    def plot(self, dark: bool = False) -> "Drawing":
        """A matplotlib figure and its panels; the last line of a notebook's cell shows it.

        >>> import nclab
        >>> fig, axes = nclab.measure_features([[1.0, 0.0], [-1.0, 0.5]], [0, 1]).plot()
        >>> [ax.get_title(loc="left") for ax in axes]
        ['cosines between classes', 'every class']
        """
        from nclab.figures.matplotlib_renderer import plot

        return plot(self._picture(), dark)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write what it means, picture and table as one page that needs nothing else."""
        write_page(path, self._picture(), self._html_table(), said=self.lines())

    def _html_table(self, remarks: Sequence[str] = ()) -> str:
        from nclab.measurement.table import as_html

        return as_html(self.table_rows(), remarks=remarks)

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__  # at a prompt, too: all fields in a row would fill the screen


def write_page(
    path: str | os.PathLike[str], picture: "Picture", table: str, said: Sequence[str] = ()
) -> None:
    """Write lines, a picture, for light and for dark screens, and a table of HTML as one file."""
    title = html.escape(picture.title)
    first = "".join(f'<p class="said">{html.escape(line)}</p>\n' for line in said)
    light, dark = (_image(picture, dark) for dark in (False, True))
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{STYLE}</style></head><body>
<h1>{title}</h1>
{first}<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">
<img src="{light}" alt="{title}"></picture>
<p>{html.escape(picture.caption)}</p>
<div>{table}</div>
</body></html>
"""
    write_whole(path, page.encode(), through_link=True)


def _image(picture: "Picture", dark: bool) -> str:
    """A figure as an address that holds it all."""
    from nclab.figures.matplotlib_renderer import draw

    content = io.BytesIO()
    draw(picture._replace(title=""), dark).savefig(content, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(content.getvalue()).decode()}"
