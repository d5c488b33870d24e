"""Text from files and pages: PDF, DOCX, HTML, workbooks, pictures."""
