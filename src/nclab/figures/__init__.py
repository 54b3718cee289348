"""Figures: samples and arrays -> a NamedTuple of plain arrays -> a matplotlib renderer."""
