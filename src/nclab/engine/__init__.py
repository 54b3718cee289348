"""Work spread over the cores of this machine."""
