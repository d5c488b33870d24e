/** A plain table of figures: the first column is text, the others are numbers unless `texts` says so. */
import type { ReactNode } from "react";

interface Props {
  head: readonly string[];
  label?: string;
  /** How many of the first columns are texts. */
  textColumns?: number;
  children: ReactNode;
}

export function Table({ head, label, textColumns = 1, children }: Props): ReactNode {
  return (
    <table aria-label={label} className="figures w-full border-collapse">
      <thead>
        <tr>
          {head.map((title, index) => (
            <th key={title} scope="col" className={`font-normal text-ink-2 ${index < textColumns ? "text-left" : "text-right"}`}>
              {title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>{children}</tbody>
    </table>
  );
}
