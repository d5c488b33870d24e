/** `/agents/{id}/versions`: the versions of an agent, the difference of two of them, publishing and restoring. */
import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo, useState, type ReactNode } from "react";

import { PRIMARY } from "../agents/looks";
import { useMayChange } from "../agents/may-change";
import { useClick } from "../agents/use-click";
import { DRAFT, listVersions, readAgent, readDraft, readVersion, type VersionWithText } from "../api/agents";
import { restoreVersion } from "../api/drafts";
import type { VersionRow } from "../api/replies";
import { ApiError } from "../api/request";
import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { ConfirmDialog } from "../ui/dialog";
import { Button, Empty } from "../ui/parts";
import { TopBar } from "../ui/shell";
import { visibleName } from "../ui/visible-text";
import { memberText } from "../versions/json-text";
import { PublishDialog } from "../versions/publish-dialog";
import { VersionDifference, type DifferenceView } from "../versions/version-difference";
import { versionName } from "../versions/version-name";
import { versionSearch, type VersionSearch } from "../versions/version-search";
import { VersionTable } from "../versions/version-table";

const t = texts.versions;
/** A change of the address; "" removes a parameter. */
type Change = Readonly<Partial<Record<keyof VersionSearch, string>>>;
const route = getRouteApi("/signed-in/agents/$agentId/versions");

export function VersionsPage(): ReactNode {
  const { agentId } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const client = useQueryClient();
  const announce = useAnnounce();
  const mayChange = useMayChange();
  const [isPublishing, setPublishing] = useState(false);
  const [restoring, setRestoring] = useState<VersionRow | null>(null);
  const head = useQuery({ queryKey: ["agent", agentId], queryFn: ({ signal }) => readAgent(agentId, signal), staleTime: 0 });
  const list = useInfiniteQuery({
    queryKey: ["versions", agentId],
    queryFn: ({ pageParam, signal }) => listVersions(agentId, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    staleTime: 0,
    enabled: head.isSuccess,
  });
  const versions = useMemo(() => list.data?.pages.flatMap((page) => page.versions) ?? [], [list.data]);
  const published = versions.find((each) => each.published) ?? null;
  const chosen = { a: search.a ?? (published ?? versions.find((each) => !each.same_as_draft) ?? versions[0])?.id ?? null, b: search.b ?? DRAFT };
  const isMissing = head.error instanceof ApiError && (head.error.status === 404 || head.error.status === 400);
  const error = head.error ?? list.error;

  const change = (next: Change): void => void navigate({ search: () => versionSearch({ ...search, ...next }), replace: true });
  const reload = (message: string): void => {
    announce(message);
    void Promise.all([
      client.invalidateQueries({ queryKey: ["versions", agentId] }),
      client.invalidateQueries({ queryKey: ["agent", agentId] }),
      client.invalidateQueries({ queryKey: ["version", agentId, DRAFT] }),
      client.invalidateQueries({ queryKey: ["draft", agentId] }),
      client.invalidateQueries({ queryKey: ["agents"] }),
    ]);
  };

  if (isMissing) {
    return (
      <main data-testid="page" data-page="missing" data-ready="1" data-live="off" className="p-6">
        <title>{`${texts.missing.title} · Easel`}</title>
        <h1 className="mb-2 text-lg font-semibold">{texts.agent.missing(visibleName(agentId, 40))}</h1>
        <Link to="/agents" className="text-accent underline">
          {texts.agent.back}
        </Link>
      </main>
    );
  }
  const title = visibleName(head.data?.title ?? "", 120);
  return (
    <main data-testid="page" data-page="versions" data-ready={list.isPending && !error ? "0" : "1"} data-live="off" className="flex min-h-0 flex-1 flex-col">
      <title>{`${t.pageTitle(title)} · Easel`}</title>
      <TopBar
        crumbs={
          <span className="flex min-w-0 items-center gap-1">
            <Link to="/agents" className="inline-block min-h-6 shrink-0 leading-6 text-accent underline">
              {texts.agents.title}
            </Link>
            <span aria-hidden="true">›</span>
            <Link to="/agents/$agentId" params={{ agentId }} className="min-h-6 min-w-0 truncate leading-6 text-accent underline">
              <bdi>{title}</bdi>
            </Link>
            <span aria-hidden="true">›</span>
            <h1 className="shrink-0 font-semibold">{t.title}</h1>
          </span>
        }
        actions={
          <Button className={PRIMARY} disabled={!mayChange || !list.data} {...(mayChange ? {} : { title: t.readOnly })} onClick={() => setPublishing(true)}>
            {t.publish}
          </Button>
        }
      />
      <div className="flex min-h-0 flex-1 flex-col gap-3 overflow-auto p-3">
        {error ? <p role="alert">{error.message}</p> : null}
        {list.isPending && !error ? <Empty>{t.loading}</Empty> : null}
        {list.data ? (
          <>
            <VersionTable
              agentId={agentId}
              versions={versions}
              chosen={chosen}
              onChoose={(side, version) => change({ a: chosen.a ?? DRAFT, b: chosen.b, [side]: version })}
              mayChange={mayChange}
              onRestore={setRestoring}
            />
            {list.hasNextPage ? (
              <p>
                <Button disabled={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>
                  {t.more}
                </Button>
              </p>
            ) : null}
            {versions.length ? null : <p className="text-ink-2">{t.none}</p>}
            {chosen.a === null ? null : <TwoVersions agentId={agentId} a={chosen.a} b={chosen.b} search={search} onSearch={change} />}
          </>
        ) : null}
      </div>
      {isPublishing ? (
        <PublishDialog
          agentId={agentId}
          publishedId={published?.id ?? null}
          onClose={() => setPublishing(false)}
          onDone={(version) => {
            setPublishing(false);
            reload(t.publishedNow(versionName(version)));
          }}
        />
      ) : null}
      {restoring ? (
        <RestoreDialog
          agentId={agentId}
          version={restoring}
          onClose={() => setRestoring(null)}
          onDone={() => {
            setRestoring(null);
            reload(t.restored(versionName(restoring)));
          }}
        />
      ) : null}
    </main>
  );
}

interface TwoProps {
  agentId: string;
  a: string;
  b: string;
  search: VersionSearch;
  onSearch: (change: Change) => void;
}

function useVersion(agentId: string, version: string) {
  return useQuery({
    queryKey: ["version", agentId, version],
    queryFn: ({ signal }) => readVersion(agentId, version, signal),
    staleTime: version === DRAFT ? 0 : Number.POSITIVE_INFINITY,
  });
}

function TwoVersions({ agentId, a, b, search, onSearch }: TwoProps): ReactNode {
  const [before, after] = [useVersion(agentId, a), useVersion(agentId, b)];
  const error = before.error ?? after.error;
  if (error) return <p role="alert">{error instanceof ApiError && error.status === 404 ? t.unknown : error.message}</p>;
  if (!before.data || !after.data) return <Empty>{t.loading}</Empty>;
  return (
    <Two before={before.data} after={after.data} search={search} onSearch={onSearch} onSwap={() => onSearch({ a: b, b: a })} />
  );
}

function Two({ before, after, search, onSearch, onSwap }: { before: VersionWithText; after: VersionWithText; search: VersionSearch; onSearch: TwoProps["onSearch"]; onSwap: () => void }): ReactNode {
  const jsonTexts = useMemo((): [string, string] => [memberText(before.text, "document") ?? "{}", memberText(after.text, "document") ?? "{}"], [before, after]);
  const labels = useMemo((): [string, string] => [versionName(before), versionName(after)], [before, after]);
  const view: DifferenceView = { node: search.node ?? null, showsLayout: search.layout === "1" };
  return (
    <>
      <div className="flex flex-wrap items-center gap-2">
        <h2 className="min-w-0 text-base font-semibold">
          <bdi>{t.differenceOf(labels[0], labels[1])}</bdi>
        </h2>
        <Button onClick={onSwap}>{t.swap}</Button>
      </div>
      <VersionDifference
        before={before.document}
        after={after.document}
        labels={labels}
        jsonTexts={jsonTexts}
        isEqualStored={before.digest === after.digest}
        view={view}
        onView={({ node, showsLayout }) => onSearch({ a: before.id, b: after.id, node: node ?? "", layout: showsLayout ? "1" : "" })}
      />
    </>
  );
}

function RestoreDialog({ agentId, version, onDone, onClose }: { agentId: string; version: VersionRow; onDone: () => void; onClose: () => void }): ReactNode {
  const click = useClick();
  const draft = useQuery({ queryKey: ["draft to replace", agentId], queryFn: ({ signal }) => readDraft(agentId, signal), staleTime: 0, gcTime: 0 });
  const isChanged = click.error instanceof ApiError && click.error.status === 412;
  const restore = (): void => {
    const etag = draft.data?.etag;
    if (etag === undefined) return;
    void click.send(async (key) => {
      try {
        await restoreVersion(agentId, version.id, etag, key);
      } catch (failure) {
        if (failure instanceof ApiError && failure.status === 412) void draft.refetch();
        throw failure;
      }
      onDone();
    });
  };
  return (
    <ConfirmDialog
      title={t.restoreTitle(versionName(version))}
      text={t.restoreText}
      confirm={t.confirmRestore}
      refuse={t.keep}
      isBusy={click.isBusy || draft.isFetching}
      error={isChanged ? t.draftChanged : (click.error?.message ?? draft.error?.message ?? null)}
      onConfirm={restore}
      onClose={onClose}
    />
  );
}
