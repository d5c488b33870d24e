"""Messages: Celery tasks, event notifications, cancel messages, and what carries them."""
