"""Generated from proto/cuzk/v1/proving.proto by proto/generate.py. Do not edit."""
