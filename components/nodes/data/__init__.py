"""Components that change data: lists, texts, variables, HTTP calls, workbooks, documents."""
