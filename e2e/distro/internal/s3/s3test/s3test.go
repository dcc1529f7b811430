// Package s3test runs a real S3 server, e2e/objectstore, for tests.
package s3test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/e2e/distro/internal/config"
)

// Variable names a program that was built before, for a test that has no network to build it in.
const Variable = "DROVER_OBJECTSTORE"

// Bucket is there from the start.
const Bucket = "snapshots"

var build = sync.OnceValues(func() (string, error) {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", err
	}
	// Go keeps the program with its other results, so that only the first test ever waits for it.
	out, err := exec.Command("go", "-C", filepath.Join(strings.TrimSpace(string(module)), "../objectstore"), "tool", "-n",
		"objectstore").Output()
	return strings.TrimSpace(string(out)), err
})

// Program returns the server's program, which it builds unless it is there.
func Program(t testing.TB) string {
	t.Helper()
	if program := os.Getenv(Variable); program != "" {
		return program
	}
	program, err := build()
	if err != nil {
		t.Fatalf("building e2e/objectstore: %v", err)
	}
	return program
}

// Start runs a server on loopback until the test ends and returns its bucket. Further arguments are those of the program.
func Start(t testing.TB, args ...string) config.S3 {
	t.Helper()
	dir := t.TempDir()
	c := exec.Command(Program(t), append([]string{"--dir", dir, "--buckets", Bucket, "--quit-with-stdin"}, args...)...)
	var faults bytes.Buffer
	c.Stderr = &faults
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = c.Wait()
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		_, url, found := strings.Cut(lines.Text(), "Serves "+dir+" at ")
		if !found {
			continue
		}
		_, endpoint, _ := strings.Cut(url, "://")
		s := config.S3{Endpoint: endpoint, Insecure: strings.HasPrefix(url, "http:"), Bucket: Bucket, Region: "us-east-1",
			AccessKey: read(t, dir, "access-key"), SecretKey: read(t, dir, "secret-key"),
			Timeout: metav1.Duration{Duration: time.Minute}}
		if !s.Insecure {
			s.EndpointCA = filepath.Join(dir, "ca.crt")
		}
		return s
	}
	_ = c.Wait()
	t.Fatalf("e2e/objectstore ended: %s", faults.String())
	return config.S3{}
}

func read(t testing.TB, dir, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
