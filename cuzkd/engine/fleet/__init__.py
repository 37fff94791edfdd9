"""Provers as the front sees them: processes, health, memory, what each holds."""
