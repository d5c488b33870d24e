/** The texts of the pages, a file for each page. Words of states are in src/store, errors of files in src/run-file/file-errors.ts. */
import { agentsTexts } from "./agents";
import { answerTexts } from "./answer";
import { chatTexts } from "./chat";
import { compareTexts } from "./compare";
import { conversationTexts } from "./conversations";
import { copiesTexts } from "./copies";
import { editorTexts } from "./editor";
import { nodeFormTexts } from "./node-form";
import { openPageTexts } from "./open-page";
import { overviewTexts } from "./overview";
import { paletteTexts } from "./palette";
import { playTexts } from "./play";
import { runViewTexts } from "./run-views";
import { runTexts } from "./run";
import { runsTexts } from "./runs";
import { settingsTexts } from "./settings";
import { sharesTexts } from "./shares";
import { shellTexts } from "./shell";
import { systemTexts } from "./system";
import { versionsTexts } from "./versions";

export const texts = {
  ...agentsTexts,
  ...answerTexts,
  ...chatTexts,
  ...compareTexts,
  ...conversationTexts,
  ...copiesTexts,
  ...editorTexts,
  ...nodeFormTexts,
  ...openPageTexts,
  ...overviewTexts,
  ...paletteTexts,
  ...playTexts,
  ...runViewTexts,
  ...runTexts,
  ...runsTexts,
  ...settingsTexts,
  ...sharesTexts,
  ...shellTexts,
  ...systemTexts,
  ...versionsTexts,
} as const;
