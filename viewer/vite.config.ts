/** How the pages are built: `viewer/dist` is committed, so the same sources must always give the same files. */
import { fileURLToPath } from "node:url";

import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

import { licenses } from "./build/licenses.ts";

const API = process.env.EASEL_API ?? "http://127.0.0.1:8000"; // for `make viewer-dev`

/** Serve the files of `public/` below `/ui/` too, as the API does: index.html names them relative to its base. */
const filesBelowUi: Plugin = {
  name: "easel-files-below-ui",
  configureServer(server) {
    server.middlewares.use((request, _, next) => {
      request.url = request.url?.replace(/^\/ui\//, "/");
      next();
    });
  },
};

const isOurs = (id: string): boolean => !id.includes("node_modules");

export default defineConfig({
  base: "./", // addresses are relative to `<base href>`, so the pages work below any path
  plugins: [react(), tailwindcss(), licenses(), filesBelowUi],
  resolve: {
    // its variant for browsers decodes `&amp;` of Markdown by innerHTML, which the pages' policy refuses
    alias: { "decode-named-character-reference": fileURLToPath(import.meta.resolve("decode-named-character-reference")) },
  },
  build: {
    target: "es2022",
    sourcemap: false,
    modulePreload: { polyfill: false }, // the polyfill calls fetch
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 600,
    rolldownOptions: {
      output: {
        // one file for what every page needs, and one for what the views of a run share: a page is some 20 requests
        codeSplitting: {
          groups: [
            { name: "libraries", test: /node_modules\/(@tanstack|@radix-ui|@floating-ui|(react|react-dom|react-remove-scroll|scheduler)\/)/, priority: 3 },
            { name: "pages", test: (id) => isOurs(id) && /\/src\/(api|texts|ui\/(?!code-|text-diff|markdown))/.test(id), priority: 2 },
            { name: "run", test: (id) => isOurs(id) && /\/src\/(store|live)\//.test(id), priority: 2, minShareCount: 2 },
          ],
        },
      },
    },
  },
  server: { proxy: { "/api": API } },
  test: { include: ["tests/**/*.test.ts"], environment: "node", testTimeout: 60_000 },
});
