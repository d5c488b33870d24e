/** The texts of the pages, a file for each page. Words of states are in src/store, errors of files in src/run-file/file-errors.ts. */
import { agentsTexts } from "./agents";
import { openPageTexts } from "./open-page";
import { runTexts } from "./run";
import { runsTexts } from "./runs";
import { shellTexts } from "./shell";
import { versionsTexts } from "./versions";

export const texts = { ...shellTexts, ...agentsTexts, ...versionsTexts, ...openPageTexts, ...runsTexts, ...runTexts } as const;
