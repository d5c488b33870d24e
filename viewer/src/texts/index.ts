/** The texts of the pages, a file for each page. Words of states are in src/store, errors of files in src/run-file/file-errors.ts. */
import { compareTexts } from "./compare";
import { copiesTexts } from "./copies";
import { openPageTexts } from "./open-page";
import { runViewTexts } from "./run-views";
import { runTexts } from "./run";
import { runsTexts } from "./runs";
import { shellTexts } from "./shell";

export const texts = {
  ...compareTexts,
  ...copiesTexts,
  ...openPageTexts,
  ...runViewTexts,
  ...runTexts,
  ...runsTexts,
  ...shellTexts,
} as const;
