/** `licenses.txt`: name, version and licence of each package of which the pages contain something. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

import type { Plugin } from "vite";

const REFUSED = /\bA?GPL\b/;
const MIT = `Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.`;
const STYLES = ["tailwindcss"]; // packages whose styles are included without a module of their own

interface Package {
  name: string;
  version: string;
  license: string;
  text: string;
}

/** Return the plugin that writes `licenses.txt`. The build fails on a package without licence or its text, or under (A)GPL. */
export function licenses(): Plugin {
  return {
    name: "easel-licenses",
    apply: "build",
    generateBundle() {
      const folders = new Set([...this.getModuleIds()].map(packageFolder).filter((folder) => folder !== null));
      for (const name of STYLES) folders.add(join(process.cwd(), "node_modules", name));
      const packages = [...folders].map(readPackage).sort((a, b) => (a.name < b.name ? -1 : 1));
      const refused = packages.filter((each) => !each.license || !each.text || REFUSED.test(each.license));
      if (refused.length) this.error(`licence not accepted: ${refused.map((each) => each.name).join(", ")}`);
      this.emitFile({ type: "asset", fileName: "licenses.txt", source: packages.map(entryOf).join("\n") });
    },
  };
}

function packageFolder(moduleId: string): string | null {
  const path = moduleId.replace(/^\0/, "").split("?")[0] ?? "";
  const at = path.lastIndexOf("/node_modules/");
  if (at < 0) return null;
  const parts = path.slice(at + "/node_modules/".length).split("/");
  const name = parts[0]?.startsWith("@") ? parts.slice(0, 2).join("/") : parts[0];
  return `${path.slice(0, at)}/node_modules/${name}`;
}

function readPackage(folder: string): Package {
  const described = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Record<string, string>;
  return {
    name: described.name ?? dirname(folder),
    version: described.version ?? "",
    license: described.license ?? "",
    text: licenseFile(folder) ?? standardText(described),
  };
}

function licenseFile(folder: string): string | undefined {
  if (!existsSync(folder)) return undefined;
  const file = readdirSync(folder).sort().find((name) => /^licen[cs]e/i.test(name));
  return file ? readFileSync(join(folder, file), "utf8").replace(/\r\n/g, "\n").trim() : undefined;
}

/** Return the text of the licence that a package without a licence file names; empty if it is another than MIT. */
function standardText({ license, author }: Record<string, string>): string {
  if (license !== "MIT" || typeof author !== "string") return "";
  return `MIT License\n\nCopyright (c) ${author}\n\n${MIT}`;
}

function entryOf(each: Package): string {
  return `${each.name} ${each.version} (${each.license})\n${"-".repeat(72)}\n${each.text}\n`;
}
