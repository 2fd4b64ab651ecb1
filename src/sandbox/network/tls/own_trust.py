"""Makes the tenants of one sandbox trust the gate, where the files that all sandboxes share cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.network.tls.further_certificates import further_certificates
from sandbox.network.tls.trust import trusted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandbox.network.gate_thread import Furnished


def show_own(plan: Furnished, authority: bytes, further: Sequence[str]) -> Mapping[str, str]:
    """Makes the files for this sandbox alone: it trusts other certificates as well, or none can be stored because the
    home is not writable. Such a start takes a few tenths of a second longer.

    Returns the variables that name the files. `authority` is PEM, `further` are files.
    """
    certificates = authority + further_certificates(further)
    if plan.image is None:
        trust = trusted(certificates, directory=plan.own_files)
    else:
        from sandbox.network.tls.image_trust import trusted_in

        trust = trusted_in(plan.image.source, certificates)
    plan.files += trust.files
    plan.after_seal += trust.mounts()
    return trust.environment


def put_in_directory(plan: Furnished, authority: bytes, further: Sequence[str]) -> Mapping[str, str]:
    """Where nothing can be mounted: puts the files into the tenants' own directory. Returns the variables that name
    them, which are in the plan already."""
    trust = trusted(authority + further_certificates(further), directory=plan.environment["TMPDIR"])
    plan.files += trust.files
    plan.environment.update(trust.environment)
    return trust.environment
