/** The name of a browser out of what it calls itself in `User-Agent`. */

/** In this order, since Chromium's relatives name Chrome too, and Chrome names Safari. */
const BROWSERS = [
  [/Edg(?:e|A|iOS)?\/(\d+)/, "Edge"],
  [/OPR\/(\d+)/, "Opera"],
  [/(?:Firefox|FxiOS)\/(\d+)/, "Firefox"],
  [/(?:HeadlessChrome|Chromium|Chrome|CriOS)\/(\d+)/, "Chrome"],
  [/Version\/(\d+)[.\d]* (?:Mobile\/\S+ )?Safari/, "Safari"],
] as const;
const SYSTEMS = [
  [/Android/, "Android"],
  [/iPhone|iPad/, "iOS"],
  [/Windows/, "Windows"],
  [/Mac OS X/, "macOS"],
  [/CrOS/, "ChromeOS"],
  [/Linux/, "Linux"],
] as const;

/** Return "Firefox 140 on Linux"; null for a program that calls itself otherwise. */
export function browserName(agent: string): string | null {
  for (const [pattern, name] of BROWSERS) {
    const version = pattern.exec(agent)?.[1];
    if (version === undefined) continue;
    const system = SYSTEMS.find(([each]) => each.test(agent))?.[1];
    return `${name} ${version}${system ? ` on ${system}` : ""}`;
  }
  return null;
}
