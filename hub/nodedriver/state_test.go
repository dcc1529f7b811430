package nodedriver

import (
	"maps"
	"math/rand/v2"
	"slices"
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
