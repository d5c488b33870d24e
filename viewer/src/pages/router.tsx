/** The pages and their addresses. Search parameters are plain texts, checked here, so that every view has an address. */
import { createRootRoute, createRoute, createRouter, lazyRouteComponent, Outlet, redirect } from "@tanstack/react-router";

import { agentListSearch, agentSearch, type AgentListSearch, type AgentSearch } from "../agents/agent-search";
import { basePath } from "../api/base";
import { findReader } from "../api/queries";
import { compareSearch, type CompareSearch } from "../compare/compare-search";
import { conversationListSearch, conversationSearch, type ConversationListSearch, type ConversationSearch } from "../conversations/conversation-search";
import { editorSearch, type EditorSearch } from "../editor/editor-search";
import { hadReader } from "../live/first-read";
import { overviewSearch, type OverviewSearch } from "../overview/overview-search";
import { playSearch, type PlaySearch } from "../play/play-search";
import { runSearch, type RunSearch } from "../run/run-search";
import { runListSearch, type RunListSearch } from "../runs/run-list-search";
import { ErrorBoundary } from "../ui/error-boundary";
import { keepFor } from "../ui/kept";
import { versionSearch, type VersionSearch } from "../versions/version-search";
import { MissingPage } from "./missing-page";
import { PageShell } from "./page-shell";
import { UnreachablePage } from "./unreachable-page";

const rootRoute = createRootRoute({
  component: () => (
    <PageShell>
      <ErrorBoundary>
        <Outlet />
      </ErrorBoundary>
    </PageShell>
  ),
  notFoundComponent: MissingPage,
});

const homeRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/",
  beforeLoad: () => {
    redirect({ to: "/runs", replace: true, throw: true });
  },
});

const openRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/open",
  validateSearch: (search: Record<string, unknown>): RunSearch => runSearch(search),
  component: lazyRouteComponent(() => import("./open-page"), "OpenPage"),
});

export interface LoginSearch {
  /** The page that was asked for. */
  to?: string;
  why?: "signed_out";
}

const loginRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/login",
  validateSearch: ({ to, why }: Record<string, unknown>): LoginSearch => ({
    ...(typeof to === "string" && { to }),
    ...(why === "signed_out" && { why }),
  }),
  component: lazyRouteComponent(() => import("./login-page"), "LoginPage"),
});

const shareRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/s",
  validateSearch: (search: Record<string, unknown>): RunSearch => runSearch(search),
  component: lazyRouteComponent(() => import("./share-page"), "SharePage"),
});

export interface ChatSearch {
  /** That of the page around the chat. */
  theme?: "light" | "dark";
}

const chatRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/chat/$agentId",
  validateSearch: ({ theme }: Record<string, unknown>): ChatSearch => (theme === "light" || theme === "dark" ? { theme } : {}),
  component: lazyRouteComponent(() => import("./chat-page"), "ChatPage"),
});

/** Pages with data of a server: without a sign-in they lead to the sign-in, and from there back. */
const signedInRoute = createRoute({
  getParentRoute: () => rootRoute,
  id: "signed-in",
  beforeLoad: async ({ location }) => {
    const about = await findReader();
    hadReader.write(about.signed_in);
    if (about.share) redirect({ to: "/s", replace: true, throw: true }); // a visitor sees one run
    if (about.signed_in) keepFor(JSON.stringify([about.tenant, about.user_id]));
    else redirect({ to: "/login", search: location.href === "/runs" ? {} : { to: location.href }, replace: true, throw: true });
  },
  errorComponent: UnreachablePage,
});

const runsRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: "/runs",
  validateSearch: (search: Record<string, unknown>): RunListSearch => runListSearch(search),
  component: lazyRouteComponent(() => import("./runs-page"), "RunsPage"),
});

const runRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: "/runs/$runId",
  validateSearch: (search: Record<string, unknown>): RunSearch => runSearch(search),
  component: lazyRouteComponent(() => import("./run-page"), "RunPage"),
});

const compareRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: "/compare/$a/$b",
  validateSearch: (search: Record<string, unknown>): CompareSearch => compareSearch(search),
  component: lazyRouteComponent(() => import("./compare-page"), "ComparePage"),
});

const overviewRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: "/overview",
  validateSearch: (search: Record<string, unknown>): OverviewSearch => overviewSearch(search),
  component: lazyRouteComponent(() => import("./overview-page"), "OverviewPage"),
});

const systemRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: "/system",
  component: lazyRouteComponent(() => import("./system-page"), "SystemPage"),
});

const conversationsRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: "/conversations",
  validateSearch: (search: Record<string, unknown>): ConversationListSearch => conversationListSearch(search),
  component: lazyRouteComponent(() => import("./conversations-page"), "ConversationsPage"),
});

const conversationRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: "/conversations/$conversationId",
  validateSearch: (search: Record<string, unknown>): ConversationSearch => conversationSearch(search),
  component: lazyRouteComponent(() => import("./conversation-page"), "ConversationPage"),
});

const settingsRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: "/settings",
  component: lazyRouteComponent(() => import("./settings-page"), "SettingsPage"),
});

const agentsRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: "/agents",
  validateSearch: (search: Record<string, unknown>): AgentListSearch => agentListSearch(search),
  component: lazyRouteComponent(() => import("./agents-page"), "AgentsPage"),
});

const agentRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: "/agents/$agentId",
  validateSearch: (search: Record<string, unknown>): AgentSearch => agentSearch(search),
  component: lazyRouteComponent(() => import("./agent-page"), "AgentPage"),
});

const versionsRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: "/agents/$agentId/versions",
  validateSearch: (search: Record<string, unknown>): VersionSearch => versionSearch(search),
  component: lazyRouteComponent(() => import("./versions-page"), "VersionsPage"),
});

const playRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: "/agents/$agentId/play",
  validateSearch: (search: Record<string, unknown>): PlaySearch => playSearch(search),
  component: lazyRouteComponent(() => import("./play-page"), "PlayPage"),
});

const editorRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: "/agents/$agentId/edit",
  validateSearch: (search: Record<string, unknown>): EditorSearch => editorSearch(search),
  component: lazyRouteComponent(() => import("./editor-page"), "EditorPage"),
});

const signedInPages = signedInRoute.addChildren([
  runsRoute,
  runRoute,
  compareRoute,
  overviewRoute,
  systemRoute,
  conversationsRoute,
  conversationRoute,
  settingsRoute,
  agentsRoute,
  agentRoute,
  versionsRoute,
  playRoute,
  editorRoute,
]);

const routeTree = rootRoute.addChildren([homeRoute, openRoute, loginRoute, shareRoute, chatRoute, signedInPages]);

export function makeRouter() {
  return createRouter({
    routeTree,
    basepath: basePath(),
    parseSearch: (text) => Object.fromEntries(new URLSearchParams(text)),
    stringifySearch: (search) => {
      const shown = Object.entries(search).filter((entry): entry is [string, string] => typeof entry[1] === "string" && entry[1] !== "");
      const text = new URLSearchParams(shown).toString();
      return text ? `?${text}` : "";
    },
  });
}

declare module "@tanstack/react-router" {
  interface Register {
    router: ReturnType<typeof makeRouter>;
  }
}
