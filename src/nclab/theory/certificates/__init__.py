"""What a loss forces: guarantees from norms and loss, and the one door to them, `certify`."""
