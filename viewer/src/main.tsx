/** The entry: the router below the base path of the application. */
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { queryClient } from "./api/queries";
import { redeemCode } from "./pages/one-time-code";
import { makeRouter } from "./pages/router";
import { takeShareSecret } from "./shares/share-secret";
import "./ui/styles.css";

async function start(root: HTMLElement): Promise<void> {
  takeShareSecret();
  await redeemCode();
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={makeRouter()} />
      </QueryClientProvider>
    </StrictMode>,
  );
  dispatchEvent(new Event("easel:started"));
}

const root = document.getElementById("root");
if (root) void start(root);
