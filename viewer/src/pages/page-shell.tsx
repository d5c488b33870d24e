/** The shell with the reader who is signed in, and what happens when the sign-in ends. */
import { useQuery } from "@tanstack/react-query";
import { useRouter } from "@tanstack/react-router";
import { useEffect, type ReactNode } from "react";

import { aboutQuery, forgetReader } from "../api/queries";
import type { About } from "../api/replies";
import { onSignedOut } from "../api/request";
import { signOut } from "../api/sign-in";
import { Announcer } from "../ui/announcer";
import { forgetKept } from "../ui/kept";
import { Shell } from "../ui/shell";

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
    forgetKept();
    await signOut().catch(() => undefined); // the cookie may be over already
    forgetReader();
    await router.navigate({ to: "/login", replace: true });
  };

  return (
    <Announcer>
      <Shell {...(about?.signed_in ? { onSignOut: () => void onSignOut(), reader: nameOf(about.tenant) } : {})}>{children}</Shell>
    </Announcer>
  );
}

function nameOf(tenant: About["tenant"]): string {
  return typeof tenant?.name === "string" ? tenant.name : "";
}
