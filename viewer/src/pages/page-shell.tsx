/** The shell with the reader who is signed in, and what happens when the sign-in ends. */
import { useQuery } from "@tanstack/react-query";
import { useRouter, useRouterState } from "@tanstack/react-router";
import { useEffect, type ReactNode } from "react";

import { aboutQuery, forgetReader } from "../api/queries";
import type { About } from "../api/replies";
import { onSignedOut } from "../api/request";
import { signOut } from "../api/sign-in";
import { Announcer } from "../ui/announcer";
import { Shell } from "../ui/shell";

/** Pages for people without an account: no rail, and a sign-in that ends leads nowhere else. */
function isForGuests(pathname: string): boolean {
  return pathname === "/s" || pathname.startsWith("/chat/");
}

export function PageShell({ children }: { children: ReactNode }): ReactNode {
  const router = useRouter();
  const isBare = useRouterState({ select: (state) => isForGuests(state.location.pathname) });
  const { data: about } = useQuery({ ...aboutQuery, enabled: false });

  useEffect(
    () =>
      onSignedOut(() => {
        const { pathname, href } = router.state.location;
        if (pathname === "/login" || pathname === "/open" || isForGuests(pathname)) return;
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

  if (isBare) {
    return (
      <Announcer>
        <div className="flex h-full flex-col">{children}</div>
      </Announcer>
    );
  }
  return (
    <Announcer>
      <Shell {...(about?.signed_in ? { onSignOut: () => void onSignOut(), reader: nameOf(about.tenant) } : {})}>{children}</Shell>
    </Announcer>
  );
}

function nameOf(tenant: About["tenant"]): string {
  return typeof tenant?.name === "string" ? tenant.name : "";
}
