"""The graph of a canvas: nodes, edges, containers, and what can still be reached."""
