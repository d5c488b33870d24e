"""HTTP connections to model servers, limited to addresses that the operator allows."""
