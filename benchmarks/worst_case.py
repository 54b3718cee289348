"""Compare the intra guarantee with the true worst case, and time both searches.

One run, one thread. Also compares the worst inter-class cosine, over the square root of the excess.

    python benchmarks/worst_case.py [--json] [--starts 6]
"""

import argparse
import json
import math
import time

import torch

from nclab.theory.certificates.norms_and_loss import norms_and_loss
from nclab.theory.certificates.one_class import alignment_lower, intra_lower
from nclab.theory.layer_peeled import g
from nclab.theory.worst_case import worst_inter, worst_intra

CASES = (
    *((4, 3.0, share * g(3.0, 4)) for share in (1e-4, 1e-3, 1e-2, 1e-1)),
    *((10, 5.0, excess) for excess in (1e-5, 1e-4, 1e-3)),
)
"""Number of classes, product of the norms, excess loss."""


def run(case: tuple[int, float, float], starts: int) -> dict[str, object]:
    """Run both searches and the bound for one case."""
    num_classes, product, excess = case
    lowest = g(product, num_classes)
    began = time.perf_counter()
    intra = worst_intra(num_classes, product, excess, starts=starts)
    halfway = time.perf_counter()
    inter = worst_inter(num_classes, product, excess, starts=starts)
    ended = time.perf_counter()
    given = norms_and_loss(num_classes, product, 1.0, lowest + excess)
    guaranteed = intra_lower(given, alignment_lower(given))
    bound = 1 - guaranteed.value
    return {
        "C": num_classes,
        "product": product,
        "excess": excess,
        "excess_over_optimal": excess / lowest,
        "worst_intra": intra.value,
        "one_minus_intra": 1 - intra.value,
        "one_minus_guaranteed": bound,
        "sharp": guaranteed.sharp,
        "attained_share": (1 - intra.value) / bound,
        "worst_inter": inter.value,
        "inter_deviation": inter.value + 1 / (num_classes - 1),
        "deviation_over_root": (inter.value + 1 / (num_classes - 1)) / math.sqrt(excess),
        "feasible": intra.feasible and inter.feasible,
        "intra_s": round(halfway - began, 3),
        "inter_s": round(ended - halfway, 3),
    }


def main() -> None:
    """Run all cases and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print a list of results as JSON")
    parser.add_argument("--starts", type=int, default=6, help="starts per search")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    if not options.json:
        print(f"{'C':>3} {'ab':>5} {'e/m':>8} {'1-intra':>11} {'bound':>11} {'inter':>9} {'s':>6}")
    for case in CASES:
        result = run(case, options.starts)
        results.append(result)
        if not options.json:
            seconds = float(str(result["intra_s"])) + float(str(result["inter_s"]))
            print(
                f"{result['C']:>3} {result['product']:>5} {result['excess_over_optimal']:>8.2g} "
                f"{result['one_minus_intra']:>11.6g} {result['one_minus_guaranteed']:>11.6g} "
                f"{result['worst_inter']:>9.5f} {seconds:>6.2f}"
            )
    if options.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
