"""Run independent jobs on every core; a failing job does not stop the others."""

from nclab.engine import Job, ReportStep, run_jobs


def slope(report: ReportStep, power: int) -> float:
    """Return the slope of x**power at 1 from a symmetric difference."""
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
