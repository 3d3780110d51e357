"""`python_clients.py <url>`: each client of OpenAI's API uses the front; prints JSON lines.

Run by `tests/interop/openai_clients.py` in an environment of its own.
"""

import asyncio
import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

URL = sys.argv[1]
HI: list[Any] = [{"role": "user", "content": "Hi"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "F.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}


def load(module: str) -> Any:
    """A module of the environment in which this runs."""
    return importlib.import_module(module)


def openai_chat() -> bool:
    OpenAI: Any = load("openai").OpenAI

    client = OpenAI(base_url=URL, api_key="unused", max_retries=0)
    first = client.chat.completions.create(model="good", messages=HI)
    history = [*HI, first.choices[0].message.model_dump(), *HI]
    second = client.chat.completions.create(model="good", messages=history)
    return second.choices[0].message.content == "Hello there"


def openai_stream() -> bool:
    OpenAI: Any = load("openai").OpenAI

    client = OpenAI(base_url=URL, api_key="unused", max_retries=0)
    with client.chat.completions.stream(model="good", messages=HI) as stream:
        return stream.get_final_completion().choices[0].message.content == "Hello there"


def openai_tools() -> bool:
    OpenAI: Any = load("openai").OpenAI

    client = OpenAI(base_url=URL, api_key="unused", max_retries=0)
    with client.chat.completions.stream(model="calls", messages=HI, tools=[TOOL]) as stream:
        calls = stream.get_final_completion().choices[0].message.tool_calls
    return bool(calls) and calls[0].function.name == "f"


def openai_embeddings() -> bool:
    OpenAI: Any = load("openai").OpenAI

    client = OpenAI(base_url=URL, api_key="unused", max_retries=0)
    return len(client.embeddings.create(model="vectors", input=["x"] * 200).data) == 200


def langchain_chat() -> bool:
    ChatOpenAI: Any = load("langchain_openai").ChatOpenAI

    model = ChatOpenAI(base_url=URL, api_key="unused", model="good")
    return model.invoke("Hi").content == "Hello there"


def langchain_stream() -> bool:
    ChatOpenAI: Any = load("langchain_openai").ChatOpenAI

    model = ChatOpenAI(base_url=URL, api_key="unused", model="good", stream_usage=True)
    return "".join(str(each.content) for each in model.stream("Hi")) == "Hello there"


def langchain_tools() -> bool:
    ChatOpenAI: Any = load("langchain_openai").ChatOpenAI

    model = ChatOpenAI(base_url=URL, api_key="unused", model="calls").bind_tools([TOOL])
    return model.invoke("Hi").tool_calls[0]["args"] == {"a": 1}


def langchain_embeddings() -> bool:
    OpenAIEmbeddings: Any = load("langchain_openai").OpenAIEmbeddings

    model = OpenAIEmbeddings(
        base_url=URL, api_key="unused", model="vectors", check_embedding_ctx_length=False
    )
    return len(model.embed_documents(["x"] * 200)) == 200


def llama_index_chat() -> bool:
    return str(_llama_index("good").complete("Hi")) == "Hello there"


def llama_index_stream() -> bool:
    *_, last = _llama_index("good").stream_complete("Hi")
    return last.text == "Hello there"


def llama_index_tools() -> bool:
    FunctionTool: Any = load("llama_index.core.tools").FunctionTool

    def f(a: int) -> int:
        """F."""
        return a

    model = _llama_index("calls")
    answer = model.chat_with_tools([FunctionTool.from_defaults(f)], user_msg="Hi")
    return model.get_tool_calls_from_response(answer)[0].tool_kwargs == {"a": 1}


def _llama_index(name: str) -> Any:
    OpenAI: Any = load("llama_index.llms.openai").OpenAI

    class Any_(OpenAI):
        @property
        def metadata(self) -> Any:
            LLMMetadata: Any = load("llama_index.core.llms").LLMMetadata

            return LLMMetadata(is_chat_model=True, is_function_calling_model=True, model_name=name)

    return Any_(api_base=URL, api_key="unused", model=name)


def litellm_chat() -> bool:
    litellm: Any = load("litellm")

    answer = litellm.completion(model="openai/good", messages=HI, api_base=URL, api_key="unused")
    return answer.choices[0].message.content == "Hello there"


def litellm_stream() -> bool:
    litellm: Any = load("litellm")

    about = {"api_base": URL, "api_key": "unused", "stream": True}
    chunks = litellm.completion(model="openai/good", messages=HI, **about)
    return "".join(each.choices[0].delta.content or "" for each in chunks) == "Hello there"


def instructor_tools() -> bool:
    return _instructor("TOOLS", "calls")


def instructor_schema() -> bool:
    return _instructor("JSON_SCHEMA", "json")


def _instructor(mode: str, model: str) -> bool:
    instructor: Any = load("instructor")
    OpenAI: Any = load("openai").OpenAI
    BaseModel: Any = load("pydantic").BaseModel

    class F(BaseModel):
        a: int

    F.__name__ = F.__qualname__ = "f"
    client = instructor.from_openai(
        OpenAI(base_url=URL, api_key="unused"), mode=instructor.Mode[mode]
    )
    return client.chat.completions.create(model=model, messages=HI, response_model=F).a == 1


def pydantic_ai_chat() -> bool:
    Agent: Any = load("pydantic_ai").Agent
    OpenAIChatModel: Any = load("pydantic_ai.models.openai").OpenAIChatModel
    OpenAIProvider: Any = load("pydantic_ai.providers.openai").OpenAIProvider

    provider = OpenAIProvider(base_url=URL, api_key="unused")
    agent = Agent(OpenAIChatModel("good", provider=provider))
    return agent.run_sync("Hi").output == "Hello there"


def agents_chat() -> bool:
    agents: Any = load("agents")
    AsyncOpenAI: Any = load("openai").AsyncOpenAI

    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=URL, api_key="unused")
    model = agents.OpenAIChatCompletionsModel("good", client)
    agent = agents.Agent(name="a", model=model)
    return asyncio.run(agents.Runner.run(agent, "Hi")).final_output == "Hello there"


def main() -> None:
    features: list[Callable[[], bool]] = [
        *(openai_chat, openai_stream, openai_tools, openai_embeddings),
        *(langchain_chat, langchain_stream, langchain_tools, langchain_embeddings),
        *(llama_index_chat, llama_index_stream, llama_index_tools),
        *(litellm_chat, litellm_stream, instructor_tools, instructor_schema),
        *(pydantic_ai_chat, agents_chat),
    ]
    for feature in features:
        try:
            found = "works" if feature() else "wrong answer"
        except Exception as error:  # noqa: BLE001 - the table has it
            found = f"{type(error).__name__}: {error}"[:300]
        print(json.dumps([feature.__name__, found]), flush=True)


if __name__ == "__main__":
    main()
