/** Files that runs made and that people sent, as they are. */
import { ApiError, send, UNREACHABLE } from "./request";

/** Return a file by the path of its route. */
export async function readFile(path: string): Promise<Blob> {
  const response = await send(path, { accept: "*/*" });
  try {
    return await response.blob();
  } catch {
    throw new ApiError(0, "unreachable", UNREACHABLE);
  }
}
