"""Records of model calls: what was sent, what was answered, how long it took and what it cost."""
