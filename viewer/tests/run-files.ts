/** Exported runs for tests, as objects and as files. */

type Fields = Record<string, unknown>;

const START = 1_700_000_000_000;

export const id = (number: number): string => number.toString(16).padStart(32, "0");

export function activation(number: number, nodeId: string, fields: Fields = {}): Fields {
  return {
    id: id(number), node_id: nodeId, component: nodeId.split(":")[0], scope: "", ordinal: 0,
    order_key: String(number).padStart(8, "0"), status: "done", outcome: "Finished", attempt: 1, crash_count: 0,
    created_at: START + number * 10, not_before: null, enqueued_at: START, started_at: START + number * 10 + 2,
    finished_at: START + number * 10 + 8, ended_at: null, worker: "host:1", effect: null, calls: null, tokens_in: null,
    tokens_out: null, cost: null, error: null, routed_to: null, count: null, code: null, stream: null,
    cancel_requested: false, ...fields,
  };
}

export function runDocument(changes: Fields = {}, run: Fields = {}): Fields {
  return {
    format: "easel-run/1",
    exported_at: new Date(START + 60_000).toISOString(),
    run: {
      id: id(1000), agent_id: id(1001), agent_title: "Support", version_id: id(1002), version_title: null,
      session_id: id(1003), status: "succeeded", error: null, request: { query: "Hello" },
      usage: { prompt_tokens: 3, completion_tokens: 4, calls: 1, cost: { USD: "0.01" } },
      created_at: new Date(START).toISOString(), started_at: new Date(START).toISOString(),
      finished_at: new Date(START + 1000).toISOString(), origin: null, ...run,
    },
    version: { id: id(1002), digest: "ab", document: { components: {} } },
    graph: {
      drawn: true,
      nodes: [
        { id: "begin", kind: "beginNode", component: "Begin", name: "begin", x: 0, y: 0, w: null, h: null, parent: null, branches: [], is_start: true },
        { id: "Message:0", kind: "messageNode", component: "Message", name: "answer", x: 300, y: 0, w: null, h: null, parent: null, branches: [], is_start: false },
      ],
      edges: [{ id: "e", from: "begin", to: "Message:0", branch: null, kind: "flow" }],
    },
    activations: [activation(1, "begin"), activation(2, "Message:0")],
    values: [{ activation_id: id(2), node_id: "Message:0", inputs: { query: "Hello" }, outputs: { content: "Hi 👋 \"x\" \\ \u202e" } }],
    variables: [{ activation_id: id(2), name: "env.count", value: 3 }],
    attempts: [],
    model_calls: [
      { id: id(50), activation_id: id(2), attempt: 1, kind: "chat", model: "m", status: "ok", bodies: "stored", started_at: null, ended_at: null, request: { messages: ["d1", "d2"], params: { temperature: 0 } }, response: "d3" },
    ],
    call_parts: [
      { digest: "d1", body: { role: "system", content: "Be short." } },
      { digest: "d2", body: { role: "user", content: "Hello" } },
      { digest: "d3", body: { role: "assistant", content: "Hi" } },
    ],
    tool_calls: [{ id: id(60), activation_id: id(2), node_id: "Message:0", tool_name: "search", arguments: { q: 1 }, result: "found", failed: false }],
    events: [{ number: 1, event: "workflow_started", activation_id: null, item: null, node_id: null, at: new Date(START).toISOString(), body: { inputs: null } }],
    message_streams: [{ id: id(2), node_id: "Message:0", epoch: 0, retained_length: 2, text: "Hi", opened_at: 1, epoch_at: 1, closed_at: 2 }],
    ...changes,
  };
}

export function fileOf(document: unknown, space?: number): Blob {
  return new Blob([typeof document === "string" ? document : JSON.stringify(document, null, space)]);
}
