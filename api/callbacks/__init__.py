"""Routes of callbacks: who is told when runs end or wait, and what came of it."""
