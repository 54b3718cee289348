"""Pages made from records: a static site and a live one."""
