"""What visitors of a share see: the shares of a run, what they hide in its replies and frames, and answers of forms."""
