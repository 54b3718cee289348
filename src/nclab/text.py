"""How numbers are shown to people."""


def number(value: float | None, *, near: float | None = None) -> str:
    """Four significant digits, or a dash for what was not measured.

    What is `near` 1 is shown by its distance from 1, which is what matters there.

    >>> number(0.123456), number(None), number(-1/3), number(2.5e-13)
    ('0.1235', '–', '-0.3333', '2.5e-13')
    >>> number(1 - 2e-7, near=1.0), number(1.0, near=1.0)
    ('1-2.0e-07', '1')
    """
    if value is None:
        return "–"
    if near == 1.0 and 1e-12 < 1 - value < 1e-3:
        return f"1-{1 - value:.1e}"
    return f"{value:.4g}"
