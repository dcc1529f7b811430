package nodedriver

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFit: a state that a Secret could not hold loses files of the driver, the largest first, and never what a removal needs.
func TestFit(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	noise := func(size int) []byte {
		out := make([]byte, size)
		_, _ = random.Read(out) // it never fails
		return out
	}
	config := []byte(`{"Driver":{"SSHKeyPath":"/home/machines/a/key"}}`)
	for name, tt := range map[string]struct {
		files map[string][]byte
		want  []string
		fails bool
	}{
		"small": {map[string][]byte{"a.log": noise(100)}, []string{"a.log", "config.json", "key"}, false},
		"large": {map[string][]byte{"a.iso": noise(600 << 10), "b.iso": noise(700 << 10), "c": noise(200 << 10), "key.pub": noise(100),
			"field-cacert": noise(300 << 10)}, []string{"config.json", "field-cacert", "key", "key.pub", "c"}, false},
		"large and compressible": {map[string][]byte{"zero": make([]byte, 2<<20)}, []string{"config.json", "key", "zero"}, false},
		"too large":              {map[string][]byte{"field-cacert": noise(600 << 10)}, nil, true},
	} {
		s := &State{Name: "a", Files: map[string][]byte{configFile: config, "key": noise(3000)}}
		maps.Copy(s.Files, tt.files)
		if err := s.fit(); (err != nil) != tt.fails {
			t.Errorf("%s: %v", name, err)
		}
		if tt.fails {
			continue
		}
		slices.Sort(tt.want)
		if diff := cmp.Diff(tt.want, slices.Sorted(maps.Keys(s.Files))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if raw, err := s.Encode(); err != nil || len(raw) > maxEncoded {
			t.Errorf("%s: %d bytes, %v", name, len(raw), err)
		}
	}
}

// TestDecodeHoles: whoever may write the Secret of a state does not fill the hub's memory with a file that is nearly all hole.
func TestDecodeHoles(t *testing.T) {
	var plain, zipped bytes.Buffer
	archive := tar.NewWriter(&plain)
	// The writer leaves out what begins with GNU.sparse.
	header := &tar.Header{Typeflag: tar.TypeReg, Name: "machines/a/config.json", Mode: 0o600, PAXRecords: map[string]string{
		"XXX.sparse.major": "0", "XXX.sparse.minor": "1", "XXX.sparse.numblocks": "0", "XXX.sparse.size": "5000000",
	}}
	compressor := gzip.NewWriter(&zipped)
	err := errors.Join(archive.WriteHeader(header), archive.Close())
	_, writeErr := compressor.Write(bytes.ReplaceAll(plain.Bytes(), []byte("XXX.sparse."), []byte("GNU.sparse.")))
	if err = errors.Join(err, writeErr, compressor.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Decode("a", zipped.Bytes()); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("got %v", err)
	}
}
