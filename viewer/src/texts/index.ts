/** The texts of the pages, a file for each page. Words of states are in src/store, errors of files in src/run-file/file-errors.ts. */
import { editorTexts } from "./editor";
import { nodeFormTexts } from "./node-form";
import { openPageTexts } from "./open-page";
import { runTexts } from "./run";
import { runsTexts } from "./runs";
import { shellTexts } from "./shell";

export const texts = { ...shellTexts, ...openPageTexts, ...runsTexts, ...runTexts, ...editorTexts, ...nodeFormTexts } as const;
