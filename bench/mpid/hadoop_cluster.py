"""Hadoop as a cluster of one host, a peer of run.py: NameNode, DataNode, ResourceManager, NodeManager and the job history server, each a process of
its own, from the jars of Maven Central, and jobs of Hadoop's examples upon them.

Its input is put into its HDFS before the time is taken, its output stays there: local runs read and write local files. As many tasks run at once
as there are ranks, beside the application master, which is told by memory; each is a JVM of its own (uber mode is off). Reduces begin when all maps
are done: begun earlier they hold a container that a map could have. Everything else is as Hadoop has it.

The daemons listen on ports of the loopback that were free when they were started; the shuffle and application masters, which Hadoop binds
everywhere, on ports that it or the system picks. All files are in .harrier/peers/mpid-hadoop-cluster: jars/ and web/, which stay, and run/, the
files of the HDFS and the logs, which is removed at the end. A lock has only one bench at a time use it.

Order of calls: install, start, then for each job prepare, settle, its words as a command, settle, fetch; at the end stop, which may be called at
any time, and again. The daemons end even if the bench is killed; the NodeManager then within a minute or two.

Errors: Unavailable if it cannot be installed or started, and CalledProcessError if files cannot be copied.
"""

import contextlib
import ctypes
import fcntl
import getpass
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from xml.sax.saxutils import escape

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parents[1] / ".harrier/peers/mpid-hadoop-cluster"
POM = HERE / "hadoop-cluster-pom.xml"

# Memory of a container in MiB; Hadoop gives four fifths of it to the heap. Less than a task's room is left beside two application masters, of
# which the second of a chain of jobs starts while the first one ends.
TASK_MEMORY = 2048
MASTER_MEMORY = 1024
# What Java 17 does not let a library do unless it is told to.
OPENED = "--add-opens=java.base/java.lang=ALL-UNNAMED"
DAEMONS = {
    "namenode": ("org.apache.hadoop.hdfs.server.namenode.NameNode", "-Xmx512m"),
    "datanode": ("org.apache.hadoop.hdfs.server.datanode.DataNode", "-Xmx512m"),
    "resourcemanager": ("org.apache.hadoop.yarn.server.resourcemanager.ResourceManager", "-Xmx512m"),
    "nodemanager": ("org.apache.hadoop.yarn.server.nodemanager.NodeManager", "-Xmx512m"),
    "historyserver": ("org.apache.hadoop.mapreduce.v2.hs.JobHistoryServer", "-Xmx256m"),
}
START_SECONDS = 180
STOP_SECONDS = 30

LOGGING = """\
hadoop.root.logger=WARN,console
log4j.rootLogger=${hadoop.root.logger}
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
log4j.appender.console.layout.ConversionPattern=%d{HH:mm:ss} %p %c{2}: %m%n
"""


class Unavailable(Exception):
    pass


class Job:
    """A job of the examples: a command, and where its answer lies."""

    OUTPUT = "/out"

    def __init__(self, cluster, program, source, ranks, *extra):
        self.cluster = cluster
        self.source = source
        self.words = cluster.java("-Xmx512m") + [
            "org.apache.hadoop.examples.ExampleDriver", program, "-D", f"mapreduce.job.reduces={ranks}", "/in", self.OUTPUT, *extra,
        ]
        self.environment = cluster.environment

    def prepare(self):
        """Has its input in the HDFS and no output there."""
        self.cluster.bring(self.source)
        self.cluster.remove(self.OUTPUT)

    def fetch(self, folder):
        """Copies its answer into a folder that is not there."""
        self.cluster.files("-get", self.OUTPUT, str(folder))


class Cluster:
    def __init__(self, ranks):
        self.ranks = ranks
        self.run = FOLDER / "run"
        self.conf = self.run / "conf"
        self.processes = {}
        self.brought = None
        self.lock = None
        self.pages = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        # Nothing of another Hadoop on this machine.
        others = ("HADOOP_", "HDFS_", "YARN_", "MAPRED_", "CLASSPATH")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(others)}

    def install(self):
        """Collects the jars, once for each version of the list."""
        for program, package in (("java", "openjdk-17-jre-headless"), ("mvn", "maven")):
            if shutil.which(program) is None and not (program == "mvn" and self.installed()):
                install_package(program, package)
        if self.installed():
            return
        for folder in ("jars", "web"):
            shutil.rmtree(FOLDER / folder, ignore_errors=True)
        FOLDER.mkdir(parents=True, exist_ok=True)
        shutil.copy(POM, FOLDER / "pom.xml")
        command = ["mvn", "-q", "-B", "-ntp", "process-resources"]
        done = subprocess.run(command, cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise Unavailable(f"Maven could not get it: {done.stdout.strip()[-600:]}")
        shutil.rmtree(FOLDER / "target", ignore_errors=True)
        shutil.copy(POM, FOLDER / "done")

    @staticmethod
    def installed():
        return (FOLDER / "done").is_file() and (FOLDER / "done").read_bytes() == POM.read_bytes()

    def java(self, *options):
        return ["java", OPENED, "-XX:+UseSerialGC", *options, "-cp", f"{self.conf}:{FOLDER}/web:{FOLDER}/jars/*"]

    def start(self):
        """Starts the daemons with an empty HDFS. Returns when they have found one another."""
        self.lock = open(FOLDER / "lock", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.lock.close()
            self.lock = None
            raise Unavailable("another bench uses it") from None
        try:
            shutil.rmtree(self.run, ignore_errors=True)
            self.conf.mkdir(parents=True)
            (self.run / "logs").mkdir()
            self.configure()
            home = pathlib.Path(shutil.which("java")).resolve().parents[1]
            self.environment |= {"JAVA_HOME": str(home), "HADOOP_CONF_DIR": str(self.conf)}
            with open(self.run / "logs/format", "w") as log:
                words = self.java("-Xmx256m") + [DAEMONS["namenode"][0], "-format", "-force", "-nonInteractive"]
                formatted = subprocess.run(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            if formatted.returncode != 0:
                raise Unavailable(f"its HDFS could not be made: {self.last_words('format')}")
            for name, (main, memory) in DAEMONS.items():
                with open(self.run / "logs" / name, "w") as log:
                    self.processes[name] = subprocess.Popen(
                        self.java(memory) + [main],
                        env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=end_with_parent,
                        # An interrupt from the terminal is not for them: a NodeManager that ends waits for its ResourceManager.
                        start_new_session=True,
                    )
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def wait_until_ready(self):
        deadline = time.monotonic() + START_SECONDS
        while not self.ready():
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise Unavailable(f"its {name} ended: {self.last_words(name)}")
            if time.monotonic() > deadline:
                raise Unavailable(f"its daemons have not found one another within {START_SECONDS} s")
            time.sleep(0.2)

    def ready(self):
        try:
            names = self.page("namenode", "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState")["beans"]
            if not names or names[0]["NumLiveDataNodes"] != 1 or names[0]["FSState"] != "Operational":
                return False
            if self.page("resourcemanager", "/ws/v1/cluster/metrics")["clusterMetrics"]["activeNodes"] != 1:
                return False
            return bool(self.page("historyserver", "/ws/v1/history/info"))
        except (OSError, ValueError, KeyError):
            return False

    def page(self, daemon, path, method="GET"):
        address = f"http://127.0.0.1:{self.http[daemon]}{path}"
        request = urllib.request.Request(address, method=method, headers={"Accept": "application/json"})
        with self.pages.open(request, timeout=60) as answer:
            return json.loads(answer.read())

    def configure(self):
        ports = iter(free_ports(17))
        here = lambda: f"127.0.0.1:{next(ports)}"
        names, self.http = here(), {}

        def http(daemon):
            address = here()
            self.http[daemon] = int(address.rsplit(":", 1)[1])
            return address

        self.write("core-site", {
            "fs.defaultFS": f"hdfs://{names}",
            "hadoop.tmp.dir": self.run / "data",
            "hadoop.http.staticuser.user": getpass.getuser(),
        })
        self.write("hdfs-site", {
            "dfs.replication": 1,
            "dfs.namenode.rpc-address": names,
            "dfs.namenode.http-address": http("namenode"),
            "dfs.datanode.address": here(),
            "dfs.datanode.ipc.address": here(),
            "dfs.datanode.http.address": http("datanode"),
            "dfs.datanode.hostname": "localhost",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        })
        self.write("yarn-site", {
            "yarn.resourcemanager.hostname": "127.0.0.1",
            "yarn.resourcemanager.address": here(),
            "yarn.resourcemanager.scheduler.address": here(),
            "yarn.resourcemanager.resource-tracker.address": here(),
            "yarn.resourcemanager.admin.address": here(),
            "yarn.resourcemanager.webapp.address": http("resourcemanager"),
            # So long a NodeManager that is ended after its ResourceManager stays, and so long it may start before it.
            "yarn.resourcemanager.connect.max-wait.ms": 60000,
            "yarn.resourcemanager.connect.retry-interval.ms": 1000,
            "yarn.nodemanager.address": here(),
            "yarn.nodemanager.localizer.address": here(),
            "yarn.nodemanager.webapp.address": http("nodemanager"),
            "yarn.nodemanager.aux-services": "mapreduce_shuffle",
            "yarn.nodemanager.container-executor.class": "org.apache.hadoop.yarn.server.nodemanager.DefaultContainerExecutor",
            "yarn.nodemanager.local-dirs": self.run / "local",
            "yarn.nodemanager.log-dirs": self.run / "logs/containers",
            "yarn.nodemanager.resource.memory-mb": 2 * MASTER_MEMORY + self.ranks * TASK_MEMORY,
            "yarn.nodemanager.resource.cpu-vcores": self.ranks + 2,
            # Of a JVM much more is reserved than used.
            "yarn.nodemanager.vmem-check-enabled": "false",
            # A node of a disk that is nearly full takes no containers, and its jobs wait for ever.
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            "yarn.scheduler.minimum-allocation-mb": MASTER_MEMORY,
            "yarn.application.classpath": f"{self.conf},{FOLDER}/jars/*",
        })
        self.write("capacity-scheduler", {
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": 100,
            "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
        })
        self.write("mapred-site", {
            "mapreduce.framework.name": "yarn",
            "mapreduce.application.classpath": f"{FOLDER}/jars/*",
            "mapreduce.job.ubertask.enable": "false",
            "mapreduce.job.reduce.slowstart.completedmaps": "1.0",
            "mapreduce.map.memory.mb": TASK_MEMORY,
            "mapreduce.reduce.memory.mb": TASK_MEMORY,
            "yarn.app.mapreduce.am.resource.mb": MASTER_MEMORY,
            "yarn.app.mapreduce.am.command-opts": f"-Xmx{MASTER_MEMORY * 4 // 5}m {OPENED}",
            "mapreduce.shuffle.port": next(ports),
            "mapreduce.jobhistory.address": here(),
            "mapreduce.jobhistory.admin.address": here(),
            "mapreduce.jobhistory.webapp.address": http("historyserver"),
        })
        (self.conf / "log4j.properties").write_text(LOGGING)

    def write(self, name, properties):
        rows = (f"<property><name>{key}</name><value>{escape(str(value))}</value></property>" for key, value in properties.items())
        (self.conf / f"{name}.xml").write_text("\n".join(["<configuration>", *rows, "</configuration>", ""]))

    def bring(self, source):
        """Has the files of a local folder, and no others, as /in."""
        if self.brought != source:
            self.remove("/in")
            self.brought = None
            self.files("-put", source, "/in")
            self.brought = source

    def remove(self, path):
        self.page("namenode", f"/webhdfs/v1{path}?op=DELETE&recursive=true&user.name={getpass.getuser()}", "DELETE")

    def files(self, *words):
        command = self.java("-Xmx256m") + ["org.apache.hadoop.fs.FsShell", *words]
        subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, check=True)

    def settle(self):
        """Waits until nothing runs any more: application masters end some seconds after their jobs. Returns seconds of processors since the start,
        of the daemons and of all containers."""
        nodemanager = self.processes["nodemanager"]
        while nodemanager.poll() is None and descendants(nodemanager.pid):
            time.sleep(0.1)
        return sum(seconds_of_processors(process.pid) for process in self.processes.values())

    def stop(self):
        """Ends the daemons and the containers, and removes their files."""
        containers = []
        if nodemanager := self.processes.get("nodemanager"):
            containers = descendants(nodemanager.pid)
        # Consumers before those whom they ask.
        for name in ("nodemanager", "historyserver", "resourcemanager", "datanode", "namenode"):
            process = self.processes.pop(name, None)
            if process is None:
                continue
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid, begun in containers:
            if begun_at(pid) == begun:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if self.lock:
            shutil.rmtree(self.run, ignore_errors=True)
            self.lock.close()
            self.lock = None

    def last_words(self, name):
        return (self.run / "logs" / name).read_text(errors="replace").strip()[-600:]


def install_package(program, package):
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if shutil.which("apt-get") and (not as_root or shutil.which("sudo")):
        words = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if shutil.which(program) is None:
        raise Unavailable(f"{program} is not installed and could not be (package {package})")


def end_with_parent():
    """In a new process: it gets SIGTERM when the process that made it ends."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def free_ports(count):
    """Ports of the loopback that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def stat(pid):
    """The fields of /proc/PID/stat after the name, or None if there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None


def begun_at(pid):
    fields = stat(pid)
    return fields and fields[19]


def seconds_of_processors(pid):
    """Of a process and of its children that it has waited for."""
    fields = stat(pid)
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def descendants(pid):
    """Process ids of what a process started, and of what these did, each with when it began."""
    found = []
    for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            words = children.read_text().split()
        except OSError:
            continue
        for child in map(int, words):
            found += [(child, begun_at(child)), *descendants(child)]
    return found
