/** The pages and their addresses. Search parameters are plain texts, checked here, so that every view has an address. */
import { createRootRoute, createRoute, createRouter, lazyRouteComponent, Outlet, redirect } from "@tanstack/react-router";

import { basePath } from "../api/base";
import { Announcer } from "../ui/announcer";
import { ErrorBoundary } from "../ui/error-boundary";
import { Shell } from "../ui/shell";
import { MissingPage } from "./missing-page";
import { runSearch, type RunSearch } from "../run/run-search";

const rootRoute = createRootRoute({
  component: () => (
    <Announcer>
      <Shell>
        <ErrorBoundary>
          <Outlet />
        </ErrorBoundary>
      </Shell>
    </Announcer>
  ),
  notFoundComponent: MissingPage,
});

const homeRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/",
  beforeLoad: () => {
    redirect({ to: "/open", replace: true, throw: true });
  },
});

const openRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/open",
  validateSearch: (search: Record<string, unknown>): RunSearch => runSearch(search),
  component: lazyRouteComponent(() => import("./open-page"), "OpenPage"),
});

const routeTree = rootRoute.addChildren([homeRoute, openRoute]);

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
