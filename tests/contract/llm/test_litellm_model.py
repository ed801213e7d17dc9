"""app.llm against a server that speaks the OpenAI protocol over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from agents.ports import ModelError, ModelRequest
from app.llm import LiteLLMModel, MalformedError, model_from_environment, parsed
from tests.openai_server import OpenAIServer, Reply

KEY = "sk-test-7f3a9c1d2e"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "k": {"type": "integer"}},
    "required": ["name", "k"],
    "additionalProperties": False,
}
REQUEST = ModelRequest(
    purpose="reference_from_text", system="Be brief.", user="```text\nrelu, squared\n```", json_schema=SCHEMA
)
GOOD = {"name": "relu_squared", "k": 2}


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer([]).running() as running:
        yield running


def model_of(server: OpenAIServer, **options: object) -> LiteLLMModel:
    defaults = {"base_url": server.base_url, "api_key": SecretStr(KEY), "timeout_s": 20.0}
    return LiteLLMModel("some/model-7b", **{**defaults, **options})  # type: ignore[arg-type]


async def test_a_reply_of_the_schema_comes_back_with_tokens_and_model(server):
    server.replies = [Reply(GOOD)]

    reply = await model_of(server).ask(REQUEST)

    assert (reply.data, reply.model, reply.input_tokens, reply.output_tokens) == (
        GOOD,
        "some/model-7b",
        100,
        20,
    )
    headers, body = server.requests[0]
    assert headers["authorization"] == f"Bearer {KEY}"
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert [(m["role"], m["content"]) for m in body["messages"]] == [
        ("system", "Be brief."),
        ("user", REQUEST.user),
    ]
    assert body["model"] == "some/model-7b"


@pytest.mark.parametrize(
    "content",
    [
        'Sure!\n```json\n{"name": "relu_squared", "k": 2}\n```\nHope it helps.',
        'The answer: {"name": "relu_squared", "k": 2}.',
    ],
)
async def test_json_inside_prose_is_found_when_the_server_ignores_the_format(server, content):
    server.replies = [Reply(content)]

    assert (await model_of(server).ask(REQUEST)).data == GOOD


@pytest.mark.parametrize(
    "bad",
    [
        "I'd rather not.",
        '{"name": "relu_squared", "k": ',
        {"name": "relu_squared"},
        {"name": "x", "k": 1, "extra": 0},
    ],
)
async def test_a_malformed_reply_is_asked_again_once_with_the_reason_and_the_schema(server, bad):
    server.replies = [Reply(bad), Reply(GOOD)]

    reply = await model_of(server).ask(REQUEST)

    assert reply.data == GOOD
    assert (reply.input_tokens, reply.output_tokens) == (200, 40)
    second = server.requests[1][1]
    assert "not usable" in second["messages"][-1]["content"]
    assert '"additionalProperties": false' in second["messages"][0]["content"]


async def test_two_malformed_replies_are_a_model_error(server):
    server.replies = [Reply("no"), Reply({"name": 3, "k": 2})]

    with pytest.raises(ModelError, match="twice: it does not fit the schema at name"):
        await model_of(server).ask(REQUEST)
    assert len(server.requests) == 2


async def test_a_reply_cut_off_at_the_limit_is_malformed(server):
    server.replies = [Reply(GOOD, finish_reason="length")] * 2

    with pytest.raises(ModelError, match="cut off"):
        await model_of(server).ask(REQUEST)


async def test_the_schema_goes_into_the_text_when_the_server_rejects_response_format(server):
    server.rejects_response_format = True
    server.replies = [Reply(GOOD)]

    assert (await model_of(server).ask(REQUEST)).data == GOOD
    assert "response_format" not in server.requests[1][1]
    assert '"required"' in server.requests[1][1]["messages"][0]["content"]


async def test_a_busy_server_is_asked_once_more(server):
    server.replies = [Reply(status=429, headers={"Retry-After": "0"}), Reply(GOOD)]

    assert (await model_of(server).ask(REQUEST)).data == GOOD


@pytest.mark.parametrize(
    ("status", "calls", "words"),
    [
        (429, 2, "rate limit"),
        (500, 2, "could not be used"),
        (503, 2, "503"),
        (401, 1, "refused the key"),
        (404, 1, "does not know the model"),
        (400, 1, "400"),
    ],
)
async def test_a_failing_server_is_a_model_error_that_holds_no_secret(server, status, calls, words):
    server.replies = [
        Reply(status=status, error=f"Incorrect API key provided: {KEY}", headers={"Retry-After": "0"})
    ] * 3

    with pytest.raises(ModelError, match=words) as caught:
        await model_of(server).ask(REQUEST)

    assert len(server.requests) == calls
    assert KEY not in f"{caught.value!r} {caught.value.__cause__!r}"
    assert caught.value.__suppress_context__


async def test_a_slow_server_is_a_model_error_at_the_timeout(server):
    server.replies = [Reply(GOOD, delay_s=3.0)]

    with pytest.raises(ModelError, match=r"within 0\.5 s"):
        await model_of(server, timeout_s=0.5).ask(REQUEST)


async def test_an_unreachable_server_is_a_model_error():
    with pytest.raises(ModelError, match="could not be used"):
        await LiteLLMModel("m", base_url="http://127.0.0.1:9/v1", timeout_s=5).ask(REQUEST)


async def test_a_body_that_is_not_json_is_a_model_error(server):
    server.replies = [Reply(raw_body=b"<html>gateway</html>")] * 2

    with pytest.raises(ModelError):
        await model_of(server).ask(REQUEST)


async def test_spending_stops_at_the_budget(server):
    server.replies = [Reply(GOOD), Reply(GOOD)]
    model = model_of(server, max_budget_usd=0.001, input_usd_per_mtok=10.0, output_usd_per_mtok=10.0)

    assert (await model.ask(REQUEST)).cost_usd == pytest.approx(0.0012)
    with pytest.raises(ModelError, match=r"budget of \$0\.001"):
        await model.ask(REQUEST)
    assert len(server.requests) == 1


async def test_a_budget_without_a_price_is_refused_before_anything_is_sent():
    with pytest.raises(ModelError, match="no price is known"):
        await LiteLLMModel("unheard-of/model", max_budget_usd=1.0).ask(REQUEST)


async def test_a_server_of_ones_own_needs_no_price(server):
    server.replies = [Reply(GOOD)]

    assert (await model_of(server, max_budget_usd=1.0).ask(REQUEST)).cost_usd is None


async def test_the_environment_names_the_model(server, monkeypatch, tmp_path):
    key = tmp_path / "key"
    key.write_text(f"{KEY}\n")
    monkeypatch.chdir(tmp_path)
    assert model_from_environment() is None
    monkeypatch.setenv("LIGER_BOT_MODEL", "some/model-7b")
    monkeypatch.setenv("LIGER_BOT_MODEL_BASE_URL", server.base_url)
    monkeypatch.setenv("LIGER_BOT_MODEL_API_KEY_FILE", str(key))
    server.replies = [Reply(GOOD)]

    model = model_from_environment()

    assert model is not None
    assert (await model.ask(REQUEST)).data == GOOD
    assert server.requests[0][0]["authorization"] == f"Bearer {KEY}"


def test_a_key_file_that_is_missing_is_said_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("LIGER_BOT_MODEL", "m")
    monkeypatch.setenv("LIGER_BOT_MODEL_API_KEY_FILE", str(tmp_path / "none"))

    with pytest.raises(ModelError, match="LIGER_BOT_MODEL_API_KEY_FILE can't be read: No such file"):
        model_from_environment()


def test_parsed_takes_the_first_object_and_checks_it():
    assert parsed('x {"name": "a", "k": 1} {"name": "b"}', SCHEMA) == {"name": "a", "k": 1}
    with pytest.raises(MalformedError, match="no JSON object"):
        parsed("[]", SCHEMA)
