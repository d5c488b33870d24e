/**
 * Splits a JSON object, which arrives as chunks of UTF-8, into its members; the elements of lists are pieces of their
 * own. A file of 100 MB is thus read without one long text, and each piece can be parsed, skipped or found again by its
 * position. The bytes between the pieces are checked here, those of a piece by `JSON.parse`.
 */

export interface Piece {
  member: string;
  /** Number of the element in a list; null for a member that is no list. */
  element: number | null;
  /** Position of its bytes in the file, the end excluded. */
  start: number;
  end: number;
  bytes: Uint8Array;
}

/** The bytes are not one JSON object. */
export class NotJson extends Error {
  constructor(
    readonly position: number,
    readonly isCutOff: boolean,
    readonly member: string | null,
  ) {
    super(isCutOff ? "the text ends too early" : `unexpected character at byte ${position}`);
  }
}

const QUOTE = 0x22, BACKSLASH = 0x5c, COMMA = 0x2c, COLON = 0x3a;
const OPEN_OBJECT = 0x7b, CLOSE_OBJECT = 0x7d, OPEN_LIST = 0x5b, CLOSE_LIST = 0x5d;

type Mode = "start" | "first_key" | "key" | "in_key" | "colon" | "value" | "in_value" | "after_value"
  | "first_element" | "element" | "in_element" | "after_element" | "end";

export class JsonSplitter {
  private buffer = new Uint8Array(1 << 20);
  private length = 0;
  private offset = 0; // position in the file of the first byte of the buffer
  private at = 0; // next byte to look at, in the buffer
  private mode: Mode = "start";
  private member = "";
  private element = 0;
  private begin = 0; // where the current piece begins, in the buffer
  private depth = 0;
  private isInText = false;
  private isScalar = false;

  /** The member that is being read; null outside of members. */
  get currentMember(): string | null {
    return this.mode === "start" || this.mode === "first_key" || this.mode === "end" ? null : this.member;
  }

  /** Add a chunk; yields the pieces that are complete. A piece's bytes are valid until the next one is requested. */
  *feed(chunk: Uint8Array): Generator<Piece> {
    this.append(chunk);
    while (this.at < this.length) {
      const piece = this.step();
      if (piece) yield piece;
    }
  }

  /** Check that the object has ended. Raises NotJson. */
  finish(): void {
    if (this.mode !== "end") throw new NotJson(this.offset + this.length, true, this.currentMember);
  }

  private append(chunk: Uint8Array): void {
    const keepFrom = this.mode === "in_value" || this.mode === "in_element" || this.mode === "in_key" ? this.begin : this.at;
    const kept = this.length - keepFrom;
    if (kept + chunk.length > this.buffer.length) {
      const grown = new Uint8Array(Math.max(2 * this.buffer.length, kept + chunk.length));
      grown.set(this.buffer.subarray(keepFrom, this.length));
      this.buffer = grown;
    } else if (keepFrom > 0) {
      this.buffer.copyWithin(0, keepFrom, this.length);
    }
    this.offset += keepFrom;
    this.at -= keepFrom;
    this.begin -= keepFrom;
    this.buffer.set(chunk, kept);
    this.length = kept + chunk.length;
  }

  /** Look at the next bytes; return a piece if one is complete. */
  private step(): Piece | null {
    if (this.mode === "in_key" || this.mode === "in_value" || this.mode === "in_element") {
      return this.skipValue() ? this.endPiece() : null;
    }
    const byte = this.buffer[this.at] ?? 0;
    if (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) {
      this.at += 1;
      return null;
    }
    if (this.mode === "start" && this.offset + this.at === 0 && byte === 0xef) {
      this.at += 3; // a byte order mark
      return null;
    }
    this.mode = this.next(byte);
    return null;
  }

  private next(byte: number): Mode {
    switch (this.mode) {
      case "start":
        if (byte === OPEN_OBJECT) return this.after("first_key");
        break;
      case "first_key":
      case "key":
        if (byte === QUOTE) return this.beginPiece("in_key");
        if (byte === CLOSE_OBJECT && this.mode === "first_key") return this.after("end");
        break;
      case "colon":
        if (byte === COLON) return this.after("value");
        break;
      case "value":
        this.element = 0;
        if (byte === OPEN_LIST) return this.after("first_element");
        return this.beginPiece("in_value");
      case "after_value":
        if (byte === COMMA) return this.after("key");
        if (byte === CLOSE_OBJECT) return this.after("end");
        break;
      case "first_element":
      case "element":
        if (byte === CLOSE_LIST && this.mode === "first_element") return this.after("after_value");
        return this.beginPiece("in_element");
      case "after_element":
        if (byte === COMMA) return this.after("element");
        if (byte === CLOSE_LIST) return this.after("after_value");
        break;
      default:
        break;
    }
    throw new NotJson(this.offset + this.at, false, this.currentMember);
  }

  private after(mode: Mode): Mode {
    this.at += 1;
    return mode;
  }

  private beginPiece(mode: Mode): Mode {
    const byte = this.buffer[this.at];
    if (byte === COMMA || byte === COLON || byte === CLOSE_LIST || byte === CLOSE_OBJECT) {
      throw new NotJson(this.offset + this.at, false, this.currentMember);
    }
    this.begin = this.at;
    this.depth = 0;
    this.isInText = false;
    this.isScalar = byte !== QUOTE && byte !== OPEN_LIST && byte !== OPEN_OBJECT;
    return mode;
  }

  /** Go to the end of the value; return whether it was reached. */
  private skipValue(): boolean {
    const { buffer, length } = this;
    let { at, depth, isInText } = this;
    let isEnd = false;
    for (; at < length && !isEnd; at++) {
      const byte = buffer[at];
      if (isInText) {
        if (byte === BACKSLASH) at += 1;
        else if (byte === QUOTE) {
          isInText = false;
          isEnd = depth === 0;
        }
      } else if (byte === QUOTE) isInText = true;
      else if (byte === OPEN_OBJECT || byte === OPEN_LIST) depth += 1;
      else if (byte === CLOSE_OBJECT || byte === CLOSE_LIST) {
        if (depth === 0) break;
        depth -= 1;
        isEnd = depth === 0;
      } else if (this.isScalar && (byte === COMMA || byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09)) break;
    }
    isEnd ||= this.isScalar && at < length;
    this.at = at;
    this.depth = depth;
    this.isInText = isInText;
    return isEnd;
  }

  private endPiece(): Piece | null {
    const bytes = this.buffer.subarray(this.begin, this.at);
    const place = { start: this.offset + this.begin, end: this.offset + this.at, bytes };
    if (this.mode === "in_key") {
      this.member = parseJson(bytes, place.start, null) as string;
      this.mode = "colon";
      return null;
    }
    const isElement = this.mode === "in_element";
    this.mode = isElement ? "after_element" : "after_value";
    return { member: this.member, element: isElement ? this.element++ : null, ...place };
  }
}

const decoder = new TextDecoder("utf-8", { fatal: true });

/** Parse the bytes of a piece. Raises NotJson with the position where the piece begins. */
export function parseJson(bytes: Uint8Array, position: number, member: string | null): unknown {
  try {
    return JSON.parse(decoder.decode(bytes)) as unknown;
  } catch {
    throw new NotJson(position, false, member);
  }
}
