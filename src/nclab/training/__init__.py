"""Training many networks in lock-step."""
