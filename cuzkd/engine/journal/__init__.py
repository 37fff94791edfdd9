"""What was promised and what became of it, on the disk."""
