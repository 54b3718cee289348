"""What the loss says about the geometry: guarantees, their lemmas and their worst cases."""
