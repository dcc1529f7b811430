package cli

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/snapshot"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// serve runs a supervisor that answers paths, and returns its URL and a data folder with its token.
func serve(t *testing.T, paths map[string]http.HandlerFunc) (url, dataDir string) {
	t.Helper()
	s := &supervisor.Server{ServerToken: "secret", Admin: paths}
	h := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.Handler().ServeHTTP(w, r) }))
	t.Cleanup(h.Close)
	s.CACerts = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	dataDir = t.TempDir()
	write(t, filepath.Join(dataDir, "server", "token"), supervisor.FormatToken(s.CACerts, "server", "secret")+"\n")
	return h.URL, dataDir
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEtcdSnapshotAsks(t *testing.T) {
	t.Setenv("K3S_TOKEN", "")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "from the environment")
	conf := filepath.Join(t.TempDir(), "config.yaml")
	write(t, conf, "etcd-s3-bucket: b\netcd-s3-region: r\n")
	t.Setenv("K3S_CONFIG_FILE", conf)
	bucket := func(change func(*config.S3)) *config.S3 {
		s := &config.S3{Endpoint: "s3.amazonaws.com", Bucket: "b", Region: "r", SecretKey: "from the environment", Retention: 5,
			Timeout: metav1.Duration{Duration: 5 * time.Minute}}
		change(s)
		return s
	}
	var got snapshot.Call
	url, dataDir := serve(t, map[string]http.HandlerFunc{"POST " + snapshot.Path: func(w http.ResponseWriter, r *http.Request) {
		got = snapshot.Call{}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		if got.Dir != nil && *got.Dir == "/full" {
			http.Error(w, "no space left on device", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte("{}"))
	}})
	yes, zero, three, dir := true, 0, 3, "/x"
	for _, tc := range []struct {
		args string
		want snapshot.Call
	}{
		{"save", snapshot.Call{Operation: "save", Name: []string{"on-demand"}, Retention: &zero}},
		{"save --name before --dir /x --etcd-snapshot-compress",
			snapshot.Call{Operation: "save", Name: []string{"before"}, Retention: &zero, Dir: &dir, Compress: &yes}},
		{"--etcd-snapshot-dir=/x save --etcd-s3=false",
			snapshot.Call{Operation: "save", Name: []string{"on-demand"}, Retention: &zero, Dir: &dir}},
		{"save --s3 --s3-access-key=k --etcd-s3-timeout=30s", snapshot.Call{Operation: "save", Name: []string{"on-demand"}, Retention: &zero,
			S3: bucket(func(s *config.S3) { s.AccessKey, s.Retention, s.Timeout.Duration = "k", 0, 30*time.Second })}},
		{"save --etcd-s3 --etcd-s3-retention=2", snapshot.Call{Operation: "save", Name: []string{"on-demand"}, Retention: &zero,
			S3: bucket(func(s *config.S3) { s.Retention = 2 })}},
		{"prune --etcd-s3 --snapshot-retention 3", snapshot.Call{Operation: "prune", Name: []string{"on-demand"}, Retention: &three,
			S3: bucket(func(s *config.S3) { s.Retention = 3 })}},
		{"list -o json", snapshot.Call{Operation: "list"}},
		{"list --etcd-s3 --s3-bucket x", snapshot.Call{Operation: "list", S3: bucket(func(s *config.S3) { s.Bucket = "x" })}},
		{"ls", snapshot.Call{Operation: "list"}},
		{"delete a b", snapshot.Call{Operation: "delete", Name: []string{"a", "b"}}},
		{"prune", snapshot.Call{Operation: "prune", Name: []string{"on-demand"}}},
		{"prune --name etcd-snapshot --snapshot-retention 3",
			snapshot.Call{Operation: "prune", Name: []string{"etcd-snapshot"}, Retention: &three}},
	} {
		got = snapshot.Call{}
		args := append(strings.Fields(tc.args), "--data-dir", dataDir, "--etcd-server", url)
		if code := Run(t.Context(), "etcd-snapshot", args); code != 0 {
			t.Errorf("%s: exit code %d", tc.args, code)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.args, diff)
		}
	}
	for _, args := range []string{"delete", "save stray", "save --etcd-s3-timeout=5", "ls -o xml", "save --etcd-token wrong",
		"save --dir /full",
		"save --no-such-flag"} {
		if code := Run(t.Context(), "etcd-snapshot", append(strings.Fields(args), "-d", dataDir, "-s", url)); code != 1 {
			t.Errorf("%s: exit code %d", args, code)
		}
	}
}

func TestPrintSnapshots(t *testing.T) {
	list := snapshot.List{Items: []snapshot.Object{
		snapshot.Describe(snapshot.File{Name: "on-demand-n1-7", Path: "/s/on-demand-n1-7", Size: 7000, Created: time.Unix(7, 0)}, "n1")}}
	var out bytes.Buffer
	if err := printSnapshots(&out, list, ""); err != nil {
		t.Fatal(err)
	}
	want := "Name           Location                 Size Created\n" +
		"on-demand-n1-7 file:///s/on-demand-n1-7 7000 1970-01-01T00:00:07Z\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	for _, format := range []string{"json", "yaml"} {
		out.Reset()
		if err := printSnapshots(&out, list, format); err != nil || !strings.Contains(out.String(), "snapshotName") {
			t.Errorf("%s: %v %s", format, err, out.String())
		}
	}
	out.Reset()
	_ = printSnapshots(&out, list, "json")
	var back snapshot.List
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.Items[0].Status.Size.Value() != 7000 || !back.Items[0].Status.CreationTime.Equal(list.Items[0].Status.CreationTime) {
		t.Errorf("%s", out.String())
	}
}
