/** The texts of the pages, a file for each page. Words of states are in src/store, errors of files in src/run-file/file-errors.ts. */
import { conversationTexts } from "./conversations";
import { openPageTexts } from "./open-page";
import { overviewTexts } from "./overview";
import { paletteTexts } from "./palette";
import { runTexts } from "./run";
import { runsTexts } from "./runs";
import { settingsTexts } from "./settings";
import { shellTexts } from "./shell";
import { systemTexts } from "./system";

export const texts = { ...shellTexts, ...openPageTexts, ...runsTexts, ...runTexts, ...overviewTexts, ...systemTexts, ...conversationTexts, ...settingsTexts, ...paletteTexts } as const;
