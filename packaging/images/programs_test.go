package images

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/installer/layout"
)

// source is a program that stands for the real ones where only the image matters.
const source = `package main

import "os"

func main() { os.Stdout.WriteString(os.Args[0] + "\n") }
`

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// compile runs go build in dir for Linux.
func compile(t *testing.T, dir, arch, output, target string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", output, target)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s for %s: %v\n%s", target, arch, err, out)
	}
}

// compiled are the programs that most tests take, by architecture.
var compiled struct {
	sync.Once
	programs map[string][]byte
}

// binaries returns a directory as "make cross" leaves it, with programs that are compiled once.
func binaries(t *testing.T) string {
	t.Helper()
	compiled.Do(func() { compiled.programs = compileAll(t) })
	if compiled.programs == nil {
		t.Fatal("compiling the programs has failed in another test")
	}
	return writeBinaries(t, compiled.programs)
}

// compileAll compiles the source in a new directory, for each architecture.
func compileAll(t *testing.T) map[string][]byte {
	t.Helper()
	code, out := t.TempDir(), t.TempDir()
	write(t, filepath.Join(code, "go.mod"), "module example.com/program\n\ngo 1.26\n")
	write(t, filepath.Join(code, "main.go"), source)
	programs := map[string][]byte{}
	for _, arch := range layout.Architectures {
		compile(t, code, arch, filepath.Join(out, arch), ".")
		content, err := os.ReadFile(filepath.Join(out, arch))
		if err != nil {
			t.Fatal(err)
		}
		programs[arch] = content
	}
	return programs
}

// writeBinaries writes the programs of each architecture, as hub and as agent, into a new directory.
func writeBinaries(t *testing.T, programs map[string][]byte) string {
	t.Helper()
	out := t.TempDir()
	for arch, content := range programs {
		for _, name := range []string{"hub", "system-agent"} {
			path := filepath.Join(out, "linux-"+arch, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o755)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}

// authority returns a certificate in PEM.
func authority(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// hostArchitecture is that of the machine, if images are built for it.
func hostArchitecture(t *testing.T) string {
	t.Helper()
	if !slices.Contains(layout.Architectures, runtime.GOARCH) {
		t.Skipf("no images are built for %s", runtime.GOARCH)
	}
	return runtime.GOARCH
}
