"""What the four studies of the field share: networks, what is measured of them, rows, judges."""
