"""A fleet equals plain torch training; groups, resuming and diverged members."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import nclab
from nclab.errors import DataError, NclabError
from nclab.training.fleet import Fleet, Member, Recipe
from nclab.training.fleet.fleet import Backend
from nclab.training.models.mlp import Norm, Shape
from tests.reference.slow_training import plain_network, plain_training

NORMS: list[Norm] = ["affine", "plain", "none", "last"]
RATES: dict[Norm, float] = {"affine": 0.05, "plain": 0.05, "none": 0.05, "last": 0.02}
"""Learning rates. At 0.05 the weights below the only batch norm amplify rounding errors."""
SHAPE = Shape(inputs=16, classes=4, layers=6, width=24)
SAMPLES = 176
"""Number of samples; batches of 32 leave one of 16."""
RECIPE = Recipe(epochs=9, batch=32, rate=0.05)
BACKEND: Backend = "auto"


def data(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(SAMPLES, 16, generator=generator, dtype=torch.float64)
    normals = torch.randn(16, 2, generator=generator, dtype=torch.float64)
    labels = ((inputs @ normals > 0).long() * torch.tensor([1, 2])).sum(1)
    return inputs.to(dtype), labels


@pytest.fixture(params=["kernel", "torch"], autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test with the compiled kernel and with plain torch."""
    monkeypatch.setitem(globals(), "BACKEND", request.param)


def build(members: list[Member], **options: Any) -> Fleet:
    dtype = options.get("dtype", torch.float32)
    shape, recipe = options.pop("shape", SHAPE), options.pop("recipe", RECIPE)
    return Fleet(shape, members, recipe, *data(dtype), **{"backend": BACKEND, **options})


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    assert first.keys() == second.keys()
    return all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize(("bias", "drop_last"), [(True, False), (False, True)])
def test_equals_plain_torch(
    norm: Norm, dtype: torch.dtype, tolerance: float, bias: bool, drop_last: bool
) -> None:
    """Compare 54 steps with a smaller last batch and three milestones."""
    shape = Shape(inputs=16, classes=4, layers=6, width=24, bias=bias)
    recipe = Recipe(epochs=9, batch=32, rate=RATES[norm], drop_last=drop_last)
    fleet = build([Member(norm, 3e-3, seed=5)], dtype=dtype, shape=shape, recipe=recipe)
    means = [fleet.train_epoch()[0].loss for _ in range(9)]
    torch.manual_seed(5)
    network = plain_network(shape.widths, norm, bias=bias).to(dtype)
    orders = [torch.randperm(SAMPLES).split(32) for _ in range(9)]
    assert len(orders[0][-1]) == 16
    batches = [order[:-1] if drop_last else order for order in orders]
    options: dict[str, Any] = {"rate": RATES[norm], "milestones": [3, 5, 7], "weight_decay": 3e-3}
    expected = plain_training(network, *data(dtype), batches, **options)
    model = fleet.model(0)
    state = {k: v for k, v in network.state_dict().items() if "num_batches" not in k}
    ours = {k: v for k, v in model.state_dict().items() if "num_batches" not in k}
    assert len(ours) == len(state)
    for got, want in zip(ours.values(), state.values(), strict=True):
        assert got.dtype == dtype
        assert float((got - want).abs().max()) < tolerance
    assert means == pytest.approx(expected, rel=10 * tolerance)
    network.eval()
    inputs = data(dtype)[0]
    with torch.no_grad():
        assert float((model(inputs) - network(inputs)).abs().max()) < 100 * tolerance


def test_numbers_do_not_depend_on_the_group() -> None:
    members = [Member(norm, decay, seed) for norm in NORMS for decay, seed in [(1e-3, 0), (0.0, 1)]]
    together = build(members)
    stats = [together.train_epoch() for _ in range(2)][-1]
    for index in reversed(range(len(members))):
        alone = build([members[index]])
        assert [alone.train_epoch() for _ in range(2)][-1] == [stats[index]]
        assert same(alone.tensors(0), together.tensors(index))


def test_training_fits_the_data_and_reports_it() -> None:
    fleet = build([Member(norm, 1e-4) for norm in NORMS])
    first = fleet.train_epoch()
    last = [fleet.train_epoch() for _ in range(8)][-1]
    assert fleet.epoch == 9
    for before, after in zip(first, last, strict=True):
        assert after.loss < before.loss
        assert 0.25 < after.accuracy <= 1
        assert after.alive
        assert after.why == ""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_resumes_bit_for_bit(dtype: torch.dtype) -> None:
    members = [Member(norm, 1e-3, seed) for seed, norm in enumerate(NORMS)]
    undisturbed = build(members, dtype=dtype)
    for _ in range(2):
        undisturbed.train_epoch()
    saved = [undisturbed.tensors(index) for index in range(len(members))]
    resumed = build(members, dtype=dtype)
    resumed.train_epoch()
    for index, tensors in enumerate(saved):
        resumed.load(index, tensors, 2)
        assert same(resumed.tensors(index), tensors)
    assert resumed.epoch == 2
    for _ in range(3):
        assert undisturbed.train_epoch() == resumed.train_epoch()
    for index in range(len(members)):
        assert same(undisturbed.tensors(index), resumed.tensors(index))
        assert not same(undisturbed.tensors(index), saved[index])


def test_tensors_are_copies_and_survive_a_file(tmp_path: Any) -> None:
    from safetensors.torch import load_file, save_file

    fleet = build([Member()])
    saved = fleet.tensors(0)
    save_file(saved, tmp_path / "member.safetensors")
    fleet.train_epoch()
    read = load_file(tmp_path / "member.safetensors")
    assert same(saved, read)
    fleet.load(0, read, 0)
    assert same(fleet.tensors(0), saved)


def test_members_at_different_epochs_raise() -> None:
    fleet = build([Member(), Member(seed=1)])
    saved = fleet.tensors(0)
    fleet.train_epoch()
    fleet.load(0, saved, 0)
    with pytest.raises(NclabError, match=r"same epoch, got epochs \[0, 1\]"):
        fleet.train_epoch()


def test_tensors_of_another_fleet_raise() -> None:
    with pytest.raises(NclabError, match=r"model\.hidden\.0\.norm\.weight.*got none"):
        build([Member("affine")]).load(0, build([Member("plain")]).tensors(0), 0)
    with pytest.raises(NclabError, match=r"float64, got .*float32"):
        build([Member()], dtype=torch.float64).load(0, build([Member()]).tensors(0), 0)


def test_a_diverging_member_keeps_its_last_finite_state() -> None:
    """A weight decay of 1e4 multiplies the weights by -500 per step, so they overflow soon."""
    members = [Member("affine", 1e-3), Member("none", 1e4), Member("plain", 1e-3)]
    fleet, without = build(members), build([members[0], members[2]])
    states = [fleet.tensors(1)]
    history = []
    for _ in range(4):
        stats = fleet.train_epoch()
        others = without.train_epoch()
        assert [stats[0], stats[2]] == others
        history.append(stats[1])
        states.append(fleet.tensors(1))
    assert [same(fleet.tensors(i), without.tensors(j)) for i, j in [(0, 0), (2, 1)]] == [True, True]
    failed = [stats.alive for stats in history].index(False)
    assert not any(stats.alive for stats in history[failed:])
    assert math.isnan(history[-1].loss)
    assert f"in epoch {failed + 1} of 9" in history[failed].why
    assert f"the state after epoch {failed} is kept" in history[-1].why
    kept = fleet.tensors(1)
    assert all(value.isfinite().all() for value in kept.values())
    saved = states[failed]
    assert all(torch.equal(kept[name], saved[name]) for name in kept)
    reloaded = build(members)
    for index in range(3):
        reloaded.load(index, fleet.tensors(index), fleet.epoch, stats[index].why)
    assert reloaded.train_epoch()[1].why == history[-1].why


def test_denormal_numbers_become_zero() -> None:
    fleet = build([Member("affine", 1e-3, seed=0)])
    state = fleet.tensors(0)
    state["model.hidden.0.linear.weight"][0] = 0.0  # a dead unit: its variance only decays
    state["model.hidden.0.linear.bias"][0] = 0.0
    state["model.hidden.0.norm.running_var"][0] = 1.2e-38
    fleet.load(0, state, 0)
    fleet.train_epoch()
    variance = fleet.tensors(0)["model.hidden.0.norm.running_var"]
    assert variance[0] == 0.0
    assert (variance[1:] > 0).all()
    assert torch.tensor(2e-38) / 4 > 0, "the caller's arithmetic is as before"


def test_the_model_of_a_member_can_be_measured() -> None:
    fleet = build([Member("affine", seed=2)])
    fleet.train_epoch()
    report = nclab.measure(fleet.model(0), [data()], layers="all")
    assert len(report.layers) == 5
    with pytest.raises(NclabError, match="got 'batch'"):
        fleet.model(0, statistics="batch")  # type: ignore[arg-type]


def test_running_and_full_statistics_differ() -> None:
    fleet = build([Member("affine")])
    fleet.train_epoch()
    inputs = data()[0]
    assert not torch.allclose(fleet.model(0)(inputs), fleet.model(0, statistics="full")(inputs))


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (torch.zeros(40, 16), torch.arange(40) % 5, r"labels in \[0, 4\), got 4"),
        (torch.zeros(40, 16), torch.arange(40) % 4 - 1, r"labels in \[0, 4\), got -1"),
        (torch.zeros(40, 4, 4), torch.arange(40) % 4, r"\(n, 16\), got \(40, 4, 4\)"),
        (torch.zeros(40, 16), torch.arange(39) % 4, "each of 40 inputs"),
        (torch.zeros(40, 16), torch.zeros(40), "integer label .*got torch.float32"),
    ],
)
def test_bad_data_raise_one_line(inputs: Tensor, labels: Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        Fleet(SHAPE, [Member()], Recipe(), inputs, labels)
    assert "\n" not in str(error.value)


def test_impossible_batches_raise() -> None:
    recipe = Recipe(batch=25)
    with pytest.raises(NclabError, match="leave one of 1"):
        build([Member("none"), Member("plain")], recipe=recipe)
    build([Member("none")], recipe=recipe).train_epoch()
    build([Member()], recipe=Recipe(batch=25, drop_last=True)).train_epoch()
    with pytest.raises(NclabError, match="at least 200 samples"):
        build([Member()], recipe=Recipe(batch=200, drop_last=True))
    with pytest.raises(NclabError, match="at least one member"):
        build([])
    with pytest.raises(NclabError, match="float16"):
        build([Member()], dtype=torch.float16)
