"""A network's program: passes over its jaxpr, whatever library the network is of."""
