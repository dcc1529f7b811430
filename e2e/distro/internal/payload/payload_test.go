package payload

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func build(t *testing.T) []byte {
	t.Helper()
	program := filepath.Join(t.TempDir(), "runc")
	if err := os.WriteFile(program, bytes.Repeat([]byte("program "), 1000), 0o755); err != nil {
		t.Fatal(err)
	}
	out := bytes.NewBufferString("the head")
	if err := Append(out, []string{program}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func open(t *testing.T, raw []byte) (*Archive, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "k3s")
	if err := os.WriteFile(file, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	return Open(file)
}

func TestRoundTrip(t *testing.T) {
	a, err := open(t, build(t))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	dir := t.TempDir()
	if err := a.Unpack(dir); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "runc"))
	if err != nil || len(raw) != 8000 {
		t.Errorf("got %d bytes, %v", len(raw), err)
	}
}

func TestNoArchive(t *testing.T) {
	for _, raw := range [][]byte{nil, []byte("short"), bytes.Repeat([]byte("x"), 500)} {
		if _, err := open(t, raw); !errors.Is(err, ErrNone) {
			t.Errorf("%d bytes: got %v", len(raw), err)
		}
	}
}

func TestDamagedArchive(t *testing.T) {
	raw := build(t)
	raw[len(raw)-trailerSize-5] ^= 0xff
	a, err := open(t, raw)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Unpack(t.TempDir()); err == nil {
		t.Error("damage went unnoticed")
	}
}
