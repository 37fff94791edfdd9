"""What can be proved: circuits that an operator has added, their keys prepared for loading, and one that is built in."""
