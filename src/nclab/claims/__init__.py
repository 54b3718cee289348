"""Every numbered statement of both papers, its check and its verdict."""
