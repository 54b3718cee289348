"""Measure how often 95 % intervals contain the truth, on data sets whose truth is known.

python benchmarks/interval_coverage.py [--sets 1000] [--groups 10] [--times 1] [--noise student]
python benchmarks/interval_coverage.py --simplex

Each data set has four normal classes of unequal size and shape in six dimensions, and a fixed
classifier. With `--noise student` their noise has heavy tails: a Student distribution with three
degrees of freedom and the same covariances. The true values of metrics that depend on means and
covariances are written out. Those of losses, shares and cosines come from two million further
samples.

With `--simplex` the class means are an exact simplex, of 3, 4, 5, 10 and 20 classes, and so is the
classifier. All distances from it are 0, and an interval is wrong if it excludes 0.
"""

import argparse
import math
import re
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nclab

Array = NDArray[np.float64]

COUNTS = (60, 50, 40, 30)
DIM = 6
MANY = 500_000
DISTANCES = (
    "nc2_norm_variation_means",
    "nc2_equiangularity_means",
    "nc2_cosine_std_means",
    "nc3_self_duality",
    "nc3_frobenius",
    "unc3_duality",
)
"""Metrics that are 0 at an exact simplex, but positive for every sample."""


class World:
    """Distribution that the data sets are drawn from: `noise` is "normal" or "student"."""

    def __init__(self, noise: str = "normal") -> None:
        self.noise = noise
        rng = np.random.default_rng(1)
        classes = len(COUNTS)
        self.means = 1.5 * rng.normal(size=(classes, DIM)) + 0.5
        self.factors = 0.35 * rng.normal(size=(classes, DIM, DIM))
        self.weight = self.means + 0.5 * rng.normal(size=(classes, DIM))
        self.bias = 0.3 * rng.normal(size=classes)

    def draw(self, rng: np.random.Generator, counts: tuple[int, ...]) -> tuple[Array, Array]:
        """Draw features and labels."""
        parts = [
            self.means[c] + self._noise(rng, count) @ self.factors[c].T
            for c, count in enumerate(counts)
        ]
        return np.concatenate(parts), np.repeat(np.arange(len(counts)), counts)

    def _noise(self, rng: np.random.Generator, count: int) -> Array:
        """Draw noise with variance 1."""
        if self.noise == "normal":
            return rng.normal(size=(count, DIM))
        return rng.standard_t(3, size=(count, DIM)) / math.sqrt(3)

    def truth(self) -> dict[str, float]:
        """Return the true values of the metrics."""
        return self._of_moments() | self._of_samples(np.random.default_rng(2))

    def _of_moments(self) -> dict[str, float]:
        shares = np.array(COUNTS) / sum(COUNTS)
        covariances = self.factors @ self.factors.transpose(0, 2, 1)
        within = np.einsum("c,cij->ij", shares, covariances)
        centred = self.means - self.means.mean(0)
        between = centred.T @ centred / len(COUNTS)
        variances = np.trace(covariances, axis1=1, axis2=2)
        norms = np.linalg.norm(centred, axis=1)
        units = centred / norms[:, None]
        rows = self.weight - self.weight.mean(0)
        apart = np.linalg.norm(units - rows / np.linalg.norm(rows, axis=1)[:, None], axis=1)
        cosines, ordinary = [], []
        for c in range(len(COUNTS)):
            for k in range(len(COUNTS)):
                way = self.means[k] - self.means[c]
                square = way @ way
                if c < k:
                    cosines.append(units[c] @ units[k])
                    ordinary.append((variances[c] + variances[k]) / (2 * square))
        ideal = -1 / (len(COUNTS) - 1)
        gap = self.weight / np.linalg.norm(self.weight) - centred / np.linalg.norm(centred)
        return {
            "nc1_trace_pinv": np.trace(within @ np.linalg.pinv(between, rcond=1e-9)) / len(COUNTS),
            "nc1_trace_ratio": np.trace(within) / np.trace(between),
            "cdnv": np.mean(ordinary),
            "nc2_norm_variation_means": np.std(norms) / np.mean(norms),
            "nc2_equiangularity_means": np.mean(np.abs(np.array(cosines) - ideal)),
            "nc2_cosine_std_means": np.std(cosines),
            "nc3_self_duality": np.mean(apart),
            "nc3_frobenius": np.sum(gap**2),
            "alpha": math.sqrt(np.mean(variances + np.sum(self.means**2, axis=1))),
        }

    def _of_samples(self, rng: np.random.Generator) -> dict[str, float]:
        shares = np.array(COUNTS) / sum(COUNTS)
        centre = self.means.mean(0)
        found: dict[str, list[float]] = {}
        directions: dict[str, list[Array]] = {"mean_intra": [], "centred_mean_intra": []}
        for c in range(len(COUNTS)):
            rows = self.draw(rng, tuple(MANY if k == c else 0 for k in range(len(COUNTS))))[0]
            logits = rows @ self.weight.T + self.bias
            top = logits.max(1, keepdims=True)
            losses = np.log(np.exp(logits - top).sum(1)) + top[:, 0] - logits[:, c]
            distances = np.stack([((rows - mean) ** 2).sum(1) for mean in self.means], 1)
            own = {
                "loss": losses.mean(),
                "accuracy": (logits.argmax(1) == c).mean(),
                "nc4_ncc_accuracy": (distances.argmin(1) == c).mean(),
                "nc4_agreement": (distances.argmin(1) == logits.argmax(1)).mean(),
                "spread": np.sqrt(distances[:, c]).mean(),
                "reach": np.linalg.norm(rows - centre, axis=1).mean(),
            }
            for name, value in own.items():
                found.setdefault(name, []).append(float(value))
            for name, shift in (("mean_intra", 0.0), ("centred_mean_intra", centre)):
                seen = rows - shift
                directions[name].append((seen / np.linalg.norm(seen, axis=1)[:, None]).mean(0))
        out = {name: float(shares @ np.array(values)) for name, values in found.items()}
        out["balanced_loss"] = float(np.mean(found["loss"]))
        out["nc1_within_variation"] = out.pop("spread") / out.pop("reach")
        for name, means in directions.items():
            out[name] = float(np.mean([mean @ mean for mean in means]))
        return out


def run(sets: int, groups: int, times: int, noise: str = "normal") -> dict[str, dict[str, float]]:
    """Return for each metric the truth, the coverage of its intervals, and how often it has one.

    Also how often a warning names the metric, and how often its interval is wrong without one.
    """
    world = World(noise)
    truth = world.truth()
    held = dict.fromkeys(truth, 0)
    given = dict.fromkeys(truth, 0)
    warned = dict.fromkeys(truth, 0)
    silent = dict.fromkeys(truth, 0)
    counts = tuple(times * count for count in COUNTS)
    widths: dict[str, list[float]] = {name: [] for name in truth}
    for seed in range(sets):
        features, labels = world.draw(np.random.default_rng(1000 + seed), counts)
        collapse = nclab.measure_features(
            *(features, labels, world.weight, world.bias),
            intervals=groups,
        )
        intervals: Any = collapse.intervals
        listed = " ".join(line for line in collapse.warnings if line.startswith("Heavy tails"))
        named = set(re.findall(r"\w+", listed))
        for name, value in truth.items():
            if name in intervals:
                low, high, _ = intervals[name]
                given[name] += 1
                held[name] += low <= value <= high
                warned[name] += name in named
                silent[name] += name not in named and not low <= value <= high
                widths[name].append(high - low)
    return {
        name: {
            "truth": float(truth[name]),
            "coverage": held[name] / max(1, given[name]),
            "given": given[name] / sets,
            "warned": warned[name] / max(1, given[name]),
            "silent": silent[name] / sets,
            "half": float(np.mean(widths[name])) / 2 if widths[name] else math.nan,
        }
        for name in truth
    }


def run_simplex(groups: int) -> dict[str, tuple[int, int, int]]:
    """Return for each distance the number of data sets, of intervals, and of those without 0."""
    counts = {name: [0, 0, 0] for name in DISTANCES}
    for classes in (3, 4, 5, 10, 20):
        dim = max(classes, DIM)
        means = nclab.metrics.simplex_etf(classes, dim).numpy()
        labels = np.repeat(np.arange(classes), 60)
        for noise in (0.1, 0.5):
            for seed in range(35):
                rng = np.random.default_rng(1000 * classes + seed)
                rows = means[labels] + noise * rng.normal(size=(len(labels), dim))
                collapse = nclab.measure_features(rows, labels, means, intervals=groups)
                intervals: Any = collapse.intervals
                for name, row in counts.items():
                    row[0] += 1
                    row[1] += name in intervals
                    row[2] += name in intervals and intervals[name].low > 0
    return {name: (sets, given, wrong) for name, (sets, given, wrong) in counts.items()}


def main() -> None:
    """Print the table of coverage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--times", type=int, default=1, help="as many samples")
    parser.add_argument("--noise", choices=["normal", "student"], default="normal")
    parser.add_argument("--simplex", action="store_true", help="class means at an exact simplex")
    options = parser.parse_args()
    start = time.process_time()
    if options.simplex:
        print(f"{'metric':26} {'data sets':>10} {'intervals':>10} {'without 0':>10}")
        for name, (sets, given, wrong) in run_simplex(options.groups).items():
            print(f"{name:26} {sets:10} {given:10} {wrong:10}")
        return
    headings = ("truth", "± on average", "coverage", "given", "warned", "wrong, no warning")
    print(f"{'metric':26} {' '.join(f'{heading:>12}' for heading in headings)}")
    for name, row in run(options.sets, options.groups, options.times, options.noise).items():
        numbers = [row[key] for key in ("coverage", "given", "warned", "silent")]
        print(
            f"{name:26} {row['truth']:12.4g} {row['half']:12.2g} "
            f"{' '.join(f'{number:12.3f}' for number in numbers)}"
        )
    samples = options.times * sum(COUNTS)
    print(f"{options.sets} data sets of {samples} samples, {time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()
