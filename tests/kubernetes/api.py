"""A stand-in for kube-apiserver: what kubectl get, patch, cordon and uncordon need, with state.

There is no API server to install here. This one keeps nodes and pods, counts resourceVersions,
answers 409 to a patch with an old one, 403 to the user "viewer", 404 and lists as the API does,
over TLS (kubectl drops bearer tokens on plain http). Tests change its objects directly.
"""

from __future__ import annotations

import base64
import copy
import datetime
import ipaddress
import itertools
import json
import ssl
import threading
import urllib.parse
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

Object = dict[str, Any]


def node(name: str, *, gpus: int = 8, usable: int | None = None, ready: str = "True") -> Object:
    """A GPU node as the API shows it."""
    has = {"cpu": "224", "nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "224"}
    offers = {**has, "nvidia.com/gpu": str(gpus if usable is None else usable)} if gpus else has
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"} if gpus else {},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {},
        "status": {
            "capacity": has,
            "allocatable": offers,
            "conditions": [{"type": "Ready", "status": ready, "reason": "KubeletReady"}],
        },
    }


_uids = itertools.count(1)


def pod(
    name: str, on: str, *, gpus: int = 0, owner: str = "Job/train", phase: str = "Running",
    namespace: str = "team-a",
) -> Object:  # fmt: skip
    """A pod bound to a node."""
    kind, _, owned_by = owner.partition("/")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{next(_uids)}",
            "ownerReferences": [{"kind": kind, "name": owned_by, "controller": True}],
        },
        "spec": {
            "nodeName": on,
            "containers": [
                {
                    "name": "c",
                    "resources": {"limits": {"nvidia.com/gpu": str(gpus)} if gpus else {}},
                }
            ],
        },
        "status": {"phase": phase},
    }


class Api:
    """The server; a context manager that listens on a port of 127.0.0.1."""

    def __init__(self, directory: Path) -> None:
        """Its certificate and kubeconfig go into `directory`."""
        self.nodes: dict[str, Object] = {}
        self.pods: list[Object] = []
        self.requests: list[str] = []
        self.before_patch: Callable[[str], None] = lambda name: None
        """Called before a patch is looked at: what somebody else does in that moment."""
        self.protected: dict[str, int] = {}
        """Pod -> how many evictions a disruption budget refuses before it lets one through."""
        self.lingers: dict[str, int] = {}
        """Pod -> how many lists it still appears in after it was evicted (its grace period)."""
        self.evictions: list[Object] = []
        self.jobs: dict[str, Object] = {}
        self.deleted: list[str] = []
        """Names of Jobs that were deleted."""
        self.job_ends: Callable[[Object], tuple[str, str]] = lambda job: ("Complete", "")
        """Job -> the condition that it has ended with ("" while it runs), and its pod's log."""
        self.answer: tuple[int, str] | None = None
        """(status, reason) for every request, when set."""
        self.lock = threading.RLock()
        self._version = 1000
        self._directory = directory
        certificate, key = _certificate(directory)
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *words: object) -> None:
                pass

            def do_GET(self) -> None:
                _reply(self, *api.get(self.path, self.headers))

            def do_POST(self) -> None:
                _reply(self, *api.evict(self.path, self.headers, json.loads(_body(self))))

            def do_DELETE(self) -> None:
                _reply(self, *api.delete(self.path))

            def do_PATCH(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                _reply(self, *api.patch(self.path, self.headers, json.loads(body)))

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._server.daemon_threads = True
        self.kubeconfig = self._write_kubeconfig(certificate)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _write_kubeconfig(self, certificate: Path) -> Path:
        port = self._server.server_address[1]
        authority = base64.b64encode(certificate.read_bytes()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "clusters": [
                {
                    "name": "lab",
                    "cluster": {
                        "server": f"https://127.0.0.1:{port}",
                        "certificate-authority-data": authority,
                    },
                }
            ],
            "users": [{"name": who, "user": {"token": who}} for who in ("admin", "viewer")],
            "contexts": [
                {"name": name, "context": {"cluster": "lab", "user": user}}
                for name, user in (("lab", "admin"), ("readers", "viewer"))
            ],
        }
        path = self._directory / "kubeconfig"
        path.write_text(json.dumps(config))
        return path

    # ------------------------------------------------------------------ objects

    def add(self, *objects: Object) -> None:
        """Nodes and pods."""
        for one in objects:
            self._touch(one)
            if one["kind"] == "Node":
                self.nodes[one["metadata"]["name"]] = one
            else:
                self.pods.append(one)

    def change(self, name: str, **spec: Any) -> None:
        """Somebody else changes a node's spec."""
        with self.lock:
            self.nodes[name]["spec"].update(spec)
            self._touch(self.nodes[name])

    def _touch(self, one: Object) -> None:
        self._version += 1
        one["metadata"]["resourceVersion"] = str(self._version)

    # ------------------------------------------------------------------ requests

    def get(self, path: str, headers: Any) -> tuple[int, Object]:
        """Any GET."""
        self.requests.append(f"GET {path}")
        split = urllib.parse.urlsplit(path)
        if self.answer is not None:
            return _refusal(*self.answer, "injected")
        found = _DISCOVERY.get(split.path.rstrip("/"))
        if found is not None:
            return 200, found
        parts = [part for part in split.path.split("/") if part]
        with self.lock:
            if parts[:1] == ["apis"] or parts[2:3] == ["namespaces"]:
                return self._of_jobs(parts, urllib.parse.unquote(split.query))
            if parts == ["api", "v1", "nodes"]:
                return 200, _list("NodeList", list(self.nodes.values()))
            if parts == ["api", "v1", "pods"]:
                if "viewer" in headers.get("Authorization", ""):
                    return _refusal(403, "Forbidden", 'pods is forbidden: User "viewer"')
                query = dict(urllib.parse.parse_qsl(split.query))
                return 200, _list("PodList", self._selected(query.get("fieldSelector", "")))
            if parts[:3] == ["api", "v1", "nodes"] and parts[3] in self.nodes:
                return 200, copy.deepcopy(self.nodes[parts[3]])
        return _refusal(404, "NotFound", f'nodes "{parts[-1]}" not found')

    def _of_jobs(self, parts: list[str], query: str) -> tuple[int, Any]:
        """A Job, the pods that its selector finds, a pod's log."""
        name = query.partition("job-name=")[2] if parts[-1] == "pods" else parts[-1]
        name = parts[-2] if parts[-1] == "log" else name
        job = self.jobs.get(name)
        if job is None:
            return _refusal(404, "NotFound", f'jobs.batch "{name}" not found')
        end, log = self.job_ends(job)
        if parts[-1] == "log":
            return 200, log
        if parts[-2:-1] == ["jobs"]:
            conditions = [{"type": end, "status": "True"}] if end else []
            return 200, {**job, "status": {"conditions": conditions}}
        found = pod(name, "gpu3", owner=f"Job/{name}", namespace="default")
        found["metadata"]["labels"] = {"job-name": name}
        return 200, _list("PodList", [found]) if parts[-1] == "pods" else found

    def create(self, body: Object) -> tuple[int, Object]:
        """A POST of a Job."""
        name = body["metadata"]["name"]
        body["metadata"]["namespace"] = "default"
        body["spec"]["selector"] = {"matchLabels": {"job-name": name}}
        self.jobs[name] = body
        return 201, body

    def delete(self, path: str) -> tuple[int, Object]:
        """A DELETE of a Job."""
        self.requests.append(f"DELETE {path}")
        name = path.partition("?")[0].rsplit("/", 1)[-1]
        with self.lock:
            if self.jobs.pop(name, None) is None:
                return _refusal(404, "NotFound", f'jobs.batch "{name}" not found')
            self.deleted.append(name)
        return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 200}

    def _selected(self, selector: str) -> list[Object]:
        unwanted = [term.partition("!=")[2] for term in selector.split(",") if "!=" in term]
        on = selector.partition("spec.nodeName=")[2]
        found = [one for one in self.pods if one["status"]["phase"] not in unwanted]
        if on:
            found = [one for one in found if one["spec"]["nodeName"] == on]
            self._age()
        return found

    def _age(self) -> None:
        """Evicted pods end when they have been listed often enough."""
        for one in list(self.pods):
            name = one["metadata"]["name"]
            if "deletionTimestamp" in one["metadata"]:
                if not self.lingers.get(name, 0):
                    self.pods.remove(one)
                else:
                    self.lingers[name] -= 1

    def evict(self, path: str, headers: Any, body: Object) -> tuple[int, Object]:
        """A POST to a pod's eviction subresource."""
        self.requests.append(f"POST {path}")
        if body.get("kind") == "Job":
            return self.create(body)
        name = body["metadata"]["name"]
        if "viewer" in headers.get("Authorization", ""):
            return _refusal(403, "Forbidden", f'pods "{name}" is forbidden: User "viewer"')
        with self.lock:
            one = next((p for p in self.pods if p["metadata"]["name"] == name), None)
            if one is None:
                return _refusal(404, "NotFound", f'pods "{name}" not found')
            wanted = body["deleteOptions"]["preconditions"]["uid"]
            if wanted != one["metadata"]["uid"]:
                text = f"Precondition failed: UID in precondition: {wanted}"
                return _refusal(409, "Conflict", f"Operation cannot be fulfilled on pods: {text}")
            if self.protected.get(name, 0):
                self.protected[name] -= 1
                text = "Cannot evict pod as it would violate the pod's disruption budget."
                return _refusal(429, "TooManyRequests", text)
            one["metadata"]["deletionTimestamp"] = "2026-03-03T04:05:06Z"
            self.evictions.append(body)
            return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}

    def patch(self, path: str, headers: Any, body: Object) -> tuple[int, Object]:
        """A merge patch of a node."""
        self.requests.append(f"PATCH {path}")
        name = path.partition("?")[0].rsplit("/", 1)[-1]
        if self.answer is not None:
            return _refusal(*self.answer, "injected")
        if "viewer" in headers.get("Authorization", ""):
            return _refusal(403, "Forbidden", f'nodes "{name}" is forbidden: User "viewer"')
        self.before_patch(name)
        with self.lock:
            one = self.nodes.get(name)
            if one is None:
                return _refusal(404, "NotFound", f'nodes "{name}" not found')
            version = body.get("metadata", {}).pop("resourceVersion", None)
            if version not in (None, one["metadata"]["resourceVersion"]):
                text = (
                    f'Operation cannot be fulfilled on nodes "{name}": the object has been modified'
                )
                return _refusal(409, "Conflict", text)
            _merge(one, body)
            self._touch(one)
            return 200, copy.deepcopy(one)


def _body(handler: BaseHTTPRequestHandler) -> bytes:
    """With a length, or in chunks as `kubectl create --raw` sends it."""
    if handler.headers.get("Transfer-Encoding") != "chunked":
        return handler.rfile.read(int(handler.headers["Content-Length"]))
    parts = []
    while size := int(handler.rfile.readline(), 16):
        parts.append(handler.rfile.read(size))
        handler.rfile.readline()
    handler.rfile.readline()
    return b"".join(parts)


def _merge(target: Object, patch: Object) -> None:
    """JSON merge patch (RFC 7386)."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


def _list(kind: str, items: list[Object]) -> Object:
    return {"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}


def _refusal(code: int, reason: str, message: str) -> tuple[int, Object]:
    return code, {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    }  # fmt: skip


def _reply(handler: BaseHTTPRequestHandler, code: int, body: Object | str) -> None:
    text = isinstance(body, str)
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    handler.send_response(code)
    handler.send_header("Content-Type", "text/plain" if text else "application/json")
    handler.send_header("Content-Length", str(len(raw)))
    handler.end_headers()
    handler.wfile.write(raw)


def _resource(name: str, kind: str, *, namespaced: bool) -> Object:
    verbs = ["get", "list", "watch", "patch", "update"]
    return {
        "name": name,
        "singularName": "",
        "namespaced": namespaced,
        "kind": kind,
        "verbs": verbs,
    }


_DISCOVERY: dict[str, Object] = {
    "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.1"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {
                "name": "batch",
                "versions": [{"groupVersion": "batch/v1", "version": "v1"}],
                "preferredVersion": {"groupVersion": "batch/v1", "version": "v1"},
            }
        ],
    },
    "/apis/batch/v1": {
        "kind": "APIResourceList",
        "groupVersion": "batch/v1",
        "resources": [
            {
                "name": "jobs",
                "singularName": "job",
                "namespaced": True,
                "kind": "Job",
                "verbs": ["create", "delete", "get", "list"],
            }
        ],
    },
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            _resource("nodes", "Node", namespaced=False),
            _resource("pods", "Pod", namespaced=True),
        ],
    },
}


def _certificate(directory: Path) -> tuple[Path, Path]:
    """A key and a certificate for 127.0.0.1 that trusts itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "lab")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = directory / "api.crt", directory / "api.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate, private
