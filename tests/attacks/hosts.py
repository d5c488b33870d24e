"""Hosts that must be refused, in every notation that has been used to bypass address checks."""

# All of these are refused at every entry point.
LOOPBACK = (
    "127.0.0.1", "127.0.0.1.", "127.1", "127.0.1", "127.255.255.254", "0", "0.0.0.0", "0x0", "2130706433",
    "0x7f000001", "0x7F.1", "0x7f.0x0.0x0.0x1", "017700000001", "0177.1", "0177.0.0.01", "00000177.0.0.1", "127.0x1",
    "１２７.０.０.１", "127。0。0。1", "127．0．0．1", "127｡0｡0｡1", "①②⑦.⓪.⓪.①", "𝟭𝟮𝟳.𝟬.𝟬.𝟭",
    "[::1]", "[0:0:0:0:0:0:0:1]", "[0000::0001]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
    "[0:0:0:0:0:ffff:127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[2002:7f00:1::1]",
    "[2001:0:7f00:1::]", "[2001::80ff:fffe]",
)  # fmt: skip
NAMES = (
    "localhost", "LOCALHOST", "LocalHost.", "localhost。", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "ｌocalhost", "a.localhost", "A.b.LOCALHOST.",
    "metadata", "metadata.google.internal", "Metadata.Google.Internal.", "metadata｡google｡internal",
)  # fmt: skip
METADATA = (
    "169.254.169.254", "169.254.169.254.", "169.254.43518", "169.16689662", "2852039166", "0xa9fea9fe",
    "0xA9.0xFE.0xA9.0xFE", "0251.0376.0251.0376", "025177524776", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]", "[fd00:ec2::254]", "[fd20:ce::254]", "169.254.170.2",
    "100.100.100.200", "168.63.129.16", "192.0.0.192",
)  # fmt: skip
NETWORKS = (
    "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.257", "3232235521",
    "100.64.0.1", "100.127.255.255", "169.254.0.1", "192.0.0.1", "192.0.2.1", "198.51.100.7", "203.0.113.9",
    "198.18.0.1", "198.19.255.255", "192.88.99.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "0.1.2.3", "[fc00::1]", "[fdff::1]", "[fe80::1]", "[fec0::1]", "[ff02::1]", "[ff0e::1]", "[2001:db8::1]",
    "[3fff::1]", "[100::1]", "[64:ff9b:1::a00:1]", "[::ffff:10.0.0.1]", "[::ffff:0:10.0.0.1]", "[::10.0.0.1]",
    "[64:ff9b::10.0.0.1]", "[2002:a00:1::]", "[5f00::1]",
)  # fmt: skip
SCOPED = ("[fe80::1%eth0]", "[fe80::1%25eth0]", "[::1%lo]", "[2606:4700::1%25eth0]")
NON_PUBLIC_NAMES = {
    "private.example": ("10.0.0.1",),
    "loopback.example": ("127.0.0.1",),
    "mapped.example": ("::ffff:169.254.169.254",),
    "mixed.example": ("93.184.216.34", "192.168.1.1"),
    "both.example": ("2606:2800:220:1::1", "::1"),
    "empty.example": (),
}
INVALID_NAMES = (".", "..", "a..b", "-", "*", "a b", "999.1.1.1", "1.2.3.4.5", "0x7f.0x7f.0x7f.0x1ff", "x" * 300)

# Refused even as hosts of an operator: metadata services of clouds, and link-local, multicast, unspecified and reserved
# addresses.
OFF_LIMITS = (
    *METADATA, "0", "0.0.0.0", "0x0", "0.1.2.3", "[::]", "169.254.0.1", "224.0.0.1", "239.255.255.250", "240.0.0.1",
    "255.255.255.255", "[fe80::1]", "[fe80::1%eth0]", "[ff02::1]", "[ff0e::1]", "[fd00:ec2::23]", "[::169.254.169.254]",
    "[64:ff9b:1::a9fe:a9fe]",
)  # fmt: skip
OFF_LIMITS_BY_NAME = (
    "metadata",
    "Metadata.",
    "metadata.google.internal",
    "Metadata.Google.Internal.",
    "mapped.example",
)

REFUSED = (*LOOPBACK, *NAMES, *METADATA, *NETWORKS, *SCOPED, *NON_PUBLIC_NAMES, *INVALID_NAMES)

PUBLIC = {"public.example": ("93.184.216.34",)}
"""A host that is allowed, to test that the guard does not refuse everything."""
