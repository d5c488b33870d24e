// The rules of the layers: only src/api/ makes requests, src/store/ knows no React, and no text becomes HTML or code.
import hooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

const REQUESTS = ["fetch", "XMLHttpRequest", "EventSource", "WebSocket"].map((name) => ({
  name,
  message: "Only src/api/ makes requests.",
}));
const HTML = "A text must never become HTML or code (docs/pages.md).";
const SYNTAX = [
  ...["innerHTML", "outerHTML", "srcdoc"].map((name) => `MemberExpression[property.name='${name}']`),
  "MemberExpression[property.name='insertAdjacentHTML']",
  "MemberExpression[object.name='document'][property.name=/^write/]",
  "JSXAttribute[name.name='dangerouslySetInnerHTML']",
  "Property[key.name='dangerouslySetInnerHTML']",
  "MemberExpression[object.name=/^(window|globalThis|self)$/][property.name=/^(eval|fetch|Function)$/]",
  "MemberExpression[object.name='navigator'][property.name='sendBeacon']",
].map((selector) => ({ selector, message: HTML }));
const ABSOLUTE = {
  selector: "JSXAttribute[name.name=/^(href|src|action)$/] Literal[value=/^\\u002F/], CallExpression[callee.name=/^(fetch|request)$/] > Literal[value=/^\\u002F/]",
  message: "Build addresses with src/api/base.ts, so that the pages work below EASEL_BASE_PATH.",
};

export default tseslint.config(
  { ignores: ["dist/", "node_modules/", "src/api/schema.ts"] },
  { files: ["**/*.ts", "**/*.tsx"], extends: tseslint.configs.recommendedTypeChecked, languageOptions: { parserOptions: { projectService: true } } },
  {
    plugins: { "react-hooks": hooks },
    rules: {
      "react-hooks/rules-of-hooks": "error",
      "react-hooks/exhaustive-deps": "error",
      "no-eval": "error",
      "no-new-func": "error",
      "no-implied-eval": "error",
      "no-script-url": "error",
      "no-console": "error",
      "no-restricted-globals": ["error", ...REQUESTS],
      "no-restricted-syntax": ["error", ...SYNTAX, ABSOLUTE],
    },
  },
  { files: ["src/api/**"], rules: { "no-restricted-globals": "off", "no-restricted-syntax": ["error", ...SYNTAX] } },
  { files: ["src/pages/router.tsx"], rules: { "no-restricted-syntax": ["error", ...SYNTAX] } }, // its paths are below the base
  {
    files: ["src/store/**"],
    rules: {
      "no-restricted-imports": [
        "error",
        { patterns: [{ regex: "^(react|react-dom|@xyflow|@radix-ui|@tanstack)(/|$)|^(\\.\\./)+(api|graph|pages|run|ui)/", message: "src/store/ is plain TypeScript." }] },
      ],
      "no-restricted-globals": ["error", ...REQUESTS, "document", "window", "localStorage"],
    },
  },
  { files: ["tests/**", "build/**", "*.ts", "*.js"], rules: { "no-restricted-globals": "off", "no-restricted-syntax": "off", "no-script-url": "off" } },
);
