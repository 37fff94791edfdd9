"""Who gets what and how long it takes: pure decisions over plain data."""
