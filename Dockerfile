# Two stages to use: `runner` executes jobs and holds no secret (a GPU box needs nothing else); `app` is the service,
# with a runner beside it for what needs no GPU.
#   docker build --target app --tag liger-bot .
#   docker build --target runner --tag liger-bot-runner .
ARG PYTHON_IMAGE=python:3.11.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS runner
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# An index that has the CPU build of the pinned torch. Empty: the default one, whose build for Linux brings CUDA, which a
# GPU box needs and a service without a GPU doesn't.
ARG TORCH_INDEX=
# The user's number: that of the owner of the mounted secrets, which nobody else can read.
ARG UID=1000
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1
# git and gcc for Triton's launcher stubs; bubblewrap is the sandbox. Versions are those of the pinned base's release.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends bubblewrap ca-certificates gcc git libc6-dev util-linux \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid "${UID}" liger-bot \
 && useradd --uid "${UID}" --gid "${UID}" --create-home --shell /usr/sbin/nologin liger-bot
WORKDIR /opt/liger-bot
COPY requirements.lock ./
RUN python -m venv /opt/runner \
 && grep -E '^(torch|triton|transformers|pytest|numpy|pydantic|setuptools|wheel)==' requirements.lock > runner.txt \
 && /opt/runner/bin/pip install ${TORCH_INDEX:+--extra-index-url "${TORCH_INDEX}"} --constraint requirements.lock --requirement runner.txt
COPY pyproject.toml README.md LICENSE ./
COPY kernels kernels
COPY runners runners
COPY agents agents
COPY app app
RUN /opt/runner/bin/pip install --no-deps --no-build-isolation .
USER ${UID}:${UID}
WORKDIR /home/liger-bot
ENTRYPOINT ["/opt/runner/bin/python", "-m", "runners"]

FROM runner AS app
ARG UID=1000
USER 0
WORKDIR /opt/liger-bot
RUN python -m venv /opt/app \
 && /opt/app/bin/pip install --constraint requirements.lock "setuptools>=77" wheel psycopg psycopg-binary ".[app]" \
 && mkdir /data \
 && chown "${UID}:${UID}" /data
ENV PATH=/opt/app/bin:$PATH \
    LIGER_BOT_RUNNER_PYTHON=/opt/runner/bin/python \
    LIGER_BOT_DATA_DIR=/data \
    LIGER_BOT_HOST=0.0.0.0 \
    LIGER_BOT_LOG_FORMAT=json
USER ${UID}:${UID}
WORKDIR /data
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["liger-bot"]
CMD ["serve"]
