package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/drover-dev/drover/installer/layout"
)

// run runs the command.
func run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := newCommand()
	var out, errs bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err = cmd.ExecuteContext(context.Background())
	return out.String(), errs.String(), err
}

// programs is a directory as "make cross" leaves it, in which the test itself is the program, for its own architecture.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(dir, "linux-"+runtime.GOARCH)
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(target, "system-agent"), self, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// license is the argument that the command does not need in the root of the repository.
const license = "--license=../../../LICENSE"

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func keyFile(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, encode("PRIVATE KEY", der), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func bundle(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	if err := os.WriteFile(file, encode("CERTIFICATE", server.Certificate().Raw), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAllOutputs(t *testing.T) {
	if err := layout.CheckArchitecture(runtime.GOARCH); err != nil {
		t.Skip(err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	address, dir := strings.TrimPrefix(server.URL, "http://"), t.TempDir()
	args := []string{"--version=v1.2.3+dirty", license, "--from=" + programs(t), "--arch=" + runtime.GOARCH, "--only=system-agent",
		"--ca-certificates=" + bundle(t), "--oci-layout=" + dir + "/layouts", "--bundle=" + dir + "/images.tar",
		"--tarballs=" + dir + "/tarballs", "--sbom=" + dir + "/sbom",
		"--digests=" + dir + "/digests.txt",
		"--push=" + address + "/mirror", "--sign-key=" + keyFile(t)}
	out, _, err := run(t, args...)
	if err != nil && strings.Contains(err.Error(), "needs a dynamic linker") {
		t.Skip("the test binary is not static; make test builds it so")
	}
	if err != nil {
		t.Fatal(err)
	}
	digest, name := `@sha256:[0-9a-f]{64}\n`, `system-agent-v1\.2\.3-dirty-linux-`+runtime.GOARCH
	want := regexp.MustCompile(`^` + regexp.QuoteMeta(dir) + `/layouts/system-agent:v1\.2\.3-dirty` + digest +
		regexp.QuoteMeta(dir) + `/tarballs/` + name + `\.tar: drover/system-agent:v1\.2\.3-dirty\n` +
		regexp.QuoteMeta(dir) + `/sbom/` + name + `\.spdx\.json\n` +
		regexp.QuoteMeta(address) + `/mirror/drover/system-agent:v1\.2\.3-dirty` + digest + regexp.QuoteMeta(dir) + `/images\.tar\n$`)
	if !want.MatchString(out) {
		t.Errorf("output is\n%s\nwant %s", out, want)
	}
	// A line of the output is "<registry>/mirror/<name>@<digest>".
	_, pushed, _ := strings.Cut(out, address+"/mirror/")
	pushed, _, _ = strings.Cut(pushed, "\n")
	if got, err := os.ReadFile(dir + "/digests.txt"); err != nil || string(got) != pushed+"\n" {
		t.Errorf("the file of digests has %q (%v), want %q", got, err, pushed)
	}
	document, err := os.ReadFile(dir + "/sbom/system-agent-v1.2.3-dirty-linux-" + runtime.GOARCH + ".spdx.json")
	if err != nil || !strings.Contains(string(document), `"packageFileName": "/licenses/THIRD_PARTY_NOTICES"`) {
		t.Errorf("the licenses of modules are not in the document: %v", err)
	}
	if again, _, err := run(t, args...); err != nil || again != out {
		t.Errorf("again: %v\n%s", err, again)
	}
}

func TestFlagErrors(t *testing.T) {
	from, dir := t.TempDir(), t.TempDir()
	good := []string{"--version=v1.2.3", "--from=" + from, "--oci-layout=" + dir, license}
	for _, test := range []struct {
		args  []string
		epoch string
		want  string
	}{
		{args: []string{"--version=v 1"}, want: `--version: "v 1" is not valid as an image tag`},
		{args: []string{"--revision=main"}, want: `--revision: must be a commit, 40 or 64 hexadecimal digits, got "main"`},
		{args: []string{"--arch=x86"}, want: `--arch: unknown architecture "x86"`},
		{args: []string{"--arch=amd64,amd64"}, want: "--arch: duplicate architecture amd64"},
		{args: []string{"--from=/none"}, want: "--from: directory /none does not exist; build the programs with make cross"},
		{args: []string{"--only=agent"}, want: `--only: unknown image "agent"; use any of hub, system-agent, cluster-agent, or none`},
		{args: []string{"--k3s=v1.36.3+k3s1"}, want: `--k3s: must be VERSION=DIRECTORY, got "v1.36.3+k3s1"`},
		{args: []string{"--rke2=v1.36.3+k3s1=" + dir}, want: "--rke2: "},
		{args: []string{"--k3s=v1.36.3+k3s1=/none"}, want: "--k3s: directory /none does not exist"},
		{args: []string{"--oci-layout="}, want: "specify at least one of --oci-layout, --bundle, --tarballs, --sbom, --digests and --push"},
		{args: []string{"--insecure"}, want: "--insecure needs --push"},
		{args: []string{"--sign-key=cosign.key"}, want: "--sign-key needs --push"},
		{args: []string{"--push=https://registry.example.com"}, want: "--push: must be a registry, or registry and path, without scheme"},
		{args: []string{"--push=mirror"}, want: "--push: naming images: "},
		{args: []string{"--push=registry.example.com", "--sign-key=/none"}, want: "--sign-key: open /none"},
		{args: []string{"--license=/none"}, want: "--license: open /none"},
		{args: []string{"--ca-certificates=/none"}, want: "--ca-certificates: open /none"},
		{epoch: "yesterday", want: `SOURCE_DATE_EPOCH: must be seconds since 1970, got "yesterday"`},
		{epoch: "-1", want: `SOURCE_DATE_EPOCH: must be seconds since 1970, got "-1"`},
	} {
		t.Setenv("SOURCE_DATE_EPOCH", test.epoch)
		if _, _, err := run(t, append(good[:4:4], test.args...)...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %s gives %v, want %q", test.args, test.epoch, err, test.want)
		}
	}
}
