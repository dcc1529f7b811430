package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/etcd/server/v3/etcdmain"

	"github.com/drover-dev/drover/e2e/distro/internal/bootstrap"
	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/snapshot"
)

// TestMain lets this program be the etcd that a server runs.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "internal" && os.Args[2] == "etcd" {
		etcdmain.Main(append([]string{"etcd"}, os.Args[3:]...))
		return
	}
	os.Exit(m.Run())
}

// inNetwork runs the test in a network namespace, since a server's ports are fixed. It returns false in the process that only waits.
func inNetwork(t *testing.T) bool {
	t.Helper()
	const inside = "TEST_IN_NETWORK_NAMESPACE"
	if os.Getenv(inside) != "" {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs the Debian package iproute2")
	}
	t.Parallel()
	c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), inside+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return false
}

var discard = slog.New(slog.NewTextHandler(io.Discard, nil))

// load is the configuration of a server in a folder.
func load(t *testing.T, dir string, args ...string) config.Config {
	t.Helper()
	args = append(args, "--data-dir", dir, "--node-ip=127.0.0.2", "--node-name=n1", "--disable-agent", "--etcd-disable-snapshots",
		"--write-kubeconfig", filepath.Join(dir, "k3s.yaml"))
	c, err := config.Load(config.Server, filepath.Join(dir, "none.yaml"), args, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// bringUp starts a server up to its etcd.
func bringUp(t *testing.T, c config.Config) *server {
	t.Helper()
	s := newServer(discard, c)
	t.Cleanup(s.set.Stop)
	for _, phase := range []func(context.Context) error{s.findAddresses, s.readTokens, s.readBootstrap, s.join, s.makeCertificates,
		s.startEtcd, s.settleBootstrap} {
		if err := phase(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *server) mustPut(t *testing.T, key, value string) {
	t.Helper()
	if _, err := s.etcd.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func (s *server) mustGet(t *testing.T, key string) string {
	t.Helper()
	got, err := s.etcd.Get(t.Context(), key)
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	return string(got.Kvs[0].Value)
}

func mustRead(t *testing.T, parts ...string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestResetAndRestore(t *testing.T) {
	if !inNetwork(t) {
		return
	}
	dir, before := t.TempDir(), ""
	server := filepath.Join(dir, "server")
	remove := func() { // what the hub does before a restore
		for _, name := range []string{"tls", "cred"} {
			if err := os.RemoveAll(filepath.Join(server, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	backups := func() []string { found, _ := filepath.Glob(filepath.Join(server, "db", "etcd-old-*")); return found }
	reset := func(args ...string) error {
		return Reset(t.Context(), discard, load(t, dir, append(args, "--cluster-reset")...))
	}

	s := bringUp(t, load(t, dir, "--token=secret"))
	before = mustRead(t, server, "tls", "server-ca.key")
	s.mustPut(t, "/registry/x", "old")
	set := s.scheduled()
	set.name = "on-demand"
	taken, err := s.saveSnapshot(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	name := taken.Created[0]
	s.mustPut(t, "/registry/x", "new")
	s.set.Stop()
	remove()

	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte(mustRead(t, server, "db", "snapshots", name)[:20000]), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path, token string
		want        error
	}{
		{"db/snapshots/" + name, "wrong", bootstrap.ErrToken}, {broken, "secret", snapshot.ErrCorrupt},
		{"db/snapshots/none", "secret", os.ErrNotExist},
	} {
		if err := reset("--cluster-reset-restore-path="+tc.path, "--token="+tc.token); !errors.Is(err, tc.want) {
			t.Errorf("%s with token %s: %v", tc.path, tc.token, err)
		}
	}
	if found, _ := filepath.Glob(filepath.Join(server, "db", ".etcd-restore*")); len(found)+len(backups()) > 0 {
		t.Errorf("a restore that failed left %v and %v", found, backups())
	}
	if _, err := os.Stat(s.data.Etcd("member")); err != nil {
		t.Error(err)
	}

	if err := reset("--cluster-reset-restore-path=db/snapshots/" + name); err != nil { // the token is in its file
		t.Fatal(err)
	}
	if len(backups()) != 1 {
		t.Errorf("backups: %v", backups())
	}
	if got := mustRead(t, server, "tls", "server-ca.key"); got != before {
		t.Error("the authority is another one")
	}
	if err := reset(); err == nil || !strings.Contains(err.Error(), "already reset") {
		t.Errorf("a second reset: %v", err)
	}

	s = bringUp(t, load(t, dir))
	if got := s.mustGet(t, "/registry/x"); got != "old" {
		t.Errorf("restored %q", got)
	}
	if _, err := os.Stat(s.resetFlag()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the flag after a start: %v", err)
	}
	if _, err := s.etcd.MemberAddAsLearner(t.Context(), []string{"https://127.0.0.3:2380"}); err != nil {
		t.Fatal(err)
	}
	s.mustPut(t, "/registry/x", "newest")
	s.set.Stop()
	if err := reset(); err != nil {
		t.Fatal(err)
	}
	s = bringUp(t, load(t, dir))
	info, err := s.etcdInfo(t.Context())
	if err != nil || len(info.Members) != 1 || s.mustGet(t, "/registry/x") != "newest" {
		t.Errorf("after a reset without a snapshot: %v, %v", info, err)
	}
	s.set.Stop()

	file := filepath.Join(server, "db", "snapshots", name)
	token := mustRead(t, server, "token")
	server, dir = "", t.TempDir()
	if err := reset("--cluster-reset-restore-path=" + file); err == nil || !strings.Contains(err.Error(), "token: ") {
		t.Errorf("a new node without a token: %v", err)
	}
	if err := reset("--cluster-reset-restore-path="+file, "--token="+strings.TrimSpace(token)); err != nil {
		t.Fatal(err)
	}
	s = bringUp(t, load(t, dir))
	if got := s.mustGet(t, "/registry/x"); got != "old" || mustRead(t, dir, "server", "tls", "server-ca.key") != before {
		t.Errorf("a new node has %q, or another authority", got)
	}
}
