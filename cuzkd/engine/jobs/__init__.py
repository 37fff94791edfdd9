"""Jobs from their submission to their end."""
