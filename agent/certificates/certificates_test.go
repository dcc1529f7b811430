package certificates

import (
	"bytes"
	"encoding/pem"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/testenv/trusttest"
	"github.com/drover-dev/drover/plans"
)

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// leaf is a certificate in PEM, with that of its authority, that ends at a time.
func leaf(t *testing.T, end time.Time) []byte {
	t.Helper()
	ca := trusttest.NewCA(t, "ca")
	pair := ca.ServeBetween(t, "127.0.0.1", now.AddDate(-1, 0, 0), end)
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), ca.PEM()...)
}

// node is a machine with a data directory of its own.
type node struct {
	t    *testing.T
	dir  string
	plan plans.Plan
}

func newNode(t *testing.T) node {
	dir := t.TempDir()
	return node{t: t, dir: dir, plan: plans.Plan{Instructions: []plans.Instruction{
		{CommonInstruction: plans.CommonInstruction{Name: "first", Env: []string{"K3S_DATA_DIR=not/absolute", "RKE2_DATA_DIR=" + dir + "/none"}}},
		{CommonInstruction: plans.CommonInstruction{Name: "install", Env: []string{"K3S_DATA_DIR=" + dir}}},
	}}}
}

func (n node) path(name string) string { return filepath.Join(n.dir, name) }

func (n node) do(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n node) write(name string, content []byte) {
	n.t.Helper()
	n.do(os.MkdirAll(filepath.Dir(n.path(name)), 0o700))
	n.do(os.WriteFile(n.path(name), content, 0o600))
}

func (n node) expect(last, want map[string]time.Time) map[string]time.Time {
	n.t.Helper()
	got := Ends(fs.OS{}, n.plan, last)
	if !maps.Equal(got, want) {
		n.t.Errorf("got %v, want %v", got, want)
	}
	return got
}

func TestEnds(t *testing.T) {
	n := newNode(t)
	n.expect(nil, map[string]time.Time{})
	kubelet, etcd := n.path("agent/client-kubelet.crt"), n.path("server/tls/etcd/server-client.crt")
	first, second := now.AddDate(1, 0, 0), now.AddDate(2, 0, 0)
	n.write("agent/client-kubelet.crt", leaf(t, first))
	n.write("agent/client-kubelet.key", []byte("secret"))
	n.write("agent/another.crt", leaf(t, first))
	last := n.expect(nil, map[string]time.Time{kubelet: first})
	n.write("server/tls/etcd/server-client.crt", leaf(t, first))
	last = n.expect(last, map[string]time.Time{kubelet: first, etcd: first})
	n.write("agent/client-kubelet.crt", leaf(t, second))
	last = n.expect(last, map[string]time.Time{kubelet: second, etcd: first})
	n.do(os.RemoveAll(n.path("server")))
	n.write("server", nil) // no directory
	n.expect(last, map[string]time.Time{kubelet: second})
}

// What is no certificate, and cannot be read at once, is left out, or keeps the end that was known.
func TestEndsOfOtherFiles(t *testing.T) {
	const name = "agent/serving-kubelet.crt"
	valid := leaf(t, now.AddDate(1, 0, 0))
	for title, prepare := range map[string]func(n node){
		"empty":   func(n node) { n.write(name, nil) },
		"garbage": func(n node) { n.write(name, bytes.Repeat([]byte{0, 0xff, '\n'}, 10000)) },
		"half":    func(n node) { n.write(name, valid[:len(valid)/4]) },
		"invalid": func(n node) {
			n.write(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("no certificate")}))
		},
		"a key": func(n node) {
			n.write(name, append(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte("key")}), valid...))
		},
		"an authority": func(n node) { n.write(name, trusttest.NewCA(n.t, "ca").PEM()) },
		"huge": func(n node) {
			n.write(name, valid)
			n.do(os.Truncate(n.path(name), 1<<40))
		},
		"a link": func(n node) {
			n.write("elsewhere.crt", valid)
			n.write("agent/other.crt", nil)
			n.do(os.Symlink(n.path("elsewhere.crt"), n.path(name)))
		},
		"a link to itself": func(n node) {
			n.write("agent/other.crt", nil)
			n.do(os.Symlink(n.path(name), n.path(name)))
		},
		"a directory":  func(n node) { n.do(os.MkdirAll(n.path(name), 0o700)) },
		"a named pipe": func(n node) { n.write("agent/other.crt", nil); n.do(syscall.Mkfifo(n.path(name), 0o600)) },
	} {
		t.Run(title, func(t *testing.T) {
			n := newNode(t)
			prepare(n)
			n.expect(nil, map[string]time.Time{})
			known := map[string]time.Time{n.path(name): now}
			n.expect(known, known)
		})
	}
}

// broken is a disk that cannot be read, and counts what is asked for.
type broken struct {
	fs.OS
	paths []string
}

func (b *broken) Lstat(path string) (fs.Info, error) {
	b.paths = append(b.paths, path)
	return fs.Info{}, errors.New("input/output error")
}

func TestEndsOnABrokenDisk(t *testing.T) {
	n, disk := newNode(t), &broken{}
	known := map[string]time.Time{n.path("agent/client-kubelet.crt"): now}
	if got := Ends(disk, n.plan, known); !maps.Equal(got, known) {
		t.Errorf("got %v", got)
	}
	if slices.ContainsFunc(disk.paths, func(path string) bool { return !strings.HasSuffix(path, ".crt") }) || len(disk.paths) > 64 {
		t.Errorf("read %v", disk.paths)
	}
	disk.paths = nil
	Ends(disk, plans.Plan{}, nil)
	for _, want := range []string{"/var/lib/rancher/k3s/agent/client-kubelet.crt", "/var/lib/rancher/rke2/server/tls/etcd/client.crt"} {
		if !slices.Contains(disk.paths, want) {
			t.Errorf("%s is not read", want)
		}
	}
}
