"""Bytes: one budget for all memory, and a pool of leases over few large slabs."""
