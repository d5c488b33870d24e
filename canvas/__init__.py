"""The pure domain: what a canvas is and what happens next. No I/O, clock or randomness."""
