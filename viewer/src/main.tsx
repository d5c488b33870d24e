/** The entry: the router below the base path of the application. */
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { makeRouter } from "./pages/router";
import "./ui/styles.css";

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <RouterProvider router={makeRouter()} />
    </StrictMode>,
  );
  dispatchEvent(new Event("easel:started"));
}
