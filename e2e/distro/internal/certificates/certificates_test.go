package certificates

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/e2e/distro/internal/layout"
	"github.com/drover-dev/drover/e2e/distro/internal/pki"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// node makes the certificates of a server that is an agent, too.
func node(t *testing.T) layout.Data {
	t.Helper()
	data := layout.Data(t.TempDir())
	ca, err := pki.EnsureAuthority(data.TLS("client-ca"), "k3s-client-ca", now)
	if err != nil {
		t.Fatal(err)
	}
	for _, stem := range []string{data.TLS("client-admin"), data.TLS("etcd", "client"), data.Agent("client-kubelet")} {
		if err := ca.Ensure(stem, pki.Leaf{CommonName: "system:" + filepath.Base(stem)}, now); err != nil {
			t.Fatal(err)
		}
	}
	if err := ca.Ensure(data.Agent("serving-kubelet"), pki.Leaf{CommonName: "n1", Names: []string{"n1"}}, now); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestCheck(t *testing.T) {
	data := node(t)
	for _, tc := range []struct {
		at     time.Time
		status string
	}{
		{now, OK}, {now.Add(pki.Lifetime - 121*24*time.Hour), OK}, {now.Add(pki.Lifetime - 119*24*time.Hour), Warning},
		{now.Add(pki.Lifetime + time.Second), Expired}, {now.Add(-time.Hour), NotYetValid},
	} {
		got, err := Check(data, []string{"admin"}, tc.at)
		if err != nil || len(got) != 1 || got[0].Status != tc.status || got[0].ResidualTime != now.Add(pki.Lifetime).Sub(tc.at) {
			t.Errorf("%s: %v, %v", tc.at, got, err)
		}
	}
	all, err := Check(data, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Filename+" "+c.Subject+" "+strings.Join(c.Usages, ","))
		if !strings.HasPrefix(c.Issuer, "k3s-client-ca@") {
			t.Errorf("%+v", c)
		}
	}
	want := []string{"client-admin.crt system:client-admin ClientAuth", "client.crt system:client ClientAuth",
		"client-kubelet.crt system:client-kubelet ClientAuth", "serving-kubelet.crt n1 ServerAuth,ClientAuth"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if _, err := Check(data, []string{"certificate-authority"}, now); err == nil {
		t.Error("a service that there is not was taken")
	}
}

func TestRotate(t *testing.T) {
	data := node(t)
	files := func() (out []string) {
		_ = filepath.WalkDir(string(data), func(path string, d os.DirEntry, _ error) error {
			if name, _ := filepath.Rel(string(data), path); !d.IsDir() {
				out = append(out, name)
			}
			return nil
		})
		return out
	}
	before := files()
	if _, err := Rotate(data, []string{"admin", "nonsense"}, now); err == nil {
		t.Error("a service that there is not was taken")
	}
	if diff := cmp.Diff(before, files()); diff != "" {
		t.Errorf("a rotation that was refused: %s", diff)
	}
	admin, err := os.ReadFile(data.TLS("client-admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	backup, err := Rotate(data, []string{"admin", "kubelet"}, now)
	if err != nil || backup != data.Server("tls-1767323045") {
		t.Fatalf("%s, %v", backup, err)
	}
	gone := []string{"agent/client-kubelet.crt", "agent/client-kubelet.key", "agent/serving-kubelet.crt", "agent/serving-kubelet.key",
		"server/tls/client-admin.crt", "server/tls/client-admin.key"}
	for _, name := range before {
		if slices.Contains(files(), name) == slices.Contains(gone, name) {
			t.Errorf("%s is there: %v", name, slices.Contains(files(), name))
		}
	}
	for _, name := range []string{"client-kubelet.crt", "client-kubelet.key", "client-admin.crt", "client-ca.key", "etcd/client.crt"} {
		if !slices.Contains(files(), "server/tls-1767323045/"+name) {
			t.Errorf("%s has no copy", name)
		}
	}
	if kept, err := os.ReadFile(filepath.Join(backup, "client-admin.key")); err != nil || !bytes.Equal(kept, admin) {
		t.Errorf("the copy is another one: %v", err)
	}
}

func TestRotateAgent(t *testing.T) {
	data := layout.Data(t.TempDir())
	ca, err := pki.EnsureAuthority(filepath.Join(t.TempDir(), "ca"), "ca", now)
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Ensure(data.Agent("client-kubelet"), pki.Leaf{CommonName: "n"}, now); err != nil {
		t.Fatal(err)
	}
	backup, err := Rotate(data, nil, now)
	if err != nil || filepath.Dir(backup) != data.Agent() {
		t.Fatalf("%s, %v", backup, err)
	}
	if got, err := Check(data, nil, now); err != nil || len(got) > 0 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(backup, "client-kubelet.key")); err != nil {
		t.Error(err)
	}
}
