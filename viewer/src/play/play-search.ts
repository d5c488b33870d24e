/** The search parameters of the playground. What is not valid is left out. */
import { runSearch, type RunSearch } from "../run/run-search";

export interface PlaySearch extends RunSearch {
  /** The conversation; a new one begins if it is not given. */
  conversation?: string;
  /** The version that a new conversation runs; the draft if it is not given. */
  version?: string;
  /** The run that is shown; the latest turn's if it is not given. */
  run?: string;
}

const ID = /^[0-9a-f]{32}$/;

export function playSearch(search: Readonly<Record<string, unknown>>): PlaySearch {
  const id = (name: "conversation" | "version" | "run"): Pick<PlaySearch, typeof name> => {
    const value = search[name];
    return typeof value === "string" && ID.test(value) ? { [name]: value } : {};
  };
  return { ...runSearch(search), ...id("conversation"), ...id("version"), ...id("run") };
}
