"""Email: messages, sending, and the record of deliveries."""
