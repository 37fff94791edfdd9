"""What can be proved: the circuits that an operator has added, and one that is built in."""
