"""A package, so that all of these tests share one server, which stops after the last test."""
