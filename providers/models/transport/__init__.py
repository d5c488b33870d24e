"""HTTP connections to model servers, to addresses that the operator allows."""
