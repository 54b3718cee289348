"""What a setting should reach: the optimum of its loss, data and penalties, `target` its door."""
