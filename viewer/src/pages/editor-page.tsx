/** `/agents/{id}/edit`: the editor of an agent's draft. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useCallback, useEffect, useState, useSyncExternalStore, type ReactNode } from "react";

import * as drafts from "../api/drafts";
import { aboutQuery } from "../api/queries";
import { newIdempotencyKey } from "../api/request";
import { secretFields, useCatalogue } from "../catalogue/catalogue-query";
import { Editor } from "../editor/editor";
import type { EditorSearch } from "../editor/editor-search";
import { useAgent } from "../editor/panel/agent-pane";
import { DraftSession } from "../editor/session/draft-session";
import { BrowserUnsavedStore } from "../editor/session/unsaved-store";
import { texts } from "../texts";
import { Empty } from "../ui/parts";
import { visibleName } from "../ui/visible-text";

const t = texts.editor;
const route = getRouteApi("/signed-in/agents/$agentId/edit");

export function EditorPage(): ReactNode {
  const { agentId } = route.useParams();
  const [session, setSession] = useState<DraftSession | null>(null);
  useEffect(() => {
    const pageId = newIdempotencyKey();
    let close: () => void = () => undefined;
    const isClosed = new Promise<void>((resolve) => {
      close = resolve;
    });
    const made = new DraftSession(agentId, pageId, drafts, new BrowserUnsavedStore(pageId, isClosed), secretFields);
    setSession(made);
    void made.load();
    const onHide = (): void => void made.keep();
    addEventListener("pagehide", onHide);
    return () => {
      removeEventListener("pagehide", onHide);
      void made.save().catch(() => undefined);
      made.stop();
      close();
    };
  }, [agentId]);
  return session?.agentId === agentId ? <OneDraft key={agentId} session={session} /> : null;
}

function OneDraft({ session }: { session: DraftSession }): ReactNode {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  // not the whole state: the editor would be rendered again with each letter
  const loadError = useSyncExternalStore(session.subscribe, () => session.getState().error);
  const isLoaded = useSyncExternalStore(session.subscribe, () => session.getState().document !== null);
  const catalogue = useCatalogue();
  const agent = useAgent(session.agentId);
  const { data: about } = useQuery({ ...aboutQuery, enabled: false });
  const onSearch = useCallback(
    (change: Partial<Record<keyof EditorSearch, string | undefined>>, replace = false): void => {
      void navigate({ search: (now) => ({ ...now, ...change }) as EditorSearch, replace });
    },
    [navigate],
  );
  const isMissing = loadError?.status === 404 || loadError?.status === 400;
  const error = loadError ?? catalogue.error;
  const isReady = isLoaded && catalogue.data !== undefined;
  return (
    <main data-testid="page" data-page={isMissing ? "missing" : "edit"} data-ready={isReady || error ? "1" : "0"} className="flex min-h-0 flex-1 flex-col">
      <title>{`${visibleName(agent.data?.title ?? t.title, 80)} · ${t.title} · Easel`}</title>
      {error ? (
        <div className="p-6">
          <h1 className="mb-2 text-lg font-semibold">{isMissing ? t.missing(visibleName(session.agentId, 40)) : visibleName(error.message, 500)}</h1>
          <Link to="/runs" className="text-accent underline">
            {texts.live.back}
          </Link>
        </div>
      ) : isLoaded && catalogue.data !== undefined ? (
        <Editor agentId={session.agentId} session={session} catalogue={catalogue.data} isReadOnly={!(about?.may?.includes("change") ?? false)} search={search} onSearch={onSearch} />
      ) : (
        <Empty>{t.loading}</Empty>
      )}
    </main>
  );
}
