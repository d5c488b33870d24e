"""What searches need: the words of texts, vectors, and the upkeep of indexes."""
