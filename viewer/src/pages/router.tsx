/** The pages and their addresses. Search parameters are plain texts, checked here, so that every view has an address. */
import { createRootRoute, createRoute, createRouter, lazyRouteComponent, Outlet, redirect } from "@tanstack/react-router";

import { basePath } from "../api/base";
import { findReader } from "../api/queries";
import { ErrorBoundary } from "../ui/error-boundary";
import { MissingPage } from "./missing-page";
import { PageShell } from "./page-shell";
import { UnreachablePage } from "./unreachable-page";
import { editorSearch, type EditorSearch } from "../editor/editor-search";
import { runSearch, type RunSearch } from "../run/run-search";
import { runListSearch, type RunListSearch } from "../runs/run-list-search";

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

/** Pages with data of a server: without a sign-in they lead to the sign-in, and from there back. */
const signedInRoute = createRoute({
  getParentRoute: () => rootRoute,
  id: "signed-in",
  beforeLoad: async ({ location }) => {
    const about = await findReader();
    if (!about.signed_in) redirect({ to: "/login", search: location.href === "/runs" ? {} : { to: location.href }, replace: true, throw: true });
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

const editorRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: "/agents/$agentId/edit",
  validateSearch: (search: Record<string, unknown>): EditorSearch => editorSearch(search),
  component: lazyRouteComponent(() => import("./editor-page"), "EditorPage"),
});

const routeTree = rootRoute.addChildren([homeRoute, openRoute, loginRoute, signedInRoute.addChildren([runsRoute, runRoute, editorRoute])]);

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
