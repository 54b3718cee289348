"""The command line: one file per command; a command parses, calls one function and prints."""
