"""An example of what a package may add to nclab."""
