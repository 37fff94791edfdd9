"""The prover process: the threads that one partition goes through, and what they share."""
