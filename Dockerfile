# One image for every process; the command picks which: `easel api`, `easel worker`, `easel scheduler`, ...

ARG EXTRAS=anthropic,docs,finance,flower,google-genai,html,sql,knowledge,mcp,office

FROM python:3.13-slim AS build
ARG EXTRAS
WORKDIR /src
# Every wheel is fetched against the lock's hashes. What the image then installs, it can only find among them.
COPY requirements.lock .
RUN pip download --no-cache-dir --no-deps --only-binary :all: --require-hashes -r requirements.lock -d /wheels
COPY pyproject.toml README.md LICENSE local_engine.py pytest_easel.py settings.py telemetry.py ./
COPY api api
COPY bench/__init__.py bench/
COPY bench/compare bench/compare
COPY canvas canvas
COPY cli cli
COPY components components
COPY embedded embedded
COPY examples/templates examples/templates
COPY knowledge knowledge
COPY migrations migrations
COPY providers providers
COPY scheduler scheduler
COPY store store
COPY viewer/dist viewer/dist
COPY worker worker
RUN pip wheel --no-cache-dir --no-deps -w /wheels . \
    && python -m venv /opt/easel \
    && /opt/easel/bin/pip install --no-cache-dir --no-index --find-links /wheels "easel[$EXTRAS]"

FROM python:3.13-slim
ARG EXTRAS
# It isolates programs of the local sandbox where the container may create user namespaces (docs/operations.md).
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/*
# The component Browser needs a browser: build with --build-arg EXTRAS=anthropic,docs,finance,flower,google-genai,html,sql,knowledge,mcp,office,browser.
RUN case ",$EXTRAS," in *,browser,*) apt-get update && apt-get install -y --no-install-recommends chromium \
    && rm -rf /var/lib/apt/lists/* ;; esac
RUN useradd --system --uid 10001 --home-dir /var/lib/easel --create-home easel
COPY --from=build /opt/easel /opt/easel
ENV PATH=/opt/easel/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    EASEL_HOME=/var/lib/easel \
    EASEL_LOG_FORMAT=json
USER easel
WORKDIR /var/lib/easel
VOLUME /var/lib/easel
EXPOSE 8000
# Processes end in order on SIGTERM: workers give their attempts back.
STOPSIGNAL SIGTERM
ENTRYPOINT ["easel"]
CMD ["--help"]
