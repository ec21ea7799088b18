"""Go's own `encoding/json`, asked about the same bytes: the oracle of R4.2, where `go` is installed."""

import atexit
import json
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import IO, Any

__all__ = ["GO_READER", "GoReader", "build"]

GO_READER = "FUZZ_GO_READER"  # the variable that names the program

_SOURCE = """
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
)

type toleration struct {
	Key      string `json:"key"`
	Operator string `json:"operator"`
	Value    string `json:"value"`
	Effect   string `json:"effect"`
}

type changes struct {
	NodeSelector      map[string]string `json:"node_selector"`
	Tolerations       []toleration      `json:"tolerations"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	PriorityClassName string            `json:"priority_class_name"`
	ServiceAccount    string            `json:"service_account"`
}

type response struct {
	UID      string   `json:"uid"`
	Decision string   `json:"decision"`
	Reason   string   `json:"reason"`
	Changes  *changes `json:"changes"`
}

type review struct {
	APIVersion string    `json:"api_version"`
	Kind       string    `json:"kind"`
	Response   *response `json:"response"`
}

func main() {
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	for {
		var size uint32
		if binary.Read(in, binary.BigEndian, &size) != nil {
			return
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		answer := []byte("null")
		source := bytes.NewReader(body)
		decoder := json.NewDecoder(source)
		decoder.DisallowUnknownFields()
		var found review
		if decoder.Decode(&found) == nil {
			rest, _ := io.ReadAll(io.MultiReader(decoder.Buffered(), source))
			if len(bytes.Trim(rest, " \\t\\r\\n")) == 0 {
				answer, _ = json.Marshal(found)
			}
		}
		binary.Write(out, binary.BigEndian, uint32(len(answer)))
		out.Write(answer)
		out.Flush()
	}
}
"""


def build(folder: Path) -> Path | None:
    """Build the program in `folder` and return its path; None where there is no Go."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        return None
    (folder / "main.go").write_text(_SOURCE)
    environ = os.environ | {"GOFLAGS": "", "GO111MODULE": "off"}
    subprocess.run([go, "build", "-o", "reader", "main.go"], cwd=folder, check=True, env=environ)
    return folder / "reader"


class GoReader:
    """A Go program that reads answers, kept running."""

    def __init__(self, binary: Path) -> None:
        self._process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        atexit.register(self.close)

    def read(self, body: bytes) -> dict[str, Any] | None:  # Any: JSON
        """Return what Go decodes; None when it refuses the body."""
        to, back = self._process.stdin, self._process.stdout
        assert to is not None
        assert back is not None
        to.write(struct.pack(">I", len(body)) + body)
        to.flush()
        found: dict[str, Any] | None = json.loads(_exactly(back, struct.unpack(">I", _exactly(back, 4))[0]))
        return found

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    assert len(data) == size, "the Go program has ended"
    return data
