"""The coordinator: advances, starts, resumes and stops runs, each in one transaction."""
