/** One setting as a group of radio buttons, and the switch for single keys. */
import type { ReactNode } from "react";

import { texts } from "../texts";
import { changeSettings, useSettings, type Settings } from "../ui/settings";
import { setSingleKeysOn, useSingleKeysOn } from "../ui/shortcuts";

const t = texts.settings;

interface Group {
  title: string;
  choices: Readonly<Record<string, string>>;
}

export function Choices({ name }: { name: keyof Settings }): ReactNode {
  const settings = useSettings();
  const group: Group = t.groups[name];
  return (
    <fieldset className="flex flex-wrap items-center gap-x-1 gap-y-1">
      <legend className="float-left mr-2 w-36 text-ink-2">{group.title}</legend>
      {Object.entries(group.choices).map(([choice, title]) => (
        <label key={choice} className="flex min-h-7 cursor-pointer items-center gap-1.5 rounded border border-line px-2 has-checked:border-accent has-checked:bg-accent-soft has-focus-visible:outline-2">
          <input type="radio" name={name} value={choice} checked={settings[name] === choice} onChange={() => changeSettings({ [name]: choice })} />
          {title}
        </label>
      ))}
    </fieldset>
  );
}

export function SingleKeys(): ReactNode {
  const isOn = useSingleKeysOn();
  return (
    <>
      <label className="flex min-h-7 w-fit cursor-pointer items-center gap-2">
        <input type="checkbox" role="switch" className="size-5" checked={isOn} onChange={(event) => setSingleKeysOn(event.target.checked)} />
        {t.singleKeys}: {isOn ? t.on : t.off}
      </label>
      <p className="text-ink-2">{t.singleKeysHint}</p>
    </>
  );
}
