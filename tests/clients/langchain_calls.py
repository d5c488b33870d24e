"""Calls of LangChain's client, run by the interpreter that has it. Prints the results as one JSON object.

python langchain_calls.py BASE_URL TOKEN ECHO BROKEN FORM
"""

import asyncio
import json
import sys
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI


def main() -> None:
    """Call each agent in each way."""
    base_url, token, echo, broken, form = sys.argv[1:]

    def chat(model: str, **more: Any) -> ChatOpenAI:
        return ChatOpenAI(model=model, base_url=base_url, api_key=token, **more)

    def failure_of(model: ChatOpenAI) -> str:
        try:
            return f"answered {model.invoke('hi').text!r}"
        except Exception as error:
            return type(error).__name__

    history = [SystemMessage("Be short."), HumanMessage("a"), AIMessage("b"), HumanMessage("hi")]
    whole = chat(echo, temperature=0).invoke(history)
    found: dict[str, Any] = {
        "chat": whole.text,
        "chat usage": whole.usage_metadata["total_tokens"] > 0 if whole.usage_metadata else False,
        "chat stream": "".join(chunk.text for chunk in chat(echo, stream_usage=True).stream("hi")),
        "chat asynchronously": asyncio.run(chat(echo).ainvoke("hi")).text,
        "chat of a broken agent": failure_of(chat(broken)),
        "chat that asks a form": failure_of(chat(form)),
    }
    responses = chat(echo, use_responses_api=True)
    first = responses.invoke(history)
    second = responses.invoke("again", previous_response_id=first.response_metadata["id"])
    found |= {
        "responses": first.text,
        "responses continued": second.text,
        "responses stream": "".join(chunk.text for chunk in responses.stream("hi")),
        "responses of a broken agent": failure_of(chat(broken, use_responses_api=True)),
        "status of a form": chat(form, use_responses_api=True).invoke("hi").response_metadata["status"],
    }
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
