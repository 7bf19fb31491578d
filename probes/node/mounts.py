"""Which file systems a node has, and which of them anybody would miss. Pure but for reading.

Left out is what no operator fills or repairs: kernel file systems, images that are read-only by
design (squashfs, ISO 9660, EROFS), memory file systems, overlays and what container runtimes mount
for pods.
"""

import re

from probes.node.context import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

NETWORK = frozenset({
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "cifs", "smb3", "afs", "9p",
    "glusterfs", "orangefs", "pvfs2", "panfs", "wekafs", "daos", "quobyte", "coda", "ncpfs", "vast",
    "fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.sshfs", "fuse.juicefs", "fuse.s3fs",
    "fuse.gcsfuse", "fuse.blobfuse", "fuse.blobfuse2", "fuse.mount-s3", "fuse.goofys", "fuse.weka",
    "fuse.dfuse", "fuse.moosefs", "fuse.mfs", "fuse.lizardfs", "fuse.alluxio-fuse", "fuse.rclone",
})  # fmt: skip
"""Somebody else's machine has to answer."""

LOCAL = frozenset({
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs", "vfat",
    "exfat", "ntfs", "ntfs3", "fuseblk", "ocfs2", "gfs2", "nilfs2", "hfsplus",
})  # fmt: skip
"""A disk of this node, or one that looks like it."""

DESKTOP = frozenset({
    "fuse.gvfsd-fuse", "fuse.portal", "fuse.snapfuse", "fuse.lxcfs", "fuse.squashfuse",
    "fuse.squashfuse_ll", "fuse.fuse-overlayfs", "fuse.AppImage", "fuse.archivemount",
})  # fmt: skip
"""FUSE file systems of a session or a container, which nobody monitors."""

NO_DATA = frozenset({
    "swap", "none", "ignore", "tmpfs", "ramfs", "proc", "sysfs", "devpts", "devtmpfs", "debugfs",
    "tracefs", "hugetlbfs", "cgroup", "cgroup2", "securityfs", "configfs", "mqueue", "binfmt_misc",
    "iso9660", "udf", "squashfs", "erofs", "overlay", "autofs",
})  # fmt: skip
"""Types in fstab whose absence hinders no job."""

OTHERS_PLACES = (
    "/var/lib/kubelet/", "/var/lib/docker/", "/var/lib/containerd/", "/var/lib/containers/",
    "/run/containerd/", "/run/docker/", "/run/user/", "/snap/", "/var/snap/", "/var/lib/snapd/",
    "/proc/", "/sys/", "/dev/", "/run/credentials/", "/run/netns/", "/var/lib/lxcfs",
)  # fmt: skip
"""Mounts that come and go with pods, sessions and packages."""

STOPPED = ("emergency_ro", "shutdown")
"""What ext4 shows instead of "ro" since Linux 6.14."""

MOUNTS = 48
"""Looked at, at most."""
LINES = 4096
READ_BYTES = 1 << 20

_LOGIN = re.compile(r"(//)[^/@]*:[^@]*@|^()[^/@]*:[^/@]*@")
_QUERY = re.compile(r"[?;].*$")
"""Where the source of a CIFS, WebDAV or object store mount may carry a password."""

_OCTAL = re.compile(r"\\([0-7]{3})")


class Mount:
    """One line of mountinfo."""

    __slots__ = ("device", "fstype", "options", "place", "root", "source", "super_options")

    def __init__(self, fields: "list[str]", after: "list[str]") -> "None":
        self.device = fields[2]
        """major:minor"""
        self.root = unescape(fields[3])
        self.place = unescape(fields[4])
        self.options = fields[5].split(",")
        self.fstype = after[0]
        self.source = unescape(after[1])
        self.super_options = after[2].split(",") if len(after) > 2 else []

    @property
    def network(self) -> "bool":
        """Whether a server, or a program of some user (FUSE), has to answer."""
        return self.fstype in NETWORK or self.fstype.startswith("fuse.")

    @property
    def read_only(self) -> "bool":
        """Whether writing is refused here."""
        refused = "ro" in self.options or "ro" in self.super_options
        return refused or self.kernel_stopped_writing

    @property
    def kernel_stopped_writing(self) -> "bool":
        """Mounted for writing, but the file system itself is read-only: an error did that."""
        if self.fstype not in LOCAL or "rw" not in self.options:
            return False
        return any(word in self.super_options for word in ("ro",) + STOPPED)


class Wanted:
    """One line of fstab that is mounted at boot."""

    __slots__ = ("fstype", "options", "place", "source")

    def __init__(self, source: "str", place: "str", fstype: "str", options: "list[str]") -> "None":
        self.source = source
        self.place = place
        self.fstype = fstype
        self.options = options


def unescape(text: "str") -> "str":
    """Space, tab, newline and backslash are written in octal: "\\040"."""
    return _OCTAL.sub(lambda found: chr(int(found.group(1), 8)), text)


def public(source: "str") -> "str":
    """A source without login and options: "//user:secret@server/share" names its server only."""
    return _QUERY.sub("", _LOGIN.sub(r"\1\2", source))


def parse(text: "str") -> "list[Mount]":
    """mountinfo; what does not look like it is skipped. Optional fields end at a lone dash."""
    found = []
    for line in text.splitlines()[:LINES]:
        words = line.split(" ")
        try:
            dash = words.index("-", 6)
            found.append(Mount(words, words[dash + 1 :]))
        except (ValueError, IndexError):
            continue
    return found


def read(ctx: "Context") -> "list[Mount] | None":
    """The node's mounts in the order they were made; None when they cannot be read.

    Below another root it is the first process's view: `self` would be the container's own.
    """
    places = ("proc/self/mountinfo",) if ctx.root == "/" else ("proc/1/mountinfo",)
    for place in places:
        try:
            with plain(ctx.path(place)) as file:
                raw = file.read(READ_BYTES)
        except (OSError, ValueError):
            continue
        return parse(raw.decode("utf-8", "surrogateescape"))
    return None


def worth(mounts: "list[Mount]", wanted: "dict[str, Wanted]") -> "list[Mount]":
    """Those to look at, one of each file system, in the order of their places.

    Of several mounts on one place the last one is seen; of several places of one file system (bind
    mounts) the one that fstab names, then the shortest. Automounted ones are left alone: looking at
    one would keep it mounted for ever.
    """
    top = {mount.place: mount for mount in mounts}
    triggers = [m.place.rstrip("/") + "/" for m in mounts if m.fstype == "autofs"]
    kept: "dict[tuple[str, str], Mount]" = {}
    for place in sorted(top, key=lambda one: (one not in wanted, len(one), one)):
        mount = top[place]
        if not _interesting(mount) or any((place + "/").startswith(t) for t in triggers):
            continue
        same = (mount.device, mount.fstype)
        kept.setdefault(same, mount)
    return sorted(kept.values(), key=lambda one: one.place)[:MOUNTS]


def _interesting(mount: "Mount") -> "bool":
    if mount.place.startswith(OTHERS_PLACES) or mount.fstype in DESKTOP:
        return False
    return mount.fstype in LOCAL or mount.network


def fstab(text: "str") -> "dict[str, Wanted]":
    """Place -> entry that is mounted at boot and whose absence is a fault (no noauto, nofail)."""
    found: "dict[str, Wanted]" = {}
    for line in text.splitlines()[:LINES]:
        words = line.split()
        if len(words) < 4 or words[0].startswith("#"):
            continue
        source, place, fstype, options = [unescape(word) for word in words[:4]]
        wishes = options.split(",")
        skipped = {"noauto", "nofail", "bind", "rbind", "x-systemd.automount"} & set(wishes)
        if place.startswith("/") and fstype not in NO_DATA and not skipped:
            place = place if place == "/" else place.rstrip("/")
            found[place] = Wanted(source, place, fstype, wishes)
    return found
