"""Operations on runs that the API and the CLI call: start, resume, cancel."""
