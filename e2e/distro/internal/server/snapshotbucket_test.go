package server

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/s3"
	"github.com/drover-dev/drover/e2e/distro/internal/s3/s3test"
	"github.com/drover-dev/drover/e2e/distro/internal/snapshot"
)

// call has the server carry out an operation, as a command does, and returns the status and the answer.
func (s *server) call(t *testing.T, c snapshot.Call, into any) (int, string) {
	t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.answerSnapshot(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, snapshot.Path, bytes.NewReader(raw)))
	if w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Fatal(err)
		}
	}
	return w.Code, w.Body.String()
}

func (s *server) mustCall(t *testing.T, c snapshot.Call, into any) {
	t.Helper()
	if code, body := s.call(t, c, into); code != http.StatusOK {
		t.Fatalf("%s: %d %s", c.Operation, code, body)
	}
}

// flags are those of a server that uses a bucket.
func flags(b config.S3) []string {
	return []string{"--etcd-s3", "--etcd-s3-endpoint=" + b.Endpoint, "--etcd-s3-endpoint-ca=" + b.EndpointCA, "--etcd-s3-bucket=" + b.Bucket,
		"--etcd-s3-access-key=" + b.AccessKey, "--etcd-s3-secret-key=" + b.SecretKey, "--etcd-s3-folder=prod", "--etcd-s3-retention=1"}
}

func TestBucket(t *testing.T) {
	os.Setenv(s3test.Variable, s3test.Program(t)) // it may have to be downloaded, which the test's own network cannot
	if !inNetwork(t) {
		return
	}
	bucket := s3test.Start(t)
	dir := t.TempDir()
	conf := load(t, dir, append(flags(bucket), "--token=secret", "--etcd-snapshot-retention=3")...)
	conf.S3 = asServer(t, dir, flags(bucket))
	var logged bytes.Buffer
	s := bringUp(t, conf)
	s.log = slog.New(slog.NewTextHandler(&logged, nil))
	s.mustPut(t, "/registry/x", "old")
	settings := *conf.S3
	settings.Retention = 0

	var saved snapshot.Result
	s.mustCall(t, snapshot.Call{Operation: snapshot.OperationSave, Name: []string{"on-demand"}, S3: &settings}, &saved)
	if len(saved.Created) != 2 || saved.Created[0] != saved.Created[1] || len(saved.Deleted) > 0 {
		t.Fatalf("%+v", saved)
	}
	name := saved.Created[0]
	places := func() (out []string) {
		var list snapshot.List
		s.mustCall(t, snapshot.Call{Operation: snapshot.OperationList, S3: &settings}, &list)
		for _, o := range list.Items {
			out = append(out, o.Spec.NodeName+" "+o.Spec.Location)
		}
		slices.Sort(out)
		return out
	}
	file := filepath.Join(dir, "server", "db", "snapshots", name)
	if got := places(); !slices.Equal(got, []string{"n1 file://" + file, "n1 s3://snapshots/prod/" + name}) {
		t.Errorf("%v", got)
	}
	if took := s.origin(t.Context()); took.Node != "n1" || took.TokenHash != s.tokenHash() {
		t.Errorf("%+v", took)
	}

	// Whoever asks for a bucket that refuses gets no snapshot; the schedule takes one, and tells of the fault.
	wrong := settings
	wrong.SecretKey = "not the key"
	code, body := s.call(t, snapshot.Call{Operation: snapshot.OperationSave, Name: []string{"refused"}, S3: &wrong}, nil)
	if code != http.StatusBadRequest || !strings.Contains(body, "failed to initialize S3 client") {
		t.Errorf("%d %s", code, body)
	}
	set := s.scheduled()
	set.s3 = &wrong
	taken, err := s.saveSnapshot(t.Context(), set)
	if err != nil || len(taken.Created) != 1 {
		t.Errorf("%+v, %v", taken, err)
	}
	if len(s.faults) != 1 || s.faults[0].S3 == nil || s.faults[0].Name != taken.Created[0] ||
		!strings.Contains(s.faults[0].Fault, "failed to init") {
		t.Errorf("%+v", s.faults)
	}

	// The schedule's retention in the bucket is one, of all nodes.
	opened, err := s.bucket(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := opened.Upload(t.Context(), snapshot.File{Name: "etcd-snapshot-n0-100", Path: file}, s3.Origin{Node: "n0"}); err != nil {
		t.Fatal(err)
	}
	if taken, err = s.saveSnapshot(t.Context(), s.scheduled()); err != nil || !slices.Contains(taken.Deleted, "etcd-snapshot-n0-100") {
		t.Errorf("%+v, %v", taken, err)
	}
	want := []string{"n1 s3://snapshots/prod/" + taken.Created[0], "n1 s3://snapshots/prod/" + name}
	if got := places()[len(places())-2:]; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	var gone snapshot.Result
	settings.Retention = 1
	s.mustCall(t, snapshot.Call{Operation: snapshot.OperationPrune, Name: []string{"etcd-snapshot"}, S3: &settings}, &gone)
	s.mustCall(t, snapshot.Call{Operation: snapshot.OperationDelete, Name: taken.Created[:1], S3: &settings}, &gone)
	if len(gone.Deleted) != 2 || slices.Contains(places(), want[0]) {
		t.Errorf("%+v, %v", gone, places())
	}

	// Only the bucket has the snapshot to restore.
	s.mustCall(t, snapshot.Call{Operation: snapshot.OperationDelete, Name: []string{name}}, &gone)
	if _, err := os.Stat(file); err == nil {
		t.Errorf("%s is still there", file)
	}
	s.mustPut(t, "/registry/x", "new")
	s.set.Stop()
	reset := func(name string, b config.S3) error {
		args := append(flags(b), "--cluster-reset", "--cluster-reset-restore-path="+name)
		return Reset(t.Context(), discard, load(t, dir, args...))
	}
	if err := reset("none", bucket); err == nil || !strings.Contains(err.Error(), "downloading s3://snapshots/prod/none") {
		t.Errorf("a snapshot that is not there: %v", err)
	}
	wrong.EndpointCA = bucket.EndpointCA
	if err := reset(name, wrong); err == nil || !strings.Contains(err.Error(), "failed to initialize S3 client") {
		t.Errorf("another key: %v", err)
	}
	if err := reset(name, bucket); err != nil {
		t.Fatal(err)
	}
	s = bringUp(t, load(t, dir))
	if got := s.mustGet(t, "/registry/x"); got != "old" {
		t.Errorf("restored %q", got)
	}
	for _, secret := range []string{bucket.SecretKey, bucket.AccessKey, wrong.SecretKey} {
		if strings.Contains(logged.String(), secret) {
			t.Errorf("a key was logged: %s", logged.String())
		}
	}
}

// asServer is the bucket of a server with these flags that takes scheduled snapshots, which those of tests do not.
func asServer(t *testing.T, dir string, flags []string) *config.S3 {
	t.Helper()
	c, err := config.Load(config.Server, filepath.Join(dir, "none.yaml"), flags, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	return c.S3
}
