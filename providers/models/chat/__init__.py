"""Opens chat models: the catalogue of models, retries, and the built-in models `echo` and `scripted`.

The wrappers of one model call, from the caller to the socket:

    MeteredModel     billing/metering.py           only for calls below a node: finds who pays in a context variable
    IdempotentModel  limits/idempotency_keys.py    gives the request a key that stays the same in every attempt
    BudgetedModel    billing/budgeted_model.py     reserves in the run's budgets before the call, settles afterwards
    PricedModel      billing/prices.py             adds the cost to the usage
    RetryingModel    chat/retrying_model.py        cleans the text, counts usage, repeats requests that may succeed
    RateLimitedWire  limits/rate_limited_wire.py   waits for the account's rate limits (RequestLimiter), each request
    OpenAIWire, ...  wires/                        writes one request in the vendor's protocol, reads the answer
    SDK/HTTP client  transport/clients.py          one per account and event loop, borrowed for one request
    PooledTransport  transport/transport.py        sends the request over a connection of aiohttp
    CheckedResolver  transport/connect.py          resolves the host for a new connection, checks its addresses

`open_chat` in catalogue.py composes RetryingModel and everything below it. PricedModel is added where models are cached
per tenant (worker/services/models.py, knowledge/models.py); the node's context and knowledge/billing.py add the rest.
Built-in models have a wire of their own and nothing below it. Down to RetryingModel the wrappers implement `ChatModel`;
RateLimitedWire and the wires implement `Wire`.
"""
