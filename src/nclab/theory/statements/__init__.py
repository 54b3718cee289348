"""Inequalities of the papers as functions of data, and the true worst cases of their theorems."""
