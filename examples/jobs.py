"""Independent jobs on every core; one that fails stops no other."""

from nclab.engine import Job, ReportStep, run_jobs


def slope(report: ReportStep, power: int) -> float:
    """The slope of x**power at 1, by halving a difference."""
    width = 1.0
    for step in range(20):
        width /= 2
        report(step + 1, 20)
    return ((1 + width) ** power - (1 - width) ** power) / (2 * width)


if __name__ == "__main__":  # workers import this file
    work = [Job(f"x^{power}", slope, (power,)) for power in (2, 3)]
    work.append(Job("nothing", slope, (None,)))
    for outcome in run_jobs(work):
        print(f"{outcome.name}: {outcome.value if outcome.ok else outcome.error}")
