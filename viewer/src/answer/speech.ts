/** The audio of an answer that was read aloud: a file for each sentence. */

export const SPEECH = "audio/mpeg";

export function speechPath(id: string): string {
  return `/agents/attachments/${id}/download`;
}

/** Return the bytes that are written as hexadecimal digits; null if the text is not of that form. */
export function bytesOfHex(written: string): Uint8Array<ArrayBuffer> | null {
  if (!written || written.length % 2 || !/^[0-9a-f]+$/i.test(written)) return null;
  return Uint8Array.from({ length: written.length / 2 }, (_, place) => Number.parseInt(written.slice(2 * place, 2 * place + 2), 16));
}
