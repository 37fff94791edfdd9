"""Payloads of jobs, from the wire to files of our own: spool, uploads, calculated witnesses."""
