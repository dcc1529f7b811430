package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestParseTaints(t *testing.T) {
	got, err := parseTaints([]string{"a=b:NoSchedule,node-role.kubernetes.io/etcd:NoExecute"})
	want := []corev1.Taint{{Key: "a", Value: "b", Effect: "NoSchedule"}, {Key: "node-role.kubernetes.io/etcd", Effect: "NoExecute"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for _, bad := range []string{"", "a", "a=b", "a=b:Sometimes", ":NoSchedule", "a=b:NoSchedule,a:NoSchedule"} {
		if _, err := parseTaints([]string{bad}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestRegistries(t *testing.T) {
	file := filepath.Join(t.TempDir(), "registries.yaml")
	const text = `{"mirrors": {"docker.io": {"endpoint": ["http://10.88.0.1:5000", "https://reg.example/v2/proxy"]}, "*": {"endpoint": ["reg.example"]}},
		"configs": {"reg.example": {"auth": {"username": "u", "password": "p\"q"}, "tls": {"ca_file": "/ca.crt", "insecure_skip_verify": true}}}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := readRegistries(file)
	if err != nil {
		t.Fatal(err)
	}
	want := `server = "https://registry-1.docker.io/v2"

[host."http://10.88.0.1:5000/v2"]
capabilities = ["pull", "resolve"]

[host."https://reg.example/v2/proxy"]
capabilities = ["pull", "resolve"]
override_path = true
ca = ["/ca.crt"]
skip_verify = true
`
	if diff := cmp.Diff(want, r.hosts("docker.io")); diff != "" {
		t.Error(diff)
	}
	if got := r.hosts("*"); strings.Contains(got, "server =") || !strings.Contains(got, `[host."https://reg.example/v2"]`) {
		t.Errorf("got %s", got)
	}
	if got := r.auth(); !strings.Contains(got, `configs."reg.example".auth`) || !strings.Contains(got, `password = "p\"q"`) {
		t.Errorf("got %s", got)
	}
	dir := t.TempDir()
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"docker.io", "_default", "reg.example"} {
		if _, err := os.Stat(filepath.Join(dir, name, "hosts.toml")); err != nil {
			t.Error(err)
		}
	}
	if none, err := readRegistries(filepath.Join(dir, "none.yaml")); err != nil || len(none.Mirrors) != 0 {
		t.Errorf("without a file: %v", err)
	}
}

func FuzzRegistries(f *testing.F) {
	f.Add([]byte(`{"mirrors": {"a": {"endpoint": ["b", "http://c:1/x"]}}}`))
	file := filepath.Join(f.TempDir(), "r.yaml")
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := readRegistries(file)
		if err != nil {
			return
		}
		for name := range r.Mirrors {
			r.hosts(name)
		}
		r.auth()
	})
}

func TestPauseImage(t *testing.T) {
	a := &agent{}
	a.c.PauseImage = "rancher/mirrored-pause:3.6"
	if got := a.pauseImage(); got != "rancher/mirrored-pause:3.6" {
		t.Errorf("got %s", got)
	}
	a.settings.SystemDefaultRegistry = "reg.example:5000"
	if got := a.pauseImage(); got != "reg.example:5000/rancher/mirrored-pause:3.6" {
		t.Errorf("got %s", got)
	}
	a.c.PauseImage = "other.example/pause:1"
	if got := a.pauseImage(); got != "other.example/pause:1" {
		t.Errorf("got %s", got)
	}
}
