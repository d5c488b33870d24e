/** The turns of a chat: plain values that views show, and the events that change them. */
import { filesOf, sourcesOf, type Source } from "../answer/message-end";
import { bytesOfHex } from "../answer/speech";
import { formsOf, isObject } from "../run-file/rows";
import { firstPoints, type OpenForm, type ServerFile } from "../store/run";

export interface Question {
  text: string;
  files: readonly string[];
  /** What was entered into a form: names and values. */
  values: readonly (readonly [name: string, value: string])[];
}

/** A sentence of an answer that was read aloud. */
export interface Speech {
  /** Where it stands in the text of the server, by which a part that comes again is recognised. */
  offset: number;
  /** The route of its file, or the audio itself as events bring it. */
  source: string | Blob;
}

export interface Answer {
  id: string;
  /** With reasoning between U+FDD0 and U+FDD1. */
  text: string;
  files: readonly ServerFile[];
  speech: readonly Speech[];
  isOpen: boolean;
}

export type TurnStatus = "sending" | "running" | "waiting" | "done" | "stopped" | "failed";

export interface ChatTurn {
  key: string;
  question: Question | null;
  answers: readonly Answer[];
  /** By the number in `[ID:37]`. */
  sources: ReadonlyMap<number, Source>;
  forms: readonly OpenForm[];
  status: TurnStatus;
  error: string | null;
}

type Fields = Readonly<Record<string, unknown>>;

const CANCELLED = "Task has been canceled"; // the outputs of a run that was cancelled

export function newTurn(key: string, question: Question | null): ChatTurn {
  return { key, question, answers: [], sources: new Map(), forms: [], status: "sending", error: null };
}

export function isClosed(turn: ChatTurn): boolean {
  return turn.status !== "sending" && turn.status !== "running";
}

/** Return a turn after an event of its run. An event of a newer release changes nothing. */
export function withEvent(turn: ChatTurn, envelope: Fields): ChatTurn {
  const data = isObject(envelope.data) ? envelope.data : {};
  if (typeof envelope.code === "number" && envelope.code !== 0) return { ...closed(turn), status: "failed", error: text(envelope.message) };
  const running = isClosed(turn) ? turn : { ...turn, status: "running" as const };
  switch (envelope.event) {
    case "message":
      return withText(running, envelope, data);
    case "message_reset":
      return withAnswer(running, text(data.turn), (answer) => firstPart(answer, number(data.keep) ?? 0));
    case "message_end":
      return withEnd(running, data);
    case "user_inputs":
      return { ...closed(turn), status: "waiting", forms: formsOf(data) };
    case "workflow_finished":
      return { ...closed(turn), status: data.outputs === CANCELLED ? "stopped" : "done" };
    case undefined:
      return turn;
    default:
      return running;
  }
}

function closed(turn: ChatTurn): ChatTurn {
  return { ...turn, answers: turn.answers.map((answer) => (answer.isOpen ? { ...answer, isOpen: false } : answer)) };
}

function withText(turn: ChatTurn, envelope: Fields, data: Fields): ChatTurn {
  const id = text(envelope.turn);
  const offset = number(envelope.offset);
  if (!id || offset === null) return turn;
  const added = data.start_to_think === true ? "\ufdd0" : data.end_to_think === true ? "\ufdd1" : text(data.content);
  const known = turn.answers.some((answer) => answer.id === id) ? turn : { ...turn, answers: [...turn.answers, { id, text: "", files: [], speech: [], isOpen: true }] };
  const audio = bytesOfHex(text(data.audio_binary));
  return withAnswer(known, id, (answer) => {
    const first = firstPart(answer, offset);
    const speech = audio === null ? first.speech : [...first.speech, { offset, source: new Blob([audio]) }];
    return { ...first, text: first.text + added, speech };
  });
}

/** Return an answer up to a position in its text. */
function firstPart(answer: Answer, offset: number): Answer {
  return { ...answer, text: firstPoints(answer.text, offset), speech: answer.speech.filter((each) => each.offset < offset) };
}

function withAnswer(turn: ChatTurn, id: string, change: (answer: Answer) => Answer): ChatTurn {
  return { ...turn, answers: turn.answers.map((answer) => (answer.id === id ? change(answer) : answer)) };
}

/** The end of a message belongs to the text that is open: texts never interleave. */
function withEnd(turn: ChatTurn, data: Fields): ChatTurn {
  const files = filesOf(data);
  const open = turn.answers.findLast((answer) => answer.isOpen);
  const next = closed(turn);
  const sources = new Map([...turn.sources, ...sourcesOf(data.reference)]);
  if (open) return withAnswer({ ...next, sources }, open.id, (answer) => ({ ...answer, files }));
  if (!files.length) return { ...next, sources };
  return { ...next, sources, answers: [...next.answers, { id: `files ${next.answers.length}`, text: "", files, speech: [], isOpen: false }] };
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function number(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}
