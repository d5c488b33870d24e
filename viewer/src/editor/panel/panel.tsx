/** The right column: the form of what is selected, and the run that is open. */
import * as Tabs from "@radix-ui/react-tabs";
import type { ReactNode } from "react";

import type { LiveRun, LiveStatus } from "../../live/live-run";
import { texts } from "../../texts";
import { ErrorBoundary } from "../../ui/error-boundary";
import { Button } from "../../ui/parts";
import { TabList } from "../../ui/tabs";
import { nodesOf } from "../document/document";
import { useDocument, useSelection } from "../editor-context";
import { TABS, type PanelTab } from "../editor-search";
import { AgentPane } from "./agent-pane";
import { NodePane } from "./node-pane";
import { RunPane } from "./run-pane";
import { SelectionPane } from "./selection-pane";

const t = texts.editor.panel;

interface Props {
  tab: PanelTab;
  onTab: (tab: PanelTab) => void;
  /** The field to focus, of the selected node. */
  focusField: string | null;
  run: { live: LiveRun | null; status: LiveStatus | null; onClose: () => void };
  /** On a narrow page, what closes the column. */
  onClose: (() => void) | null;
}

export function Panel({ tab, onTab, focusField, run, onClose }: Props): ReactNode {
  return (
    <aside aria-label={t.title} data-testid="panel" tabIndex={-1} className="flex min-h-0 flex-1 flex-col outline-none">
      <Tabs.Root value={tab} onValueChange={(value) => onTab(value as PanelTab)} className="flex min-h-0 flex-1 flex-col">
        <div className="flex shrink-0 items-center border-b border-line px-2">
          <TabList label={t.title} tabs={TABS} names={t.tabs} className="flex-1" />
          {onClose ? (
            <Button aria-label={texts.close} onClick={onClose}>
              ✕
            </Button>
          ) : null}
        </div>
        <Tabs.Content value="form" tabIndex={-1} className="min-h-0 flex-1 overflow-auto">
          <Selected focusField={focusField} />
        </Tabs.Content>
        <Tabs.Content value="run" tabIndex={-1} className="flex min-h-0 flex-1 flex-col">
          <ErrorBoundary>
            <RunPane {...run} />
          </ErrorBoundary>
        </Tabs.Content>
      </Tabs.Root>
    </aside>
  );
}

function Selected({ focusField }: { focusField: string | null }): ReactNode {
  const { nodes } = useSelection();
  const document = useDocument();
  const [first] = nodes;
  if (nodes.length > 1) return <SelectionPane ids={nodes} />;
  const node = nodesOf(document).get(first ?? "");
  return node ? <NodePane node={node} focusField={focusField} /> : <AgentPane />;
}
