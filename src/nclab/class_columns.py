"""What arrays in files may be called."""

FEATURES = ("features", "X", "inputs")
LABELS = ("labels", "y", "targets")
WEIGHT = ("weight", "W")
BIAS = ("bias", "b")
