"""Certificates for tests, made by the command `openssl`."""

import subprocess

CONFIG = """
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical, CA:TRUE
[of]
basicConstraints = CA:FALSE
subjectAltName = {names}
"""


class Certificate:
    def __init__(self, folder, name):
        self.cert, self.key = folder / f"{name}.crt", folder / f"{name}.key"

    @property
    def flags(self):
        """Those of the mock."""
        return ("--tls-cert", self.cert, "--tls-key", self.key)


class Authority:
    """An issuer of certificates, with the folder where all its files are."""

    def __init__(self, folder, name):
        self.folder, self.own = folder, Certificate(folder, name)
        self.ca = self.own.cert
        self._make(self.own, "ca", "DNS:none")

    def issue(self, name, names):
        """A certificate for ``names``, such as ``IP:127.0.0.1``."""
        made = Certificate(self.folder, name)
        self._make(made, "of", names, "-CA", self.own.cert, "-CAkey", self.own.key)
        return made

    def _make(self, made, extensions, names, *issuer):
        config = self.folder / "openssl.conf"
        config.write_text(CONFIG.format(names=names))
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", made.key)
        command = ("openssl", "req", "-x509", *key, "-out", made.cert, "-days", "2", "-subj", f"/CN={made.cert.stem}")
        subprocess.run([*command, "-config", config, "-extensions", extensions, *issuer], check=True, capture_output=True)
