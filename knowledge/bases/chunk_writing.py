"""What searches need of a chunk that a person writes: its words and its vector.

Its words are those of the text, of the keywords and of the questions. Its vector is that of the questions that it
answers, if there are some, else that of the text, as in RAGFlow.
"""

import asyncio
from collections.abc import Sequence

from canvas.ids import TenantId
from knowledge.index import tokenizer
from knowledge.index.vectors import normalize
from knowledge.models import Models
from store.knowledge.bases import KnowledgeBase
from store.knowledge.written_chunks import ChunkIndex


async def index_chunk(
    models: Models, base: KnowledgeBase, content: str, keywords: Sequence[str], questions: Sequence[str]
) -> ChunkIndex:
    """Return the words and the vector of a chunk, without a vector if the base has no model. Raises ModelError."""
    words = await asyncio.to_thread(tokenizer.passage_words, "\n".join([content, *keywords, *questions]), base.language)
    if not base.embedding_model:
        return ChunkIndex(sorted(words), None, 0)
    embedder = await models.embedder(TenantId(base.tenant_id), base.embedding_model)
    embedded = await embedder.embed(["\n".join(questions) or content])
    return ChunkIndex(sorted(words), normalize(embedded.vectors[0]), embedded.tokens)
