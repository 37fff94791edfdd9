"""The wire: gRPC and the two HTTP pages. Nothing below this floor knows that there is a network."""
