/** Why a file cannot be opened: what is wrong, and what to do. */
import { NotJson } from "./json-splitter";

export const FORMAT = "easel-run/1";
export const MAX_FILE_BYTES = 256 * 1024 * 1024;
export const MAX_STEPS = 200_000;

export class RunFileError extends Error {
  constructor(
    readonly problem: string,
    readonly remedy: string,
  ) {
    super(`${problem} ${remedy}`);
  }
}

const EXPORT = "Export the run with: easel export-run RUN > run.json";

export function tooLarge(bytes: number): RunFileError {
  const problem = `The file has ${mebibytes(bytes)}. This page opens files of up to ${mebibytes(MAX_FILE_BYTES)}.`;
  return new RunFileError(problem, "Export the run again without large values (without --large, large=1).");
}

export function emptyFile(): RunFileError {
  return new RunFileError("The file is empty.", EXPORT);
}

export function tooManySteps(): RunFileError {
  const problem = `The run has more than ${MAX_STEPS.toLocaleString("en")} steps, which is the limit of this page.`;
  return new RunFileError(problem, "Read it on the command line with: easel show RUN");
}

export function unreadable(): RunFileError {
  return new RunFileError("The file can no longer be read: it was changed, moved or deleted.", "Open it again.");
}

/** Return the error of a file whose format is not the one that this page reads. */
export function wrongFormat(format: unknown): RunFileError {
  const number = typeof format === "string" ? /^easel-run\/(\d+)$/.exec(format)?.[1] : undefined;
  if (number === undefined) return notARun();
  if (Number(number) > 1) {
    const problem = `The file has the format ${String(format)}, which a newer release of Easel has written.`;
    return new RunFileError(problem, `This page reads ${FORMAT}. Open the file with the pages of that release.`);
  }
  return new RunFileError(`The format ${String(format)} is not known.`, `This page reads ${FORMAT}. ${EXPORT}`);
}

export function notARun(): RunFileError {
  return new RunFileError(`The file is JSON, but not an exported run: its "format" is not "${FORMAT}".`, EXPORT);
}

export function missingMember(name: string): RunFileError {
  return new RunFileError(`The file has no member "${name}", so it is not a whole exported run.`, EXPORT);
}

export function invalidRow(member: string, element: number | null, field: string): RunFileError {
  const place = element === null ? member : `${member}[${element}]`;
  return new RunFileError(`"${place}" has no valid "${field}".`, `The file is damaged or was edited. ${EXPORT}`);
}

/** Return the error of bytes that are not JSON; `isRun`: whether they began as an exported run. */
export function notJson(error: NotJson, isRun: boolean): RunFileError {
  const place = error.member ? ` in "${error.member}"` : "";
  if (error.isCutOff) {
    const problem = `The file ends too early${place}: its last part is missing.`;
    return new RunFileError(problem, `The export or a download was interrupted. ${EXPORT}`);
  }
  if (isRun) {
    const problem = `The file is not valid JSON${place}, at byte ${error.position.toLocaleString("en")}.`;
    return new RunFileError(problem, `It is damaged or was edited. ${EXPORT}`);
  }
  return new RunFileError("The file is not a JSON object, so it is not an exported run.", EXPORT);
}

function mebibytes(bytes: number): string {
  return `${(bytes / 1024 / 1024).toFixed(bytes < 10 * 1024 * 1024 ? 1 : 0)} MiB`;
}
