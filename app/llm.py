"""The Model port over LiteLLM: any provider it knows, or any server that speaks the OpenAI protocol at a base URL."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from agents.ports import ModelError, ModelReply, ModelRequest

logger = logging.getLogger(__name__)

TRANSIENT_STATUSES = {408, 409, 429, 500, 502, 503, 504, 529}
MAX_WAIT_S = 10.0  # a server that asks for a longer pause than this is treated as unavailable
_KEY_LIKE = re.compile(r"\b(?:sk|key|ghp|ghs|xai|gsk|hf)[-_][A-Za-z0-9_\-*.]{6,}|Bearer\s+\S+", re.IGNORECASE)
_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


class MalformedError(ValueError):
    """A reply that is not JSON of the schema; says why, for the retry."""


class ModelSettings(BaseSettings):
    """The model's part of the settings, for a command line that needs no other."""

    model_config = SettingsConfigDict(
        env_prefix="LIGER_BOT_",
        env_file=".env",
        extra="ignore",
        protected_namespaces=(),
        hide_input_in_errors=True,
    )

    model: str = ""
    model_base_url: str = ""
    model_api_key: SecretStr = SecretStr("")
    model_api_key_file: Path | None = None
    model_timeout_seconds: float = Field(default=120.0, gt=0)
    model_max_usd: float = Field(default=1.0, ge=0)


def model_from_environment() -> LiteLLMModel | None:
    """The model that LIGER_BOT_MODEL and its companions name; None when none is configured.

    Raises ModelError when they can't be used, in words that hold no secret.
    """
    try:
        settings = ModelSettings()
    except ValidationError as error:
        first = error.errors()[0]
        raise ModelError(f"LIGER_BOT_{str(first['loc'][0]).upper()}: {first['msg']}") from None
    key = settings.model_api_key
    if settings.model_api_key_file is not None and not key.get_secret_value():
        try:
            key = SecretStr(settings.model_api_key_file.read_text(encoding="utf-8").strip())
        except OSError as error:
            raise ModelError(f"LIGER_BOT_MODEL_API_KEY_FILE can't be read: {error.strerror}") from None
    return configured_model(
        settings.model,
        base_url=settings.model_base_url,
        api_key=key,
        timeout_s=settings.model_timeout_seconds,
        max_budget_usd=settings.model_max_usd,
    )


def configured_model(
    model: str, *, base_url: str, api_key: SecretStr, timeout_s: float, max_budget_usd: float
) -> LiteLLMModel | None:
    """The model of these settings, where empty means not set; None when there is no model name."""
    if not model.strip():
        return None
    return LiteLLMModel(
        model.strip(),
        base_url=base_url or None,
        api_key=api_key if api_key.get_secret_value() else None,
        timeout_s=timeout_s,
        max_budget_usd=max_budget_usd,
    )


class LiteLLMModel:
    """Asks one structured question; retries once when the reply is malformed and once when the server is busy."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: SecretStr | None = None,
        timeout_s: float = 120.0,
        max_budget_usd: float | None = None,
        input_usd_per_mtok: float | None = None,
        output_usd_per_mtok: float | None = None,
    ):
        """`max_budget_usd` bounds what this object spends; it needs a known price, LiteLLM's or the two given here."""
        self.model = model
        self.base_url = base_url
        self.timeout_s = timeout_s
        self.max_budget_usd = max_budget_usd
        self.spent_usd = 0.0
        self._api_key = api_key
        self._prices = (input_usd_per_mtok, output_usd_per_mtok)

    async def ask(self, request: ModelRequest) -> ModelReply:
        """Ask; the reply's data satisfies the schema. Raises ModelError, in words that hold no secret."""
        litellm = await asyncio.to_thread(_litellm)
        self._require_budget(litellm)
        schema_in_text = False
        complaint: str | None = None
        tokens = [0, 0]
        cost: float | None = 0.0
        for attempt in (1, 2):
            response, schema_in_text = await self._complete(litellm, request, schema_in_text, complaint)
            tokens[0] += getattr(response.usage, "prompt_tokens", 0) or 0
            tokens[1] += getattr(response.usage, "completion_tokens", 0) or 0
            spent = self._cost(litellm, response)
            cost = None if spent is None or cost is None else cost + spent
            self.spent_usd += spent or 0.0
            try:
                data = parsed(_content(response), request.json_schema)
            except MalformedError as error:
                logger.info("model reply %d for %s is malformed: %s", attempt, request.purpose, error)
                schema_in_text, complaint = True, str(error)
                continue
            return ModelReply(
                data=data,
                model=str(response.model or self.model),
                input_tokens=tokens[0],
                output_tokens=tokens[1],
                cost_usd=cost,
            )
        raise ModelError(f"The model's reply does not fit, twice: {complaint}")

    async def _complete(
        self, litellm: Any, request: ModelRequest, schema_in_text: bool, complaint: str | None
    ) -> tuple[Any, bool]:
        """(response, whether the schema went into the text); falls back to that when the server rejects `response_format`."""
        failures = 0
        while True:
            try:
                async with asyncio.timeout(self.timeout_s):
                    return await litellm.acompletion(
                        **self._arguments(request, schema_in_text, complaint)
                    ), schema_in_text
            except TimeoutError:
                raise ModelError(f"The model did not answer within {self.timeout_s:g} s.") from None
            except Exception as error:  # noqa: BLE001 - LiteLLM's errors share no base class; each becomes a ModelError here
                status = _status(error)
                if status in {400, 404, 422} and not schema_in_text and "response_format" in str(error):
                    schema_in_text = True
                    continue
                failures += 1
                if failures > 1 or status not in TRANSIENT_STATUSES or isinstance(error, litellm.Timeout):
                    # The chain of causes holds the request, and with it the key: only our words leave.
                    raise ModelError(self._explained(error, status)) from None
                await asyncio.sleep(_pause_s(error))

    def _arguments(
        self, request: ModelRequest, schema_in_text: bool, complaint: str | None
    ) -> dict[str, Any]:
        system = request.system
        if schema_in_text:
            system += "\n\nReply with one JSON object and nothing else. Its JSON schema:\n" + json.dumps(
                request.json_schema
            )
        messages = [{"role": "system", "content": system}, {"role": "user", "content": request.user}]
        if complaint:
            messages.append(
                {
                    "role": "user",
                    "content": f"Your last reply was not usable: {complaint} Reply again with the JSON object alone.",
                }
            )
        arguments: dict[str, Any] = {
            "model": self.model.removeprefix("openai/") if self.base_url else self.model,
            "messages": messages,
            "max_tokens": request.max_output_tokens,
            "temperature": 0.0,
            "timeout": self.timeout_s,
            "num_retries": 0,
            "max_retries": 0,
            "drop_params": True,
        }
        if not schema_in_text:
            described = {
                "name": re.sub(r"\W", "_", request.purpose)[:64],
                "schema": request.json_schema,
                "strict": False,
            }
            arguments["response_format"] = {"type": "json_schema", "json_schema": described}
        if self.base_url:
            # A server of one's own may want no key, but the client library demands one.
            arguments |= {"api_base": self.base_url, "custom_llm_provider": "openai", "api_key": "none"}
        if self._api_key is not None:
            arguments["api_key"] = self._api_key.get_secret_value()
        return arguments

    def _require_budget(self, litellm: Any) -> None:
        if self.max_budget_usd is None:
            return
        if self.spent_usd >= self.max_budget_usd:
            raise ModelError(
                f"The budget of ${self.max_budget_usd:g} for the language model is spent (${self.spent_usd:.4f})."
            )
        priced = None not in self._prices or {self.model, self.model.split("/", 1)[-1]} & set(
            litellm.model_cost
        )
        if not priced and self.base_url is None:
            # A server of one's own has no price to keep to; a provider's bill without one could not be bounded.
            raise ModelError(f"A budget is set, but no price is known for the model {self.model}.")

    def _cost(self, litellm: Any, response: Any) -> float | None:
        per_input, per_output = self._prices
        if per_input is not None and per_output is not None and response.usage is not None:
            return (
                response.usage.prompt_tokens * per_input + response.usage.completion_tokens * per_output
            ) / 1e6
        try:
            return float(litellm.completion_cost(completion_response=response, model=self.model))
        except Exception:  # noqa: BLE001 - LiteLLM raises a bare Exception for a model without a price
            return None

    def _explained(self, error: Exception, status: int | None) -> str:
        text = re.sub(
            r"^(litellm\.)?\w+(Error|Exception): ", "", str(error).splitlines()[0] if str(error) else ""
        )
        if self._api_key is not None:
            text = text.replace(self._api_key.get_secret_value(), "…")
        text = _KEY_LIKE.sub("…", text)[:300]
        words = {
            401: "The model server refused the key.",
            403: "The model server refused access.",
            404: f"The model server does not know the model {self.model}.",
            429: "The model server is over its rate limit or quota.",
        }.get(status or 0)
        if words is None:
            words = (
                f"The model server answered {status}."
                if status and status != 500
                else "The model server could not be used."
            )
        return f"{words} ({type(error).__name__}: {text})" if text and status not in {401, 403} else words


def parsed(content: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The JSON object in a reply, which may be fenced or surrounded by prose. Raises MalformedError."""
    fenced = _FENCE.search(content)
    text = fenced[1] if fenced else content
    start = text.find("{")
    if start < 0:
        raise MalformedError("it holds no JSON object.")
    try:
        data, _ = json.JSONDecoder().raw_decode(text[start:])
    except (json.JSONDecodeError, RecursionError) as error:
        raise MalformedError(f"it is not valid JSON ({error}).") from error
    try:
        jsonschema.validate(data, schema)
    except jsonschema.ValidationError as error:
        where = "/".join(str(part) for part in error.absolute_path) or "the object"
        raise MalformedError(f"it does not fit the schema at {where}: {error.message[:200]}.") from error
    return data


def _content(response: Any) -> str:
    choice = response.choices[0] if response.choices else None
    if choice is None or choice.message.content is None:
        raise MalformedError("it has no text.")
    if choice.finish_reason == "length":
        raise MalformedError("it was cut off at the output limit.")
    return choice.message.content


def _status(error: Exception) -> int | None:
    status = getattr(error, "status_code", None)
    return int(status) if isinstance(status, int | str) and str(status).isdigit() else None


def _pause_s(error: Exception) -> float:
    response = getattr(error, "response", None)
    asked = getattr(response, "headers", {}).get("retry-after", "") if response is not None else ""
    return min(float(asked), MAX_WAIT_S) if re.fullmatch(r"\d+(\.\d+)?", asked or "") else 1.0


def _litellm() -> Any:
    """Import LiteLLM late (it takes seconds) and quiet: no price list from the network, no telemetry, no banners."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.telemetry = False  # pyright: ignore[reportAttributeAccessIssue] - it is read, and not declared
    litellm.suppress_debug_info = True
    # Its loggers print whole requests on errors.
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return litellm
