"""Where systems keep the certificates that programs trust. Light to import."""

from __future__ import annotations

#: Bundles that OpenSSL, GnuTLS, curl, git, wget, Go and others read by default.
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
)
#: Java's key stores, where the system maintains them.
KEY_STORES = ("/etc/ssl/certs/java/cacerts", "/etc/pki/java/cacerts", "/etc/pki/ca-trust/extracted/java/cacerts")
#: Where Java installations are; each may have its own key store.
JAVAS = "/usr/lib/jvm"
