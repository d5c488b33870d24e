"""Answers that were read aloud: audio, and its marker in the text of a stored answer."""

import wave
from io import BytesIO
from uuid import UUID

from sqlalchemy import text

from store.db.database import Database

ADD_TEXT = text("update turns set text = text || :more where run_id = :run_id")


def wave_file() -> bytes:
    """Return a tenth of a second of silence."""
    whole = BytesIO()
    with wave.open(whole, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(1600))
    return whole.getvalue()


def add_speech(database: Database, run_id: str, file_id: str) -> None:
    """Add the marker of an audio file to the answer of a run, as a Message writes that is read aloud."""
    with database.transaction() as tx:
        tx.execute(ADD_TEXT, run_id=UUID(run_id), more=f"\ufdd2{file_id}\ufdd3")
