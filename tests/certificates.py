"""Certificates of servers that tests start."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM: a new certificate authority, and a key and certificate that it signed for one host."""

    authority: Path
    certificate: Path
    key: Path


def create_self_signed(path: Path, host: str) -> Path:
    """Write a key and a self-signed certificate for a host."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _certificate(key.public_key(), host, host)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(_private(key) + certificate.public_bytes(serialization.Encoding.PEM))
    return path


def create_signed(folder: Path, host: str) -> Certificates:
    """Create a certificate authority, and a server's key and certificate for a host name or an IP address."""
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = (
        _certificate(authority_key.public_key(), "Test CA", "Test CA")
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_authority_key_usage(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _certificate(server_key.public_key(), host, "Test CA")
        .add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    created = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    created.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    created.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    created.key.write_bytes(_private(server_key))
    return created


def _certificate(key: ec.EllipticCurvePublicKey, host: str, issuer: str) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _authority_key_usage() -> x509.KeyUsage:
    """The key usage of an authority, which Python 3.13 requires."""
    names = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{name: name in ("key_cert_sign", "crl_sign") for name in names})


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
