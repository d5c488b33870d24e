/** The command palette, and the list of keys. */
export const paletteTexts = {
  palette: {
    title: "Search and actions",
    placeholder: "an action, a page, an id, or words of a run, an agent or a conversation",
    groups: { actions: "Actions of this page", pages: "Pages", ids: "With this id", runs: "Runs", agents: "Agents", conversations: "Conversations" },
    results: "Results",
    count: (count: number) => `${count} result${count === 1 ? "" : "s"}`,
    none: "Nothing was found.",
    searching: "Searching…",
    failed: "The search failed: ",
    keys: "↑ ↓ to choose, Enter to open, Esc to close",
    openRun: (id: string) => `Run ${id}`,
    openAgent: (id: string) => `Agent ${id}`,
    openConversation: (id: string) => `Conversation ${id}`,
    unknownId: "No run, agent or conversation has this id.",
    command: "Search and actions",
  },
  help: {
    title: "Keys that work here",
    none: "No key is in use.",
    off: "Single keys are switched off. They can be switched on in the settings.",
    command: "Keys that work here",
    names: { Escape: "Esc", ArrowDown: "↓", ArrowUp: "↑", ArrowLeft: "←", ArrowRight: "→", " ": "Space" } as Readonly<Record<string, string>>,
    always: "In tables and graphs, arrow keys move; in dialogs and menus, Esc closes.",
  },
} as const;
