/** The runs that wait for a person or a budget, the oldest first. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import type { Overview } from "../api/replies";
import { texts } from "../texts";
import { count } from "../ui/format";
import { Moment } from "../ui/moment";
import { visibleName } from "../ui/visible-text";
import { Section } from "./shares";
import { Table } from "./table";

const t = texts.overview;

export function WaitingRuns({ overview, agent }: { overview: Overview; agent: string | undefined }): ReactNode {
  const { waiting, tiles, now } = overview;
  const total = tiles.waiting_is_capped ? `${count(tiles.waiting)}+` : count(tiles.waiting);
  return (
    <Section title={t.waiting} note={tiles.waiting > waiting.length ? t.waitingMore(waiting.length, total) : ""}>
      {waiting.length ? (
        <>
          <Table label={t.waiting} head={[t.run, t.since, t.why]} textColumns={3}>
            {waiting.map((each) => (
              <tr key={each.run_id}>
                <th scope="row" className="text-left font-normal">
                  <Link to="/runs/$runId" params={{ runId: each.run_id }} search={{ view: "talk" }} className="inline-block min-h-6 leading-6 text-accent underline">
                    <bdi>{visibleName(each.agent ?? t.deleted, 80)}</bdi>
                  </Link>
                </th>
                <td className="whitespace-nowrap text-ink-2">{each.since === null ? "–" : <Moment at={Date.parse(each.since)} now={now} />}</td>
                <td className="min-w-48">
                  <bdi>{visibleName(each.sentence, 300)}</bdi>
                </td>
              </tr>
            ))}
          </Table>
          <Link to="/runs" search={{ status: "waiting", ...(agent && { agent }) }} className="inline-block min-h-6 text-accent underline">
            {t.allWaiting}
          </Link>
        </>
      ) : (
        <p className="text-ink-2">{t.noWaiting}</p>
      )}
    </Section>
  );
}
