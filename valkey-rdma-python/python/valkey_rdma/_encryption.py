"""TLS as redis-py and valkey-py name it: their ``ssl`` arguments as a scheme and options of this package's URLs."""

from typing import Any

from .errors import UrlError

#: The encrypted scheme in place of a plain one.
ENCRYPTED = {"rdma": "rdmas", "emulated": "emulateds", "valkey": "valkeys", "redis": "rediss"}
#: Their arguments that mean the same as an option of ours.
SAME = {"ssl_ca_certs": "ca", "ssl_certfile": "cert", "ssl_keyfile": "key", "ssl_ciphers": "ciphers"}
#: Their names and numbers of how the server's certificate is checked. For a client, Python's ``CERT_OPTIONAL`` is ``CERT_REQUIRED``.
CHECKED = {"none": False, "optional": True, "required": True, None: False, 0: False, 1: True, 2: True}
#: The number of TLS 1.2, below which this package never goes.
LEAST_VERSION = 0x0303


def is_theirs(name: str) -> bool:
    """Whether this is an argument about TLS, of the client library."""
    return name == "ssl" or name.startswith("ssl_")


def encrypted(scheme: str, options: dict[str, Any] | None, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Takes the client library's arguments about TLS out of ``arguments``. Returns the scheme and the options that mean the same.

    Raises ``UrlError`` for an argument that no option stands for, and for any without TLS: none is ignored.
    """
    options = dict(options or {})
    theirs = {name: arguments.pop(name) for name in list(arguments) if is_theirs(name)}
    if is_true(theirs.pop("ssl", False)):
        scheme = ENCRYPTED.get(scheme, scheme)
    if scheme in ENCRYPTED:
        given = [name for name, value in theirs.items() if value is not None and value is not False]
        if given:
            raise UrlError(f"{given[0]} is for encrypted connections: add ssl=True, or use {ENCRYPTED[scheme]}:// in place of {scheme}://")
        return scheme, options
    ours = {SAME[name]: theirs.pop(name) for name in SAME if theirs.get(name) is not None}
    verify = verified(theirs)
    if verify != "full":
        ours["verify"] = verify
    version = theirs.pop("ssl_min_version", None)
    if version is not None and int(version) > LEAST_VERSION:
        raise UrlError("ssl_min_version cannot be above TLS 1.2, which is the least here: the two sides use TLS 1.3 if both have it")
    for name, value in theirs.items():
        if value is not None and value is not False and name not in SAME:
            raise UrlError(
                f"{name} is not supported: the options for TLS are ca, cert, key, server_name, verify and ciphers, "
                'as in options={"ca": "ca.pem"}'
            )
    for name, value in ours.items():
        if options.setdefault(name, value) != value:
            raise UrlError(f"{name} is given twice: as the option {name}, and by an ssl argument that means the same")
    return scheme, options


def verified(theirs: dict[str, Any]) -> str:
    """The option ``verify`` for their arguments, which it takes out."""
    requirement = theirs.pop("ssl_cert_reqs", "required")
    if requirement not in CHECKED:
        raise UrlError(f"ssl_cert_reqs is none, optional or required, not {requirement!r}")
    name_too = is_true(theirs.pop("ssl_check_hostname", True))
    return "none" if not CHECKED[requirement] else "full" if name_too else "ca"


def is_true(value: Any) -> bool:
    """A value as the client libraries read it in a URL."""
    return value.upper() not in ("", "0", "F", "FALSE", "N", "NO") if isinstance(value, str) else bool(value)
