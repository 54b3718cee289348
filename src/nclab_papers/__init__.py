"""Papers on neural collapse: their experiments, statements, errata and recorded evidence."""
