"""Documents as PDF, DOCX, HTML, plain text and workbooks."""
