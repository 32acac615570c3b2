"""Random sequences of requests. A request is `[session, name, argument...]`, named as in wire.py.

Besides requests: `batch` (several requests, sent at once), `close`, `drop` (the connection is lost,
and another one attaches the session) and `expire` (the session is left to expire). Paths are
relative to a directory of the run's own; a session opens with its first request.

Known differences are not generated:
- Two recipes' contenders in one directory: Holdfast refuses the second one.
- Checking for a watch that only another session has: ZooKeeper 3.8 says yes if any session has it.
- Watches on invalid paths: ZooKeeper accepts them, and they never fire.
- Watches of several kinds on one path: in ZooKeeper 3.8 the last one replaces the others.
- Znodes that not every client may read: Holdfast sends events for these, too.
- Sequential contenders within a multi: on Holdfast each has a zxid of its own. For the same reason
  compare.py treats all zxids of a session's end as one.
"""

OPEN = [[31, "world", "anyone"]]
READ_ONLY = [[1, "world", "anyone"]]
# Everybody may read it.
MINE = [[31, "auth", ""], [1, "world", "anyone"]]
NOT_AN_ACL = [[31, "nobody", "knows"]]

# Each directory has contenders of one recipe only, and plain znodes.
MARKERS = {
    "/k": ["g1__lock__", "g2__lock__", "g3__rlock__"],
    "/m": ["lock-", "_c_6ac9d6a7-9b4f-4e7d-a2b7-7f4d8f2f7a11-lock-"],
    "/w": ["_c_6ac9d6a7-9b4f-4e7d-a2b7-7f4d8f2f7a11-__WRIT__", "x__READ__"],
    "/l": ["latch-"],
    "/p": ["item-", "", "clock-"],
    "": ["top-"],
}
NAMES = ["x", "y", "z", "\u00e4"]
BAD_PATHS = ["//x", "/x/", "/p/..", "/p/\u0001"]
# The last two are addWatch's modes.
ONE_SHOT, PERSISTENT, RECURSIVE = -1, 0, 1

LONG_TTL_MS = 3_600_000

# One session has a short timeout, so that it can expire; the others never expire within a run.
SESSIONS = "abcd"
MAY_EXPIRE = "d"


class Generator:
    def __init__(self, random):
        self.random, self.sessions = random, SESSIONS
        self.forget()

    def forget(self):
        # What a sequence has created and watched so far: most requests are about existing znodes.
        self.made, self.watched, self.creates, self.kinds = [], [], {}, {}

    def kind_of_watch(self, path):
        """The kind of all watches of a sequence on this path."""
        kind = self.random.choice([ONE_SHOT, ONE_SHOT, PERSISTENT, RECURSIVE])
        return self.kinds.setdefault(path, kind)

    def watchable(self, *kinds):
        while self.kind_of_watch(path := self.valid_path()) not in kinds:
            pass
        return path

    def directory(self):
        return self.random.choice([*MARKERS, "/p/x", "/k", "/p"])

    def contender(self):
        """The path of a sequential znode that may exist."""
        directory = self.random.choice(list(MARKERS))
        number = min(int(self.random.expovariate(0.5)), 9)
        return f"{directory}/{self.random.choice(MARKERS[directory])}{number:010}"

    def valid_path(self):
        while (path := self.path()) in BAD_PATHS:
            pass
        return path

    def path(self):
        if self.made and self.random.random() < 0.7:
            return self.random.choice(self.made[-12:])
        kind = self.random.random()
        if kind < 0.02:
            return self.random.choice(BAD_PATHS)
        if kind < 0.3:
            return self.directory()
        if kind < 0.55:
            return self.contender()
        return f"{self.directory()}/{self.random.choice(NAMES)}"

    def version(self):
        return self.random.choice([-1, -1, -1, 0, 1, 2])

    def acl(self):
        kind = self.random.random()
        if kind < 0.9:
            return OPEN
        return self.random.choice([READ_ONLY, MINE, NOT_AN_ACL, []])

    def data(self):
        return self.random.choice(["", "one", "two", "__REVOKE__"])

    def new_path(self, sequential):
        if not sequential:
            kind = self.random.random()
            path = self.path() if kind < 0.2 else f"{self.directory()}/{self.random.choice(NAMES)}"
            self.count(path.rpartition("/")[0])
            self.made.append(path)
            return path
        directory = self.random.choice(list(MARKERS))
        path = f"{directory}/{self.random.choice(MARKERS[directory])}"
        # The name that it gets if every create so far has succeeded.
        self.made.append(f"{path}{self.count(directory):010}")
        return path

    def count(self, directory):
        number = self.creates.get(directory, 0)
        self.creates[directory] = number + 1
        return number

    def create(self, in_multi=False):
        flags = self.random.choice([0, 0, 1, 1, 2, 3, 3, 3])
        if in_multi:
            flags &= 1
        path = self.new_path(flags & 2)
        if self.random.random() < 0.1:
            container = ["container", path, self.data(), self.acl(), 4]
            ttl = ["ttl", path, self.data(), self.acl(), 5, self.random.choice([LONG_TTL_MS, 0])]
            if not flags & 2:
                return self.random.choice([container, ttl])
        name = self.random.choice(["create", "create2"])
        return [name, path, self.data(), self.acl(), flags]

    def change(self, in_multi=False):
        kind = self.random.random()
        if kind < 0.5:
            return self.create(in_multi)
        if kind < 0.75:
            return ["delete", self.path(), self.version()]
        if kind < 0.97:
            return ["set", self.path(), self.data(), self.version()]
        if in_multi:
            return ["check", self.path(), self.version()]
        return ["set_acl", self.path(), self.acl(), self.version()]

    def read(self):
        often = ["exists", "get", "children", "children2"]
        seldom = ["get_acl", "all_children", "ephemerals"]
        name = self.random.choice(often * 4 + seldom)
        path = self.path()
        if name.startswith("children") and self.random.random() < 0.6:
            path = self.directory()
        if name in seldom:
            return [name, path]
        watch = self.random.random() < 0.8 and self.kind_of_watch(path) == ONE_SHOT
        if watch:
            self.watched.append(path)
        return [name, path, watch]

    def watch(self):
        kind = self.random.random()
        if kind < 0.5:
            path = self.watchable(PERSISTENT, RECURSIVE)
            self.watched.append(path)
            return ["add_watch", path, self.kind_of_watch(path)]
        valid = [path for path in self.watched[-6:] if path not in BAD_PATHS]
        watched = self.random.choice(valid or ["/p"])
        if kind < 0.75:
            return ["remove_watch", watched, self.random.choice([1, 2, 3, 3, 3, 4])]
        if kind < 0.9 and len(self.sessions) == 1:
            return ["check_watch", watched, self.random.choice([1, 2, 3])]
        kinds = [ONE_SHOT, ONE_SHOT, ONE_SHOT, PERSISTENT, RECURSIVE]
        lists = [[self.watchable(kind) for _ in range(self.random.randrange(3))] for kind in kinds]
        if self.random.random() < 0.5:
            return ["set_watches", 0, *lists[:3]]
        return ["set_watches2", 0, *lists]

    def request(self, in_batch=False):
        kind = self.random.random()
        if kind < 0.48:
            return self.change()
        if kind < 0.78:
            return self.read()
        if kind < 0.88:
            return self.watch()
        if kind < 0.94:
            return ["multi", [self.change(in_multi=True) for _ in range(self.random.randrange(5))]]
        if kind < 0.96:
            reads = [[self.random.choice(["get", "children"]), self.path(), False] for _ in range(3)]
            return ["multi_read", reads]
        # ZooKeeper answers auth ahead of earlier requests that are still outstanding.
        if kind < 0.98 and not in_batch:
            return ["auth", "digest", self.random.choice(["ana:secret", "bo:secret"])]
        return self.random.choice([["sync", "/p"], ["who_am_i"]])

    def step(self):
        session = self.random.choice(self.sessions)
        kind = self.random.random()
        if kind < 0.84:
            return [session, *self.request()]
        if kind < 0.94:
            count = self.random.randrange(2, 6)
            return [session, "batch", [self.request(in_batch=True) for _ in range(count)]]
        if kind < 0.97:
            return [session, "close"]
        return [session, "drop"]

    def sequence(self, length):
        self.forget()
        self.sessions = self.random.choice([SESSIONS] * 9 + ["a"])
        directories = [d for d in [*MARKERS, "/p/x"] if d and self.random.random() < 0.9]
        steps = [[self.random.choice(self.sessions), "create", d, "", OPEN, 0] for d in directories]
        self.creates |= {"": len([d for d in directories if d.count("/") == 1]), "/p": 1}
        steps += [self.step() for _ in range(length)]
        # An expiry takes seconds.
        if MAY_EXPIRE in self.sessions and self.random.random() < 0.02:
            steps.insert(self.random.randrange(len(steps) // 2, len(steps)), [MAY_EXPIRE, "expire"])
        return steps
