package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTarBringsBackWhatItTook(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(from, "a/b"), 0o755),
		os.WriteFile(filepath.Join(from, "a/b/c"), []byte("hello"), 0o644)); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := tarTool(t.Context(), []string{"cf", "-", filepath.Join(from, "a")}, nil, &archive); err != nil {
		t.Fatal(err)
	}
	if err := tarTool(t.Context(), []string{"--no-same-owner", "-xmf", "-", "-C", to}, &archive, nil); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(to, from, "a/b/c"))
	if err != nil || string(raw) != "hello" {
		t.Errorf("%q, %v", raw, err)
	}
}

func TestTarRefuses(t *testing.T) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	if err := errors.Join(archive.WriteHeader(&tar.Header{Name: "../evil", Typeflag: tar.TypeReg}), archive.Close()); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"a name that leads out":       {"xf", "-", "-C", t.TempDir()},
		"an unknown option":           {"-z", "cf", "-", "/"},
		"nothing to pack":             {"cf", "-"},
		"a folder that is not there":  {"xf", "-", "-C", filepath.Join(t.TempDir(), "none")},
		"a file that is not there":    {"cf", "-", filepath.Join(t.TempDir(), "none")},
		"neither packing nor the way": {"-C", "/"},
	} {
		if err := tarTool(t.Context(), args, bytes.NewReader(out.Bytes()), &bytes.Buffer{}); err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
}

func TestAnswer(t *testing.T) {
	var out strings.Builder
	code := exitCode(0)
	if err := answer(strings.NewReader("hello\nexit 7\nmore\n"), &out); !errors.As(err, &code) || code != 7 {
		t.Errorf("ended with %v", err)
	}
	if out.String() != "you said \"hello\"\n" {
		t.Errorf("said %q", out.String())
	}
}

func TestTestAndSum(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := testTool(t.Context(), []string{"-d", dir}, nil, nil); err != nil {
		t.Error(err)
	}
	if err := testTool(t.Context(), []string{"-d", file}, nil, nil); !errors.Is(err, exitCode(1)) {
		t.Errorf("a file counts as a folder: %v", err)
	}
	var out strings.Builder
	const sum = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	if err := tools["sha256sum"](t.Context(), []string{file}, nil, &out); err != nil || out.String() != sum+"  "+file+"\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
