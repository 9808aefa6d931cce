"""Two hosts, which are network namespaces joined by a link of their own."""

import os
import shutil
import subprocess


def missing() -> str:
    """Why there are no namespaces; "" if there are."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root and iproute2"
    tried = subprocess.run(["ip", "netns", "add", "dtk-try"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", "dtk-try"], capture_output=True)
    return "" if tried.returncode == 0 else "no network namespace can be made: " + tried.stderr.strip()


class TwoHosts:
    """Each has a network interface "v0"; that of the first has the address ADDRESS."""

    ADDRESS = "10.77.0.1"

    def __init__(self):
        self.names = [f"dtk-{os.getpid()}-{letter}" for letter in "ab"]
        for name in self.names:
            self.ip("netns", "add", name)
        first, second = self.names
        self.ip("link", "add", "v0", "netns", first, "type", "veth", "peer", "name", "v0", "netns", second)
        for number, name in enumerate(self.names):
            self.ip("-n", name, "addr", "add", f"10.77.0.{number + 1}/24", "dev", "v0")
            for device in ("lo", "v0"):
                self.ip("-n", name, "link", "set", device, "up")

    def close(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)

    @staticmethod
    def ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True)

    def on(self, host: int) -> list[str]:
        """What a command for a host begins with."""
        return ["ip", "netns", "exec", self.names[host]]

    def cut(self) -> None:
        self.ip("-n", self.names[0], "link", "set", "v0", "down")

    def mend(self) -> None:
        self.ip("-n", self.names[0], "link", "set", "v0", "up")

    def limit(self, megabits: int) -> None:
        """What the link carries in a second, each way; 0: as much as it can."""
        for host in range(2):
            command = [*self.on(host), "tc", "qdisc"]
            subprocess.run([*command, "del", "dev", "v0", "root"], capture_output=True, check=False)
            if megabits > 0:
                shape = ["tbf", "rate", f"{megabits}mbit", "burst", "256kb", "latency", "100ms"]
                subprocess.run([*command, "add", "dev", "v0", "root", *shape], check=True)

    def sent(self) -> int:
        """Bytes that the first host has sent to the second."""
        command = [*self.on(0), "cat", "/sys/class/net/v0/statistics/tx_bytes"]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
