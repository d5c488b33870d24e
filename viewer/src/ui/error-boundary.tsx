/** A part of a page that fails shows why; the other parts go on. */
import { Component, type ReactNode } from "react";

import { texts } from "../texts";
import { Button, CopyButton } from "./parts";
import { visibleName } from "./visible-text";

/** What browsers say when a file of the page is not there, as after an update. */
const FILE_IS_GONE = /dynamically imported module|module script|preload/i;

interface Props {
  children: ReactNode;
}

export class ErrorBoundary extends Component<Props, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };

  static getDerivedStateFromError(error: unknown): { error: Error } {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (!error) return this.props.children;
    return (
      <div role="alert" className="m-4 rounded border border-red p-3">
        <p className="font-semibold">{FILE_IS_GONE.test(error.message) ? texts.failed.updated : texts.failed.title}</p>
        <p className="my-1 font-mono break-words">{visibleName(error.message, 500)}</p>
        <div className="flex gap-2">
          <Button onClick={() => location.reload()}>{texts.failed.reload}</Button>
          <CopyButton text={() => error.stack ?? error.message} label={texts.failed.details} />
        </div>
      </div>
    );
  }
}
