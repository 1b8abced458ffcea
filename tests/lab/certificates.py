"""Certificates for the lab's tests, made with openssl: made anew in each run, and trusted only where their issuer's file is given."""
import datetime
import pathlib
import subprocess
from typing import NamedTuple

# `openssl ca` is the only command that dates a certificate back, in each version of OpenSSL.
CONFIGURATION = """[ca]
default_ca = issuer
[issuer]
database = {folder}/{name}.index
new_certs_dir = {folder}
certificate = {folder}/{name}.crt
private_key = {folder}/{name}.key
default_md = sha256
policy = any
copy_extensions = copy
unique_subject = no
rand_serial = yes
[any]
commonName = supplied
"""


class Pair(NamedTuple):
    cert: pathlib.Path
    key: pathlib.Path


class Authority:
    """An issuer of certificates, with its files in `folder`."""

    def __init__(self, folder, name):
        self.folder, self.name, self.count = folder, name, 0
        self.ca, self.configuration = folder / f"{name}.crt", folder / f"{name}.cnf"
        self.configuration.write_text(CONFIGURATION.format(folder=folder, name=name))
        (folder / f"{name}.index").touch()
        openssl("req", "-x509", *new_key(folder / f"{name}.key"), "-subj", f"/CN={name}", "-days", "30", "-out", self.ca)

    def issue(self, *names, days=30, rsa=False):
        """A certificate for these names and addresses, and its key: valid since a month ago, for so many days from today."""
        self.count += 1
        stem = self.folder / f"{self.name}-{self.count}"
        pair, request = Pair(stem.with_suffix(".crt"), stem.with_suffix(".key")), stem.with_suffix(".csr")
        kinds = ["IP" if name.replace(".", "").isdigit() or ":" in name else "DNS" for name in names]
        alternatives = ",".join(f"{kind}:{name}" for kind, name in zip(kinds, names))
        openssl("req", "-new", *new_key(pair.key, rsa), "-subj", f"/CN={names[0]}", "-addext", f"subjectAltName={alternatives}",
                "-out", request)
        openssl("ca", "-config", self.configuration, "-batch", "-notext", "-startdate", date(-30), "-enddate", date(days),
                "-in", request, "-out", pair.cert)
        return pair


def date(days):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days)).strftime("%Y%m%d%H%M%SZ")


def new_key(path, rsa=False):
    kind = ["-newkey", "rsa:2048"] if rsa else ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    return [*kind, "-nodes", "-keyout", path]


def openssl(*words):
    done = subprocess.run(["openssl", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {words[0]}: {done.stderr}")
