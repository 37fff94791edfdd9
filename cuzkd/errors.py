"""The error tree. A class exists only where the caller acts differently on it.

Each class says what the caller can do, and carries the gRPC status it becomes on the wire (`status`, a name of
`grpc.StatusCode`) and a stable `code` for logs, metrics and job records. Messages name what was wrong, what was
expected and where; they never hold a witness value.
"""

from __future__ import annotations

import errno


class CuzkdError(Exception):
    """Anything cuzkd raises on purpose. retry_after_s: when trying again may help, where somebody can tell."""

    status = "INTERNAL"
    code = "internal"
    retry_after_s: float | None = None


class InvalidInput(CuzkdError):
    """The request or a file in it is wrong. Sending the same bytes again will fail again."""

    status = "INVALID_ARGUMENT"
    code = "invalid_input"


class MalformedFile(InvalidInput):
    """A file breaks its format: wrong magic, section out of bounds, count that lies. Names file and section."""

    code = "malformed_file"


class InvalidWitness(InvalidInput):
    """The witness cannot belong to the circuit: length, curve, an element >= r, or a constant wire that is not 1."""

    code = "invalid_witness"


class UnsatisfiedWitness(InvalidInput):
    """The witness is well formed and breaks a constraint (or the key does not fit it): there is no proof to make."""

    code = "unsatisfied_witness"


class InvalidKey(CuzkdError):
    """A key is inconsistent or insecure. The operator must supply another one."""

    status = "FAILED_PRECONDITION"
    code = "invalid_key"


class NotFound(CuzkdError):
    """No such circuit, job or upload (or it has expired)."""

    status = "NOT_FOUND"
    code = "not_found"


class AlreadyExists(CuzkdError):
    """The id is taken by something with other content. Choose another id."""

    status = "ALREADY_EXISTS"
    code = "already_exists"


class NeverFits(CuzkdError):
    """The work needs more than the whole budget: it can never run here. Message holds both numbers, in bytes."""

    status = "FAILED_PRECONDITION"
    code = "never_fits"


class Unsupported(CuzkdError):
    """This daemon does not serve such work at all. Ask another one."""

    status = "UNIMPLEMENTED"
    code = "unsupported"


# Of this process or machine, when opening a file fails: it says nothing of the file.
SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Exhausted(CuzkdError):
    """Not now: queue, budget or disk is full, or there are no descriptors. Try again later."""

    status = "RESOURCE_EXHAUSTED"
    code = "exhausted"


class Unavailable(CuzkdError):
    """The daemon is starting, draining, or has no usable device. Try again later, or elsewhere."""

    status = "UNAVAILABLE"
    code = "unavailable"


class Cancelled(CuzkdError):
    """The work was cancelled at its owner's wish."""

    status = "CANCELLED"
    code = "cancelled"


class DeadlineExceeded(CuzkdError):
    """The work had not ended by the time that its owner had set. Allow more, or submit when less is waiting."""

    status = "DEADLINE_EXCEEDED"
    code = "deadline_exceeded"


class DeviceFault(CuzkdError):
    """The device or its process failed (crash, sticky error, a proof that does not verify). Work may be retried."""

    code = "device_fault"


class LeaseRevoked(CuzkdError):
    """Memory was used after its lease had ended: a bug in the caller, stopped before it could read another's data."""

    code = "lease_revoked"


BY_CODE: dict[str, type[CuzkdError]] = {}


def _register(cls: type[CuzkdError]) -> None:
    BY_CODE[cls.code] = cls
    for sub in cls.__subclasses__():
        _register(sub)


_register(CuzkdError)


def from_code(code: str, message: str) -> CuzkdError:
    """Rebuild an error that crossed a process boundary as (code, message)."""
    return BY_CODE.get(code, CuzkdError)(message)
