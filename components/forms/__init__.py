"""The forms of components and tools, as RAGFlow's editor writes them, described for pages that generate them."""
