/** The menu of a run's header: what is done with its address, and where it belongs. */
import { useRouter } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { apiUrl } from "../api/base";
import { exportPath } from "../api/runs";
import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { Menu, type MenuItem } from "../ui/menu";
import { Button } from "../ui/parts";
import { useRun } from "./use-run";

const t = texts.runMenu;
const AGENT = "/agents/$agentId";
const CONVERSATION = "/conversations/$conversationId";

export function RunMenu({ runId }: { runId: string }): ReactNode {
  const announce = useAnnounce();
  const agentId = useRun((state) => state.header?.agentId ?? "");
  const sessionId = useRun((state) => state.header?.sessionId ?? "");
  const open = useOpenPage();
  const copy = (what: string, text: string): void => {
    navigator.clipboard.writeText(text).then(
      () => announce(t.copied(what)),
      () => announce(texts.notCopied),
    );
  };
  const items: readonly (MenuItem | null)[] = [
    { label: t.link, onSelect: () => copy(t.link, location.href) },
    { label: t.curl, onSelect: () => copy(t.curl, `curl -H "Authorization: Bearer $EASEL_TOKEN" '${location.origin}${apiUrl(`/runs/${runId}`)}'`) },
    { label: t.command, onSelect: () => copy(t.command, `easel show ${runId}`) },
    { label: t.download, onSelect: () => download(apiUrl(exportPath(runId))) },
    ...withLine([
      { label: t.conversation, onSelect: open(CONVERSATION, sessionId) },
      { label: t.agent, onSelect: open(AGENT, agentId) },
    ]),
  ];
  return (
    <Menu items={items}>
      <Button aria-label={t.label} title={t.label}>
        ⋯
      </Button>
    </Menu>
  );
}

/** Return the items that lead somewhere, after a line. */
function withLine(items: readonly { label: string; onSelect: (() => void) | null }[]): (MenuItem | null)[] {
  const found = items.flatMap(({ label, onSelect }) => (onSelect ? [{ label, onSelect }] : []));
  return found.length ? [null, ...found] : [];
}

/** Return what opens a page of the pages by the id in its address; null where there is no such page or no id. */
function useOpenPage(): (route: string, id: string) => (() => void) | null {
  const router = useRouter();
  return (route, id) => {
    if (!id || !(route in router.routesByPath)) return null;
    const path = route.replace(/\$\w+/, id);
    return () => router.history.push(router.basepath === "/" ? path : router.basepath + path);
  };
}

function download(address: string): void {
  const link = document.createElement("a");
  link.href = address;
  link.download = "";
  link.click();
}
