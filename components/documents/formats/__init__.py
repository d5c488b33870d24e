"""Document formats: PDF, DOCX, HTML, Markdown, plain text and Excel workbooks."""
