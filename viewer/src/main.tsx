/** The entry: the router below the base path of the application. */
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { basePath } from "./api/base";
import { aboutQuery, queryClient } from "./api/queries";
import { beginFirstRead, hadReader } from "./live/first-read";
import { redeemCode } from "./pages/one-time-code";
import { makeRouter } from "./pages/router";
import { takeShareSecret } from "./shares/share-secret";
import "./ui/styles.css";
import { keepAppearance } from "./ui/theme";

async function start(root: HTMLElement): Promise<void> {
  keepAppearance();
  takeShareSecret();
  await redeemCode();
  beginReads();
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={makeRouter()} />
      </QueryClientProvider>
    </StrictMode>,
  );
  dispatchEvent(new Event("easel:started"));
}

/** Ask at once for what the page needs, where there probably is a reader: the router asks later, one after another. */
function beginReads(): void {
  if (!hadReader.read()) return;
  void queryClient.prefetchQuery(aboutQuery);
  const path = location.pathname.slice(basePath().replace(/\/$/, "").length);
  if (path === "/runs") void import("./pages/runs-page");
  const runId = /^\/runs\/([0-9a-f]{32})$/.exec(path)?.[1];
  if (runId === undefined) return;
  void beginFirstRead(runId).then((read) => (read?.graph?.drawn === false ? import("@dagrejs/dagre") : null));
  void import("./pages/run-page");
  void import("./graph/graph-pane");
}

const root = document.getElementById("root");
if (root) void start(root);
