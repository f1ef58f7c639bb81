"""What happens before what: steps as a graph, legal orders, who waits for whom. The proofs ask it."""
