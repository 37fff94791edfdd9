"""Files: what other software writes and reads (circom and snarkjs), and the bytes of a proof."""
