"""Extraction of text, tables and images from files and web pages: PDF, DOCX, HTML, spreadsheets, scans."""
