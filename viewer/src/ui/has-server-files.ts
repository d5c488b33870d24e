/** Whether texts may show files of this API: not those of a run that was opened out of a file. */
import { createContext } from "react";

export const HasServerFiles = createContext(true);
