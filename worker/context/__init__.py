"""What a component sees of its run (`NodeContext`), and what an attempt may use."""
