"""Routes for pages that show runs and agents: versions, figures and the state of the system."""
