"""Components that work on data: lists, texts, variables, HTTP requests, spreadsheets, documents."""
