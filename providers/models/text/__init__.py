"""Processing of model texts: token estimates, context windows, cleaning of answers."""
