"""`openai_clients.py <url>`: each client of OpenAI's API uses the front; prints JSON lines.

Run by `tests/interop/openai_clients.py` in an environment of its own.
"""

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

URL = sys.argv[1]
RUNNER = asyncio.Runner()
"""Connections of clients outlive a feature."""
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
    litellm: Any = _litellm()

    answer = litellm.completion(model="openai/good", messages=HI, api_base=URL, api_key="unused")
    return answer.choices[0].message.content == "Hello there"


def litellm_stream() -> bool:
    litellm: Any = _litellm()

    about = {"api_base": URL, "api_key": "unused", "stream": True}
    chunks = litellm.completion(model="openai/good", messages=HI, **about)
    return "".join(each.choices[0].delta.content or "" for each in chunks) == "Hello there"


def litellm_tools() -> bool:
    litellm: Any = _litellm()

    about = {"api_base": URL, "api_key": "unused", "tools": [TOOL]}
    answer = litellm.completion(model="openai/calls", messages=HI, **about)
    return answer.choices[0].message.tool_calls[0].function.arguments == '{"a": 1}'


def _litellm() -> Any:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches prices at import
    return load("litellm")


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
    return _pydantic_ai("good").run_sync("Hi").output == "Hello there"


def pydantic_ai_stream() -> bool:
    return RUNNER.run(_pydantic_ai_stream())


async def _pydantic_ai_stream() -> bool:
    async with _pydantic_ai("good").run_stream("Hi") as answer:
        return await answer.get_output() == "Hello there"


def pydantic_ai_tools() -> bool:
    agent, given = _pydantic_ai("calls-once-agent"), list[int]()

    def f(a: int) -> str:
        """F."""
        given.append(a)
        return "seen"

    agent.tool_plain(f)
    return agent.run_sync("Hi").output == "Hello there" and given == [1]


def _pydantic_ai(name: str) -> Any:
    Agent: Any = load("pydantic_ai").Agent
    OpenAIChatModel: Any = load("pydantic_ai.models.openai").OpenAIChatModel
    OpenAIProvider: Any = load("pydantic_ai.providers.openai").OpenAIProvider

    provider = OpenAIProvider(base_url=URL, api_key="unused")
    return Agent(OpenAIChatModel(name, provider=provider))


def agents_chat() -> bool:
    agents: Any = load("agents")
    return RUNNER.run(agents.Runner.run(_agent("good"), "Hi")).final_output == "Hello there"


def agents_stream() -> bool:
    return RUNNER.run(_agents_stream())


async def _agents_stream() -> bool:
    answer = load("agents").Runner.run_streamed(_agent("good"), "Hi")
    async for _ in answer.stream_events():
        pass
    return answer.final_output == "Hello there"


def agents_tools() -> bool:
    agents: Any = load("agents")
    given: list[int] = []

    def f(a: int) -> str:
        """F."""
        given.append(a)
        return "seen"

    agent = _agent("calls-once-agents", tools=[agents.function_tool(f)])
    answer = RUNNER.run(agents.Runner.run(agent, "Hi"))
    return answer.final_output == "Hello there" and given == [1]


def _agent(name: str, **options: Any) -> Any:
    agents: Any = load("agents")
    AsyncOpenAI: Any = load("openai").AsyncOpenAI

    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=URL, api_key="unused")
    model = agents.OpenAIChatCompletionsModel(name, client)
    return agents.Agent(name="a", model=model, **options)


def llm_chat() -> bool:
    conversation = _llm("good").conversation()
    first = conversation.prompt("Hi", stream=False).text()
    return first == conversation.prompt("Hi", stream=False).text() == "Hello there"


def llm_stream() -> bool:
    return "".join(_llm("good").prompt("Hi")) == "Hello there"


def llm_tools() -> bool:
    given: list[int] = []

    def f(a: int) -> str:
        """F."""
        given.append(a)
        return "seen"

    answer = _llm("calls-once-llm").chain("Hi", tools=[f], stream=False)
    return answer.text().endswith("Hello there") and given == [1]


def llm_schema() -> bool:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    return json.loads(_llm("json").prompt("Hi", schema=schema).text()) == {"a": 1}


def _llm(name: str) -> Any:
    Chat: Any = load("llm.default_plugins.openai_models").Chat

    model = Chat(name, model_name=name, api_base=URL, supports_schema=True, supports_tools=True)
    model.key = "unused"
    return model


def main() -> None:
    features: list[Callable[[], bool]] = [
        *(openai_chat, openai_stream, openai_tools, openai_embeddings),
        *(langchain_chat, langchain_stream, langchain_tools, langchain_embeddings),
        *(llama_index_chat, llama_index_stream, llama_index_tools),
        *(litellm_chat, litellm_stream, litellm_tools, instructor_tools, instructor_schema),
        *(pydantic_ai_chat, pydantic_ai_stream, pydantic_ai_tools),
        *(agents_chat, agents_stream, agents_tools),
        *(llm_chat, llm_stream, llm_tools, llm_schema),
    ]
    for feature in features:
        try:
            found = "works" if feature() else "wrong answer"
        except Exception as error:  # noqa: BLE001 - the table has it
            found = f"{type(error).__name__}: {error}"[:300]
        print(json.dumps([feature.__name__, found]), flush=True)


if __name__ == "__main__":
    main()
