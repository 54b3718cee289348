"""Code that four studies of the literature share: networks, measurements, rows and comparisons."""
