"""measure_shards gives the values of one array, with every engine."""

import itertools
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import nclab
from nclab.errors import DataError, NclabError
from nclab.measurement import shards as module
from nclab.measurement.options import MeasureOptions
from tests.clouds import cloud

pytestmark = pytest.mark.usefixtures("forked_workers")
DATA = cloud()
PARTS = 7
FIRST_ROUND = module.first_round


def write(folder: Path, parts: int = PARTS, suffix: str = ".safetensors") -> list[Path]:
    """Write the cloud to files of unequal size."""
    ends = np.linspace(0, len(DATA.labels), parts + 1).astype(int)
    ends[1:-1] = np.sort(ends[1:-1] + np.arange(parts - 1) % 3).clip(max=ends[-1])
    files = []
    for number, (start, stop) in enumerate(itertools.pairwise(ends)):
        rows = torch.as_tensor(DATA.features[start:stop]).contiguous()
        labels = torch.as_tensor(DATA.labels[start:stop]).contiguous()
        files.append(save(folder / f"part-{number}{suffix}", rows, labels))
    return files


def save(file: Path, rows: torch.Tensor, labels: torch.Tensor) -> Path:
    if file.suffix == ".safetensors":
        save_file({"features": rows, "labels": labels}, file)
    elif file.suffix == ".npz":
        np.savez(file, X=rows.numpy(), y=labels.numpy())
    elif file.suffix == ".npy":
        file = file.with_suffix(".features.npy")
        np.save(file, rows.numpy())
        np.save(file.with_name(file.name.replace("features", "labels")), labels.numpy())
    else:
        arrow = pytest.importorskip("pyarrow")
        lists = arrow.FixedSizeListArray.from_arrays(rows.numpy().ravel(), rows.shape[1])
        table = arrow.table({"features": lists, "labels": labels.numpy()})
        if file.suffix == ".parquet":
            import pyarrow.parquet

            pyarrow.parquet.write_table(table, file, row_group_size=5)
        else:
            with arrow.OSFile(str(file), "wb") as sink, arrow.ipc.new_file(sink, table.schema) as w:
                w.write_table(table, max_chunksize=4)
    return file


def same(result: nclab.Collapse, expected: nclab.Collapse) -> None:
    same_numbers(result.to_dict(), expected.to_dict())


def same_numbers(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ours.keys() == theirs.keys()
    for name in theirs.keys() - {"warnings"}:
        numbers = [flat(table[name]) for table in (ours, theirs)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-10, abs=1e-12), name


def flat(value: Any) -> list[Any]:
    """Return all numbers in a value, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for item in value for number in flat(item)]
    return [value] if isinstance(value, int | float) else []


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".npy", ".parquet", ".arrow"])
def test_shards_equal_one_shot(tmp_path: Path, suffix: str) -> None:
    write(tmp_path, suffix=suffix)
    result = nclab.measure_shards(tmp_path, DATA.weight, DATA.bias, workers=0)
    same(result, nclab.measure_features(*DATA))


def test_64_shards_in_two_processes_equal_one_shot(tmp_path: Path) -> None:
    write(tmp_path, parts=64)
    result = nclab.measure_shards(f"{tmp_path}/*.safetensors", DATA.weight, DATA.bias, workers=2)
    same(result, nclab.measure_features(*DATA))


def test_one_pass_alone(tmp_path: Path) -> None:
    write(tmp_path)
    result = nclab.measure_shards(tmp_path, second_pass=False, workers=0)
    same(result, nclab.measure_features(DATA.features, DATA.labels, second_pass=False))


def test_the_error_of_a_truncated_shard_names_it_and_skip_bad_leaves_it_out(tmp_path: Path) -> None:
    files = write(tmp_path)
    files[2].write_bytes(files[2].read_bytes()[:-8])
    with pytest.raises(DataError, match=r"part-2\.safetensors: .*cut short"):
        nclab.measure_shards(tmp_path, workers=0)
    result = nclab.measure_shards(tmp_path, workers=0, skip_bad=True)
    files.pop(2).unlink()
    others = nclab.measure_shards(tmp_path, workers=0)
    same(result, others)
    assert "part-2.safetensors" in result.warnings[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_shard_that_fails_in_the_middle_is_left_out_completely(
    tmp_path: Path, workers: int
) -> None:
    files = write(tmp_path)
    rows = torch.full((4, DATA.features.shape[1]), torch.nan)
    save(files[3], rows, torch.tensor([0, 1, 2, 0]))
    with pytest.raises(DataError, match=r"part-3\.safetensors: .*nan"):
        nclab.measure_shards(tmp_path, workers=workers)
    result = nclab.measure_shards(tmp_path, workers=workers, skip_bad=True)
    files[3].unlink()
    same(result, nclab.measure_shards(tmp_path, workers=workers))
    assert "part-3" in result.warnings[0]


def test_absent_classes_raise_before_the_features_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    monkeypatch.setattr(module, "first_round", None)
    classes = int(DATA.labels.max()) + 2
    with pytest.raises(DataError, match=f"all {classes} classes, got none of 1"):
        nclab.measure_shards(tmp_path, num_classes=classes, workers=0)


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_worker_that_dies_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, engine: str
) -> None:
    if engine == "ray":
        pytest.importorskip("ray", reason="ray is not installed")
        request.getfixturevalue("ray_cluster")
    write(tmp_path, parts=64)
    monkeypatch.setattr(module, "first_round", dies_once)
    result = nclab.measure_shards(tmp_path, DATA.weight, DATA.bias, workers=2, engine=engine)
    monkeypatch.undo()
    assert (tmp_path / "died").exists()
    same(result, nclab.measure_features(*DATA))


def dies_once(report: Any, shards: Any, plan: Any) -> Any:
    """Make the first pass, but kill the first worker that starts it."""
    mark = Path(shards[0]).parent / "died"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return FIRST_ROUND(report, shards, plan)


@pytest.mark.parametrize("index", [0, 3, PARTS - 1])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_error_names_the_file_of_another_dimension(
    tmp_path: Path, index: int, workers: int
) -> None:
    """The file may be the first, or belong to another worker."""
    odd = write(tmp_path)[index]
    labels = torch.arange(6) % DATA.weight.shape[0]
    save(odd, torch.ones(6, DATA.features.shape[1] + 2), labels)
    with pytest.raises(DataError, match=rf"{odd.name}: Expected features of dimension \d+, got"):
        nclab.measure_shards(tmp_path, workers=workers)
    result = nclab.measure_shards(tmp_path, workers=workers, skip_bad=True)
    assert result.dim == DATA.features.shape[1]
    left_out = [message for message in result.warnings if message.startswith("Left out")]
    assert len(left_out) == 1
    assert odd.name in left_out[0]


def test_an_error_counts_rows_in_its_own_file(tmp_path: Path) -> None:
    spoiled = write(tmp_path)[4]
    rows = torch.as_tensor(DATA.features[:6]).clone()
    rows[5, 1] = torch.nan
    save(spoiled, rows, torch.as_tensor(DATA.labels[:6]).clone())
    with pytest.raises(DataError, match=rf"{spoiled.name}: .*nan in row 5, column 1"):
        nclab.measure_shards(tmp_path, workers=0)


@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_file_that_a_worker_does_not_see_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skip_bad: bool
) -> None:
    files = write(tmp_path)
    counted = module._read_labels

    def then_lost(paths: Any, plan: Any) -> Any:
        result = counted(paths, plan)
        files[1].unlink()
        return result

    monkeypatch.setattr(module, "_read_labels", then_lost)
    with pytest.raises(NclabError, match=r"every machine to see .*part-1.*Keep shards in a folder"):
        nclab.measure_shards(tmp_path, workers=0, skip_bad=skip_bad)


def test_workers_share_the_rows() -> None:
    shards = {Path(str(number)): 10 for number in range(10)}
    groups = module._groups(shards, 3)
    assert [path for group in groups for path in group] == list(shards)
    assert sorted(map(len, groups)) == [3, 3, 4]
    assert len(module._groups(shards, 99)) == 10


def test_bad_input_raises_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file matches"):
        nclab.measure_shards(f"{tmp_path}/*.npz")
    with pytest.raises(DataError, match=r"Expected shards .* in .*, got none"):
        nclab.measure_shards(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        nclab.measure_shards(tmp_path / "x.npz")
    write(tmp_path)
    with pytest.raises(NclabError, match="engine='local' or 'ray'"):
        nclab.measure_shards(tmp_path, engine="cloud")
    (tmp_path / "a.pt").write_bytes(b"")
    with pytest.raises(DataError, match="without pickle"):
        nclab.measure_shards(tmp_path / "a.pt")
    only = tmp_path / "only pickles"
    only.mkdir()
    (only / "part-0.pt").write_bytes(b"")
    for path in (only, only / "part-0.pt"):
        with pytest.raises(DataError, match=r"torch\.load\('.*/only pickles/part-0\.pt'"):
            nclab.measure_shards(path)
    alone = tmp_path / "b.features.npy"
    np.save(alone, np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"labels in a file b\.labels\.npy"):
        nclab.measure_shards(alone)


def test_labels_that_are_not_class_numbers_raise(tmp_path: Path) -> None:
    first, second = write(tmp_path, parts=2)
    rows = torch.zeros(2, DATA.features.shape[1])
    save(second, rows, torch.tensor([0, 10**15]))  # 8 PB of counts
    with pytest.raises(DataError, match=r"part-1\..* 1000000000000001 classes"):
        nclab.measure_shards(tmp_path, workers=0)
    result = nclab.measure_shards(tmp_path, workers=0, skip_bad=True)
    same(result, nclab.measure_shards(first, workers=0))
    save(second, rows, torch.tensor([0.0, 1.0]))
    with pytest.raises(DataError, match=r"got float32\. .* labels\.argmax\(1\)\.$"):
        nclab.measure_shards(tmp_path, workers=0)


def test_no_label_is_ignored_if_ignore_index_is_none(tmp_path: Path) -> None:
    write(tmp_path)
    result = nclab.measure_shards(tmp_path, ignore_index=None, workers=0)
    same(result, nclab.measure_shards(tmp_path, workers=0))


def test_a_file_that_is_given_twice_is_read_once(tmp_path: Path) -> None:
    files = write(tmp_path)
    once = nclab.measure_shards(tmp_path, workers=0)
    for twice in ([*files, tmp_path / "." / files[0].name], [tmp_path, files[0]]):
        assert nclab.measure_shards(twice, workers=0).samples == once.samples


def test_the_error_says_why_all_files_were_left_out(tmp_path: Path) -> None:
    file = tmp_path / "part-0.safetensors"
    save(file, DATA.features, DATA.labels[:-1])
    with pytest.raises(DataError, match=r"can be read, got none: .*part-0.*one label per row"):
        nclab.measure_shards(tmp_path, workers=0, skip_bad=True)
    file.write_bytes(b"{}")
    with pytest.raises(DataError, match=r"can be read, got none: .*part-0.*cut short"):
        nclab.measure_shards(tmp_path, workers=0, skip_bad=True)


def test_progress_is_reported_within_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [file] = write(tmp_path, parts=1)
    monkeypatch.setattr(module, "COMPILED_SIZE", 1)
    monkeypatch.setattr(module, "PRODUCTS", 5 * 7 * 19)
    plan = module.Plan(None, MeasureOptions(num_classes=5))
    reported: list[int] = []
    module.first_round(reported.append, [str(file)], plan)
    assert reported == [20, 40, 45]


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_names_as_labels_raise(tmp_path: Path, suffix: str) -> None:
    names = np.array(["a", "b", "a"])
    rows = np.zeros((3, 2))
    if suffix == ".npz":
        np.savez(tmp_path / "part.npz", X=rows, y=names)
    else:
        np.save(tmp_path / "part.features.npy", rows)
        np.save(tmp_path / "part.labels.npy", names)
    with pytest.raises(DataError, match="Expected class numbers as labels of shards, got <U1"):
        nclab.measure_shards(tmp_path, workers=0)


def test_missing_labels_in_a_column_raise(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    lists = arrow.FixedSizeListArray.from_arrays(np.zeros(6), 2)
    table = arrow.table({"features": lists, "labels": [0, None, 1]})
    pyarrow.parquet.write_table(table, tmp_path / "part.parquet")
    with pytest.raises(DataError, match="Expected a label in every row"):
        nclab.measure_shards(tmp_path, workers=0)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        # 8 numbers in 2 rows would be 4 a row.
        ([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0, 5.0]], "lists of equal length .*, got 3 to 5"),
        ([1.0, 2.0], "lists of numbers as features, got double"),
        ([[[1.0], [2.0]], [[3.0], [4.0]]], "lists of numbers as features, got list<"),
        ([[1.0, 2.0], None], "lists of equal length as features, got missing"),
    ],
)
def test_lists_of_unequal_length_raise(tmp_path: Path, features: list[Any], message: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    table = arrow.table({"features": features, "labels": [0, 1]})
    pyarrow.parquet.write_table(table, tmp_path / "part.parquet")
    with pytest.raises(DataError, match=message):
        nclab.measure_shards(tmp_path, workers=0)


@pytest.mark.parametrize("kind", [np.uint16, np.uint32, np.uint64])
def test_rare_classes_of_unsigned_labels(tmp_path: Path, kind: Any) -> None:
    features, labels, weight, bias = DATA
    keep = (labels != 2) | (torch.arange(len(labels)) < len(labels) // 2)
    features, labels = features[keep], labels[keep]
    fewest = int(labels.bincount().min()) + 1
    np.savez(tmp_path / "part.npz", X=features.numpy(), y=labels.numpy().astype(kind))
    result = nclab.measure_shards(tmp_path, weight, bias, workers=0, min_count=fewest)
    expected = nclab.measure_features(features, labels, weight, bias, min_count=fewest)
    assert result.left_out == expected.left_out != ()
    same_numbers(result.scalars(), expected.scalars())


@pytest.mark.parametrize("workers", [0, 2])
def test_extra_metrics_equal_one_shot(tmp_path: Path, workers: int) -> None:
    write(tmp_path)
    result = nclab.measure_shards(tmp_path, DATA.weight, DATA.bias, workers=workers, metrics="all")
    same(result, nclab.measure_features(*DATA, metrics="all"))


@pytest.mark.parametrize("workers", [0, 2])
def test_shards_with_a_reference(tmp_path: Path, workers: int) -> None:
    train = nclab.measure_features(*DATA)
    write(tmp_path)
    few = sorted(tmp_path.iterdir())[:2]
    result = nclab.measure_shards(few, DATA.weight, DATA.bias, workers=workers, reference=train)
    rows = result.samples
    expected = nclab.measure_features(
        DATA.features[:rows], DATA.labels[:rows], DATA.weight, DATA.bias, reference=train
    )
    assert result.reference_ncc_accuracy is not None
    same(result, expected)


def test_files_of_another_byte_order_are_read(tmp_path: Path) -> None:
    rows, labels = np.arange(24.0).reshape(6, 4) ** 2, np.array([0, 0, 1, 1, 2, 2])
    measured = []
    for order in "<>":
        folder = tmp_path / ("little" if order == "<" else "big")
        folder.mkdir()
        np.save(folder / "a.features.npy", rows.astype(f"{order}f8"))
        np.save(folder / "a.labels.npy", labels.astype(f"{order}i8"))
        measured.append(nclab.measure_shards(folder / "a.features.npy", workers=0).scalars())
    assert measured[0] == measured[1]
