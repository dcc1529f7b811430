package s3

import (
	"encoding/base64"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/s3/s3test"
	"github.com/drover-dev/drover/e2e/distro/internal/snapshot"
)

var origin = Origin{Cluster: "c-uid", Node: "n1", TokenHash: "abc123"}

// folder is a folder of snapshots with the named files.
func folder(t *testing.T, names ...string) snapshot.Folder {
	t.Helper()
	f := snapshot.Folder{Path: filepath.Join(t.TempDir(), "snapshots"), Own: true}
	for _, name := range names {
		for _, file := range []string{filepath.Join(f.Path, name), f.MetadataFile(name)} {
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(`{"of":"`+name+`"}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return f
}

func open(t *testing.T, c config.S3) *Bucket {
	t.Helper()
	b, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// upload copies all snapshots of a folder, the oldest first.
func upload(t *testing.T, b *Bucket, from snapshot.Folder) []snapshot.File {
	t.Helper()
	files, err := from.List()
	if err != nil {
		t.Fatal(err)
	}
	var out []snapshot.File
	for i := len(files) - 1; i >= 0; i-- {
		copied, err := b.Upload(t.Context(), files[i], origin)
		if err == nil {
			err = b.UploadMetadata(t.Context(), from, files[i].Name, origin)
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, copied)
	}
	return out
}

func names(t *testing.T, b *Bucket) []string {
	t.Helper()
	files, err := b.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		out = append(out, f.Name)
	}
	return out
}

func TestCopies(t *testing.T) {
	t.Parallel()
	c := s3test.Start(t)
	c.Folder = "prod/etcd"
	b := open(t, c)
	from := folder(t, "etcd-snapshot-n1-100", "etcd-snapshot-n1-200.zip", "on-demand-n1-150")
	uploaded := upload(t, b, from)
	listed, err := b.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, b); !cmp.Equal(got, []string{"etcd-snapshot-n1-200.zip", "on-demand-n1-150", "etcd-snapshot-n1-100"}) {
		t.Errorf("%v", got)
	}
	want := snapshot.File{Name: "etcd-snapshot-n1-100", Created: time.Unix(100, 0), Size: 29, Node: "n1", TokenHash: "abc123",
		Location: "s3://snapshots/prod/etcd/etcd-snapshot-n1-100", Metadata: map[string]string{"of": "etcd-snapshot-n1-100"},
		S3: &snapshot.ObjectS3{Endpoint: c.Endpoint, EndpointCA: c.EndpointCA, Bucket: "snapshots", Region: "us-east-1", Prefix: "prod/etcd"}}
	if diff := cmp.Diff(want, listed[2]); diff != "" {
		t.Errorf("listed: %s", diff)
	}
	if diff := cmp.Diff(want, uploaded[0]); diff != "" {
		t.Errorf("uploaded: %s", diff)
	}

	into := folder(t)
	file, err := b.Download(t.Context(), "etcd-snapshot-n1-100", into)
	if err != nil || file != filepath.Join(into.Path, "etcd-snapshot-n1-100") {
		t.Fatalf("%s, %v", file, err)
	}
	if back, err := into.List(); err != nil || len(back) != 1 || !cmp.Equal(back[0].Metadata, want.Metadata) {
		t.Errorf("downloaded %v, %v", back, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for _, name := range []string{"none", "../etcd-snapshot-n1-100", ""} {
		if file, err := b.Download(t.Context(), name, into); err == nil {
			t.Errorf("%q was downloaded to %s", name, file)
		}
	}

	// Another folder of the same bucket, whose name begins alike, is nobody's business here.
	c.Folder = "prod/etcd2"
	other := open(t, c)
	upload(t, other, folder(t, "etcd-snapshot-n2-300"))
	if got := names(t, b); len(got) != 3 {
		t.Errorf("%v", got)
	}
	for name, want := range map[string]bool{"on-demand-n1-150": true, "none": false} {
		if was, err := b.Delete(t.Context(), name); was != want || err != nil {
			t.Errorf("deleting %s: %v, %v", name, was, err)
		}
	}
	if left, err := b.objects(t.Context(), b.metadataKey(""), ""); err != nil || len(left) != 2 {
		t.Errorf("metadata after one was deleted: %v, %v", left, err)
	}
}

func TestPrune(t *testing.T) {
	t.Parallel()
	c := s3test.Start(t, "--plain")
	for _, at := range []string{"", "prod"} {
		c.Folder, c.Retention = at, 2
		b := open(t, c)
		upload(t, b, folder(t, "etcd-snapshot-n1-100", "etcd-snapshot-n2-101", "etcd-snapshot-n1-200", "etcd-snapshot-n3-201", "on-demand-n1-1"))
		gone, err := b.Prune(t.Context(), "etcd-snapshot")
		if diff := cmp.Diff([]string{"etcd-snapshot-n2-101", "etcd-snapshot-n1-100"}, gone); diff != "" || err != nil {
			t.Errorf("%v %s", err, diff)
		}
		if got := names(t, b); !cmp.Equal(got, []string{"etcd-snapshot-n3-201", "etcd-snapshot-n1-200", "on-demand-n1-1"}) {
			t.Errorf("%v", got)
		}
		b.Retention = 0
		if gone, err := b.Prune(t.Context(), "etcd-snapshot"); err != nil || gone != nil {
			t.Errorf("keeping all deleted %v, %v", gone, err)
		}
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	good, other := s3test.Start(t), s3test.Start(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	raw, err := os.ReadFile(good.EndpointCA)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		change func(*config.S3)
		want   string // empty for a bucket that opens
	}{
		{"as it is", func(*config.S3) {}, ""},
		{"bucket in the path", func(c *config.S3) { c.BucketLookup = "path" }, ""},
		{"certificate not verified", func(c *config.S3) { c.EndpointCA, c.SkipSSLVerify = other.EndpointCA, true }, ""},
		{"authority in base64", func(c *config.S3) { c.EndpointCA = base64.StdEncoding.EncodeToString(raw) }, ""},
		{"two authorities", func(c *config.S3) { c.EndpointCA = other.EndpointCA + " " + c.EndpointCA }, ""},
		{"without a proxy", func(c *config.S3) { c.Proxy = "none" }, ""},
		{"another authority", func(c *config.S3) { c.EndpointCA = other.EndpointCA }, "certificate signed by unknown authority"},
		{"the machine's authorities", func(c *config.S3) { c.EndpointCA = "" }, "certificate signed by unknown authority"},
		{"authority missing", func(c *config.S3) { c.EndpointCA = "/none" }, "etcd-s3-endpoint-ca: open /none"},
		{"no authority", func(c *config.S3) { c.EndpointCA = "/etc/hostname" }, "etcd-s3-endpoint-ca: no certificates"},
		{"another secret key", func(c *config.S3) { c.SecretKey = other.SecretKey }, "failed to test for existence of bucket snapshots"},
		{"another access key", func(c *config.S3) { c.AccessKey = other.AccessKey }, "bucket snapshots"},
		{"no key", func(c *config.S3) { c.AccessKey, c.SecretKey = "", "" }, "failed to test for existence of bucket snapshots"},
		{"bucket missing", func(c *config.S3) { c.Bucket = "none" }, "bucket none does not exist"},
		{"bucket not named", func(c *config.S3) { c.Bucket = "" }, "s3 bucket name was not set"},
		{"endpoint is a URL", func(c *config.S3) { c.Endpoint = "https://" + c.Endpoint }, "Endpoint"},
		{"nobody listens", func(c *config.S3) { c.Endpoint = closed.Addr().String() }, "connection refused"},
		{"plain HTTP", func(c *config.S3) { c.Insecure = true }, "failed to test for existence of bucket snapshots"},
		{"no time", func(c *config.S3) { c.Timeout = metav1.Duration{Duration: time.Nanosecond} }, "context deadline exceeded"},
		{"proxy is no URL", func(c *config.S3) { c.Proxy = "proxy" }, "etcd-s3-proxy"},
	} {
		c := good
		tc.change(&c)
		_, err := Open(t.Context(), c)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if err != nil && (strings.Contains(err.Error(), good.SecretKey) || strings.Contains(err.Error(), other.SecretKey)) {
			t.Errorf("%s: the key is in the error: %v", tc.name, err)
		}
	}
}

func TestUploadFails(t *testing.T) {
	t.Parallel()
	b := open(t, s3test.Start(t))
	from := folder(t, "on-demand-n1-100")
	files, _ := from.List()
	b.Bucket = "gone"
	f, err := b.Upload(t.Context(), files[0], origin)
	if err == nil || !strings.Contains(f.Fault, "bucket does not exist") || f.Location != "s3://gone/on-demand-n1-100" || f.Size != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	f = Failed(files[0], b.S3, errors.New("no"))
	if f.Fault != "no" || f.S3.Bucket != "gone" || f.Location != "" || f.Path != "" || f.Name != "on-demand-n1-100" {
		t.Errorf("%+v", f)
	}
}
