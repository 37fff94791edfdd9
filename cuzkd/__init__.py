"""cuzkd: a Groth16 proving daemon. Start reading at ARCHITECTURE.md, beside this file."""

__version__ = "0.1.0"
