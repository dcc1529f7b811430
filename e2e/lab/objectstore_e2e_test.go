//go:build e2e

package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/e2e/hosts"
)

// TestObjectStore uses the S3 server from a machine of a lab, with curl.
func TestObjectStore(t *testing.T) {
	ctx := t.Context()
	if err := hosts.EnsureTools(ctx, nil, func(s string) { t.Log(s) }); err != nil {
		t.Fatal(err)
	}
	l, err := Open(Options{Name: "objectstore-test", Subnet: -1})
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := l.Lock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	down := func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	}
	down()
	t.Cleanup(down)
	if err := l.Up(ctx); err != nil {
		t.Fatal(err)
	}
	host, err := l.AddHost(ctx, "node1")
	if err != nil {
		t.Fatal(err)
	}
	store, err := l.StartObjectStore(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(store.Dir, "put-here"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	nothing := sha256.Sum256(nil) // of the request's body; curl does not send it unless it is told to
	// curl prints the status of the answer behind it, 000 if there was none.
	curl := func(ca, user, path string) string {
		t.Helper()
		script := "cat >/tmp/ca.crt <<'E'\n" + ca + "\nE\n" +
			"curl -s -w ' %{http_code}' --cacert /tmp/ca.crt --aws-sigv4 aws:amz:" + store.Region + ":s3 --user '" + user +
			"' -H x-amz-content-sha256:" + hex.EncodeToString(nothing[:]) + " https://" + store.Endpoint + path + "\n"
		result, err := host.Script(ctx, script, nil)
		if err != nil {
			t.Fatal(err)
		}
		return result.Stdout
	}
	user, object := store.AccessKey+":"+store.SecretKey, "/"+store.Bucket+"/put-here"
	if got := curl(store.CA, user, object); got != "content 200" {
		t.Errorf("with the key: %s", got)
	}
	if got := curl(store.CA, store.AccessKey+":wrong", object); !strings.HasSuffix(got, " 403") {
		t.Errorf("with another key: %s", got)
	}
	if got := curl("", user, object); got != " 000" {
		t.Errorf("without the authority: %s", got)
	}
	if err := l.StopObjectStore(); err != nil {
		t.Fatal(err)
	}
	if got := curl(store.CA, user, object); got != " 000" {
		t.Errorf("while it is stopped: %s", got)
	}
	again, err := l.StartObjectStore(ctx)
	if err != nil || again != store {
		t.Fatalf("another start changed what clients need, or failed: %v", err)
	}
	if got := curl(store.CA, user, object); got != "content 200" {
		t.Errorf("after a restart: %s", got)
	}
}
