/** The page that opens a run out of a file. */
export const openPageTexts = {
  open: {
    title: "Open a run file",
    intro:
      "Easel runs agent canvases durably: each run is rows in PostgreSQL, and everything about it can be exported as one file. This page shows such a file. It stays on this computer: nothing is sent to a server.",
    choose: "Choose a file",
    drop: "or drop it anywhere on this page",
    limit: "Exported runs (easel-run/1) of up to 256 MiB and 200,000 steps.",
    commandsTitle: "How to get one",
    commands: [
      ["start a run", 'easel run examples/support_triage.json --query "My invoice is wrong"'],
      ["list runs", "easel runs"],
      ["export one", "easel export-run RUN > run.json"],
    ] as const,
    reading: (percent: number) => `Reading the file: ${percent} %`,
    cancel: "Cancel",
    another: "Open another file",
    several: "Several files were dropped. This page shows one run: drop one file.",
    failed: "The file was not opened",
    dropNow: "Drop the file to open it",
    opened: (name: string) => `${name} is open.`,
    again: "The address names a step of a run. Open the file of that run to see it.",
  },
} as const;
