"""The canvas document: parsing, component names, parameters, references, conditions."""
