"""Generated from proto/cuzkd/prover/v1/prover.proto by proto/generate.py. Do not edit."""
