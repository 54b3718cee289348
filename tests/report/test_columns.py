"""Curves are thinned evenly, keep both ends, and are fast to read."""

import json
from itertools import pairwise

import pytest

from nclab.report.run_follower import Columns


def lines(count: int, *, start: int = 0) -> list[bytes]:
    return [
        json.dumps(
            {
                "kind": "measurement",
                "step": n,
                "epoch": n / 10,
                "layers": [{"layer": "fc", "min_intra": n / 100, "counts": [1, 2], "note": "x"}],
                "train": {"loss": 1 / (n + 1), "why": None},
            }
        ).encode()
        for n in range(start, start + count)
    ]


def test_everything_is_kept_while_it_is_little() -> None:
    columns = Columns()
    columns.extend(lines(5))
    assert columns.names() == [("fc", "min_intra"), ("", "train loss")]
    x, y = columns.points(("fc", "min_intra"), "epoch")
    assert x == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert y == pytest.approx([0.0, 0.01, 0.02, 0.03, 0.04])
    assert columns.points(("fc", "absent"), "step") == ([], [])


@pytest.mark.parametrize("pieces", [[1000], [1] * 1000, [3, 500, 497]])
def test_many_are_thinned_and_the_newest_is_there(pieces: list[int]) -> None:
    columns = Columns(limit=50)
    done = 0
    for piece in pieces:
        columns.extend(lines(piece, start=done))
        done += piece
        x, _ = columns.points(("fc", "min_intra"), "step")
        assert x[0] == 0
        assert x[-1] == done - 1
        assert len(x) <= 101
    assert columns.count == 1000
    gaps = {second - first for first, second in pairwise(x[:-1])}
    assert gaps == {columns.stride}


def test_heavy_records_are_decoded_sparingly() -> None:
    heavy = [line[:-1] + b', "pad": "' + b"x" * 20_000 + b'"}' for line in lines(1000)]
    columns = Columns()
    columns.extend(heavy)
    assert 64 <= len(columns) <= 256


def test_what_appears_late_and_what_is_missing_is_nothing() -> None:
    columns = Columns()
    first = b'{"kind":"m","step":1,"a":1.0}'
    columns.extend(
        [first, b'{"kind":"m","step":2,"b":2.0}', b"damaged", b'{"kind":"m","step":4,"a":true}']
    )
    assert columns.points(("", "b"), "step") == ([1.0, 2.0, 4.0], [None, 2.0, None])
    places, values = columns.table(10)
    assert places["step"] == [1.0, 2.0, None, 4.0]
    assert values["", "a"] == [1.0, None, None, None]


def test_a_table_has_at_most_the_rows_asked_for() -> None:
    columns = Columns(limit=50)
    columns.extend(lines(997))
    places, values = columns.table(20)
    assert len(places["step"]) == len(values["fc", "min_intra"]) == 20
    assert places["step"][-1] == 996


def test_lists_are_passed_over_and_names_stay() -> None:
    columns = Columns()
    layer = {"layer": "blocks[0]", "note": 'a":[1]', "cosines": [[1.0, None], [-1e-5, 2]], "x": 3}
    columns.extend([json.dumps({"kind": "m", "step": 1, "layers": [layer]}).encode()])
    packed = json.dumps({"kind": "m", "step": 2, "layers": [layer]}, separators=(",", ":"))
    columns.extend([packed.encode()])
    assert columns.names() == [("blocks[0]", "x")]
    assert columns.points(("blocks[0]", "x"), "step") == ([1.0, 2.0], [3.0, 3.0])
