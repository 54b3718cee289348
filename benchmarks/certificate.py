"""Measure the CPU time of the intra and the inter bound by number of classes.

All cases run in one process on one thread; the best of several rounds counts. The baseline is the
worst-case search that the certificate replaces, for the numbers of classes where it is feasible.

    python benchmarks/certificate.py [--json] [--rounds 3]
"""

import argparse
import json
import time
from collections.abc import Callable

import torch

from nclab.theory.certificates.inter import mean_cosine_upper
from nclab.theory.certificates.norms_and_loss import norms_and_loss
from nclab.theory.certificates.one_class import alignment_lower, intra_lower
from nclab.theory.layer_peeled import g
from nclab.theory.worst_case import worst_intra

CASES = ((4, 3.0), (10, 5.0), (100, 8.0), (1000, 12.0))
RELATIVE_EXCESS = (1e-4, 1e-2, 0.3)
SEARCHED = 10
"""The largest number of classes for which the worst-case search is timed as well."""


def milliseconds(work: Callable[[], object], rounds: int) -> float:
    """Return the CPU time in milliseconds of the fastest of several calls."""
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return 1000 * best


def run(num_classes: int, product: float, relative: float, rounds: int) -> dict[str, object]:
    """Time the bounds for one case."""
    best = g(product, num_classes)
    root = product**0.5
    given = norms_and_loss(num_classes, root, root, best * (1 + relative))
    intra = milliseconds(lambda: intra_lower(given, alignment_lower(given)), rounds)
    inter = milliseconds(lambda: mean_cosine_upper(given), rounds)
    search = None
    if num_classes <= SEARCHED:
        sizes = (num_classes, product, relative * best)
        search = milliseconds(lambda: worst_intra(*sizes, starts=1), 1)
    return {
        "C": num_classes,
        "product": product,
        "relative_excess": relative,
        "intra_ms": round(intra, 2),
        "inter_ms": round(inter, 1),
        "search_ms": None if search is None else round(search, 1),
        "ratio_search": None if search is None else round(search / intra, 1),
    }


def main() -> None:
    """Time all cases and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print a list of results as JSON")
    parser.add_argument("--rounds", type=int, default=3, help="rounds per case, best is kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = [run(*case, excess, options.rounds) for case in CASES for excess in RELATIVE_EXCESS]
    if options.json:
        print(json.dumps(results, indent=1))
        return
    print(f"{'C':>5} {'αβ':>5} {'ε/m':>7} {'intra':>10} {'inter':>10} {'search':>10} {'ratio':>7}")
    for row in results:
        search = "" if row["search_ms"] is None else f"{row['search_ms']} ms"
        ratio = "" if row["ratio_search"] is None else str(row["ratio_search"])
        print(
            f"{row['C']:>5} {row['product']:>5} {row['relative_excess']:>7} "
            f"{row['intra_ms']:>7} ms {row['inter_ms']:>7} ms {search:>10} {ratio:>7}"
        )


if __name__ == "__main__":
    main()
