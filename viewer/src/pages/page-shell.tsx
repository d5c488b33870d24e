/** The shell with the reader who is signed in, and what happens when the sign-in ends. */
import { useQuery } from "@tanstack/react-query";
import { useRouter } from "@tanstack/react-router";
import { lazy, Suspense, useCallback, useEffect, useState, type ReactNode } from "react";

import { aboutQuery, forgetReader } from "../api/queries";
import type { About } from "../api/replies";
import { onSignedOut } from "../api/request";
import { signOut } from "../api/sign-in";
import { texts } from "../texts";
import { Announcer } from "../ui/announcer";
import { Shell } from "../ui/shell";
import { useShortcut } from "../ui/shortcuts";

const Palette = lazy(async () => ({ default: (await import("../palette/palette")).Palette }));
const KeyHelp = lazy(async () => ({ default: (await import("../palette/key-help")).KeyHelp }));

export function PageShell({ children }: { children: ReactNode }): ReactNode {
  const router = useRouter();
  const { data: about } = useQuery({ ...aboutQuery, enabled: false });

  useEffect(
    () =>
      onSignedOut(() => {
        const { pathname, href } = router.state.location;
        if (pathname === "/login" || pathname === "/open") return;
        forgetReader();
        void router.navigate({ to: "/login", search: { to: href, why: "signed_out" }, replace: true });
      }),
    [router],
  );

  const onSignOut = async (): Promise<void> => {
    await signOut().catch(() => undefined); // the cookie may be over already
    forgetReader();
    await router.navigate({ to: "/login", replace: true });
  };

  const isSignedIn = about?.signed_in ?? false;
  const [opened, setOpened] = useState<"palette" | "help" | null>(null);
  const openPalette = useCallback(() => setOpened("palette"), []);
  const openHelp = useCallback(() => setOpened("help"), []);
  const close = useCallback(() => setOpened(null), []);
  useShortcut("Mod+k", texts.palette.command, openPalette, isSignedIn);
  useShortcut("?", texts.help.command, openHelp);

  return (
    <Announcer>
      <Shell
        onHelp={openHelp}
        {...(about?.signed_in ? { onSignOut: () => void onSignOut(), reader: nameOf(about.tenant), onSearch: openPalette } : {})}
      >
        {children}
      </Shell>
      <Suspense fallback={null}>
        {opened === "palette" && isSignedIn ? <Palette onClose={close} /> : null}
        {opened === "help" ? <KeyHelp onClose={close} /> : null}
      </Suspense>
    </Announcer>
  );
}

function nameOf(tenant: About["tenant"]): string {
  return typeof tenant?.name === "string" ? tenant.name : "";
}
