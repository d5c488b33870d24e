/** The texts of the pages, a file for each page. Words of states are in src/store, errors of files in src/run-file/file-errors.ts. */
import { agentsTexts } from "./agents";
import { compareTexts } from "./compare";
import { conversationTexts } from "./conversations";
import { copiesTexts } from "./copies";
import { openPageTexts } from "./open-page";
import { overviewTexts } from "./overview";
import { paletteTexts } from "./palette";
import { runViewTexts } from "./run-views";
import { runTexts } from "./run";
import { runsTexts } from "./runs";
import { settingsTexts } from "./settings";
import { shellTexts } from "./shell";
import { systemTexts } from "./system";
import { versionsTexts } from "./versions";

export const texts = {
  ...agentsTexts,
  ...compareTexts,
  ...conversationTexts,
  ...copiesTexts,
  ...openPageTexts,
  ...overviewTexts,
  ...paletteTexts,
  ...runViewTexts,
  ...runTexts,
  ...runsTexts,
  ...settingsTexts,
  ...shellTexts,
  ...systemTexts,
  ...versionsTexts,
} as const;
