"""The command line: each command has one file, which parses, calls one function and prints."""

__all__: list[str] = []
