/**
 * Reads an exported run into a store, a few milliseconds at a time, so that the page stays usable meanwhile. Rows that
 * are needed at once become frames; of values and bodies only the places in the file are kept.
 */
import type { Attempt, Frame, MessageStream, ModelCall, OpenForm, RunEvent, ToolCall } from "../store/run";
import type { RunStore } from "../store/run-store";
import type { Step } from "../store/steps";
import { emptyIndex, FileContents, type FileIndex, type Place } from "./file-contents";
import * as errors from "./file-errors";
import { JsonSplitter, NotJson, parseJson, type Piece } from "./json-splitter";
import * as rows from "./rows";

const CHUNK_BYTES = 1 << 20;
const SLICE_MS = 12; // of work, after which the page may draw
const REQUIRED = ["run", "activations", "events"];

export interface Progress {
  readBytes: number;
  totalBytes: number;
}

interface Options {
  signal: AbortSignal;
  onProgress: (progress: Progress) => void;
}

/**
 * Read a file into a store; return what can be loaded from it later. Raises RunFileError, and AbortError.
 * The store gets its frames at the end, together, so that a file with an error shows nothing.
 */
export async function readRunFile(file: Blob, store: RunStore, options: Options): Promise<FileContents> {
  if (file.size > errors.MAX_FILE_BYTES) throw errors.tooLarge(file.size);
  if (file.size === 0) throw errors.emptyFile();
  const splitter = new JsonSplitter();
  const reading = new Reading();
  let sliceBegan = performance.now();
  const pause = async (readBytes: number): Promise<void> => {
    options.onProgress({ readBytes, totalBytes: file.size });
    await new Promise((resolve) => setTimeout(resolve, 0));
    options.signal.throwIfAborted();
    sliceBegan = performance.now();
  };
  try {
    for (let at = 0; at < file.size; at += CHUNK_BYTES) {
      const chunk = new Uint8Array(await readChunk(file.slice(at, at + CHUNK_BYTES)));
      for (const piece of splitter.feed(chunk)) {
        reading.add(piece);
        if (performance.now() - sliceBegan > SLICE_MS) await pause(piece.end);
      }
      options.signal.throwIfAborted();
      if (performance.now() - sliceBegan > SLICE_MS) await pause(at);
    }
    splitter.finish();
  } catch (error) {
    if (error instanceof NotJson) throw errors.notJson(error, reading.hasFormat);
    throw error;
  }
  reading.check();
  store.apply(reading.frames());
  return new FileContents(file, reading.index, reading.document);
}

async function readChunk(slice: Blob): Promise<ArrayBuffer> {
  try {
    return await slice.arrayBuffer();
  } catch {
    throw errors.unreadable();
  }
}

/** What has been read so far. */
class Reading {
  readonly index: FileIndex = emptyIndex();
  hasFormat = false;
  /** Of the run's version. */
  document: unknown = null;
  private readonly members = new Set<string>();
  private readonly steps: Step[] = [];
  private readonly attempts: Attempt[] = [];
  private readonly modelCalls: ModelCall[] = [];
  private readonly toolCalls: ToolCall[] = [];
  private readonly events: RunEvent[] = [];
  private readonly streams: MessageStream[] = [];
  private forms: OpenForm[] = [];
  private exportedAt = 0;
  private header: rows.Row | null = null;
  private graph: unknown = null;
  private handling = new Set<string>();

  add(piece: Piece): void {
    this.members.add(piece.member);
    if (piece.element === null) this.addMember(piece);
    else this.addRow(piece);
  }

  /** Raises RunFileError if the file is not a whole run. */
  check(): void {
    if (!this.hasFormat) throw errors.notARun();
    if (!this.header) throw errors.missingMember("run");
    for (const name of REQUIRED) if (!this.members.has(name)) throw errors.missingMember(name);
  }

  frames(): Frame[] {
    if (!this.header) throw errors.missingMember("run");
    const header = rows.headerOf(this.header);
    return [
      { type: "header", header, now: this.exportedAt || (header.finishedAt ?? header.createdAt ?? 0) },
      { type: "graph", graph: rows.graphOf(this.graph), handlingNodes: this.handling },
      { type: "steps", steps: this.steps },
      { type: "attempts", attempts: this.attempts },
      { type: "model_calls", calls: this.modelCalls },
      { type: "tool_calls", calls: this.toolCalls },
      { type: "events", events: this.events },
      { type: "streams", streams: this.streams },
      { type: "forms", forms: header.status === "waiting" ? this.forms : [] },
    ];
  }

  private addMember(piece: Piece): void {
    const value = (): unknown => parseJson(piece.bytes, piece.start, piece.member);
    switch (piece.member) {
      case "format": {
        const format = value();
        if (format !== errors.FORMAT) throw errors.wrongFormat(format);
        this.hasFormat = true;
        return;
      }
      case "exported_at":
        this.exportedAt = Date.parse(String(value())) || 0;
        return;
      case "run":
        this.header = new rows.Row(value(), "run", null);
        return;
      case "version": {
        const version = value();
        this.document = rows.isObject(version) ? version.document : null;
        this.handling = rows.handlingNodes(this.document);
        return;
      }
      case "graph":
        this.graph = value();
        return;
      default:
        return; // a member of a newer release
    }
  }

  private addRow(piece: Piece): void {
    const place: Place = [piece.start, piece.end];
    const row = (): rows.Row =>
      new rows.Row(parseJson(piece.bytes, piece.start, piece.member), piece.member, piece.element);
    switch (piece.member) {
      case "activations": {
        if (this.steps.length >= errors.MAX_STEPS) throw errors.tooManySteps();
        const step = rows.stepOf(row());
        this.steps.push(step);
        this.index.steps.set(step.id, place);
        return;
      }
      case "values":
        return addPlace(this.index.values, row().text("activation_id"), place);
      case "variables":
        return addPlace(this.index.variables, row().text("activation_id"), place);
      case "attempts":
        this.attempts.push(rows.attemptOf(row()));
        return;
      case "model_calls": {
        const call = rows.modelCallOf(row());
        this.modelCalls.push(call);
        this.index.modelCalls.set(call.id, place);
        return;
      }
      case "call_parts":
        this.index.callParts.set(row().text("digest"), place);
        return;
      case "tool_calls": {
        const call = rows.toolCallOf(row());
        this.toolCalls.push(call);
        this.index.toolCalls.set(call.id, place);
        return;
      }
      case "events": {
        const read = row();
        const event = rows.eventOf(read);
        this.events.push(event);
        this.index.events.set(event.number, place);
        if (event.name === "user_inputs") this.forms = rows.formsOf(read.value("body"));
        return;
      }
      case "message_streams":
        this.streams.push(rows.streamOf(row()));
        return;
      default:
        return; // a member of a newer release
    }
  }
}

function addPlace(places: Map<string, Place[]>, id: string, place: Place): void {
  const known = places.get(id);
  if (known) known.push(place);
  else places.set(id, [place]);
}
