"""Calls of LiteLLM's client, run by the interpreter that has it. Prints the results as one JSON object.

python litellm_calls.py BASE_URL TOKEN ECHO BROKEN FORM
"""

import asyncio
import json
import sys
from typing import Any

import litellm


def main() -> None:
    """Call each agent in each way."""
    base_url, token, echo, broken, form = sys.argv[1:]
    litellm.suppress_debug_info = True

    def options(model: str) -> dict[str, Any]:
        return {"model": f"openai/{model}", "api_base": base_url, "api_key": token}

    def failure_of(model: str) -> str:
        try:
            reply: Any = litellm.completion(**options(model), messages=messages)
            return f"answered {reply.choices[0].message.content!r}"
        except Exception as error:
            return type(error).__name__

    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "hi"}]
    whole: Any = litellm.completion(**options(echo), messages=messages, temperature=0)
    chunks: Any = litellm.completion(**options(echo), messages=messages, stream=True)
    later: Any = asyncio.run(litellm.acompletion(**options(echo), messages=messages))
    response: Any = litellm.responses(**options(echo), input="hi")
    events: Any = litellm.responses(**options(echo), input="hi", stream=True)
    found = {
        "chat": whole.choices[0].message.content,
        "chat usage": whole.usage.total_tokens > 0,
        "chat stream": "".join(chunk.choices[0].delta.content or "" for chunk in chunks),
        "chat asynchronously": later.choices[0].message.content,
        "chat of a broken agent": failure_of(broken),
        "chat that asks a form": failure_of(form),
        "responses": response.output[-1].content[0].text,
        "responses stream": "".join(event.delta for event in events if event.type == "response.output_text.delta"),
        "status of a broken agent": litellm.responses(**options(broken), input="hi").status,
        "status of a form": litellm.responses(**options(form), input="hi").status,
    }
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
