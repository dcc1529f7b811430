package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// cached makes a store with files of ten bytes and an index.
func cached(t *testing.T, kept retention, i cacheIndex, files ...string) *Store {
	t.Helper()
	s := newStore(t, "")
	s.cache.retention = kept
	if err := os.MkdirAll(s.CacheDirectory, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if err := os.WriteFile(filepath.Join(s.CacheDirectory, file), []byte("0123456789"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.cache.writeIndex(i)
	return s
}

func files(t *testing.T, s *Store) []string {
	t.Helper()
	names, err := s.Host.ReadDir(s.CacheDirectory)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == indexName })
}

func TestCollect(t *testing.T) {
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	hash := func(n int) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%064x", n)} }
	images := []cachedImage{
		{Image: "a", Manifest: hash(1), Files: []string{"1", "shared"}, Used: ago(3 * time.Hour)},
		{Image: "b", Manifest: hash(2), Files: []string{"2", "shared"}, Used: ago(2 * time.Hour)},
		{Image: "b-too", Manifest: hash(2), Files: []string{"2", "shared"}, Used: ago(90 * time.Minute)},
		{Image: "c", Manifest: hash(3), Files: []string{"3"}, Used: ago(time.Hour)},
	}
	all := []string{"1", "2", "3", "shared", "new", "old", "new.part", "old.part", "buffer-1", ".tmp"}
	tests := map[string]struct {
		retention retention
		pinned    []string
		freeDisk  bool
		want      []string
	}{
		"by count": {retention: retention{images: 2, bytes: 1 << 20, age: 24 * time.Hour},
			want: []string{"2", "3", "new", "new.part", "shared"}},
		"by bytes":       {retention: retention{images: 9, bytes: 35, age: 24 * time.Hour}, want: []string{"2", "3", "shared"}},
		"by fewer bytes": {retention: retention{images: 9, bytes: 25, age: 24 * time.Hour}, want: []string{"3", "new"}},
		"by age":         {retention: retention{images: 9, bytes: 1 << 20, age: 90 * time.Minute}, want: []string{"3", "new", "new.part"}},
		"all": {retention: retention{images: 9, bytes: 1 << 20, age: 24 * time.Hour},
			want: []string{"1", "2", "3", "new", "new.part", "shared"}},
		"not what is used": {retention: retention{images: 1, bytes: 1 << 20, age: 24 * time.Hour}, pinned: []string{"1", "old"},
			want: []string{".tmp", "1", "3", "new", "new.part", "old", "old.part"}},
		"to make room": {retention: defaultRetention, freeDisk: true, pinned: []string{"2"}, want: []string{".tmp", "2"}},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := cached(t, test.retention, cacheIndex{Images: slices.Clone(images)}, all...)
			old := time.Now().Add(-2 * maxPartAge)
			for _, name := range []string{"old", "old.part"} {
				if err := os.Chtimes(filepath.Join(s.CacheDirectory, name), old, old); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range test.pinned {
				defer s.cache.pin(name)()
			}
			s.cache.collect(test.freeDisk)
			if diff := cmp.Diff(test.want, files(t, s)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestCollectWithoutStaging: an incomplete download and an image are removed when they are too old, also if no other image is ever staged.
func TestCollectWithoutStaging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := cacheIndex{Images: []cachedImage{{Image: "a", Manifest: v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("1", 64)},
			Files: []string{"1"}, Used: time.Now()}}}
		s := cached(t, defaultRetention, index, "1", "2.part")
		if err := os.Chtimes(s.cache.path("2.part"), time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		for _, step := range []struct {
			after time.Duration
			want  []string
		}{
			{maxPartAge - time.Minute, []string{"1", "2.part"}},
			{2 * collectInterval, []string{"1"}},
			{defaultRetention.age, []string{}},
		} {
			time.Sleep(step.after)
			synctest.Wait()
			if got := files(t, s); !slices.Equal(got, step.want) {
				t.Errorf("%s later the cache has %v, want %v", step.after, got, step.want)
			}
		}
	})
}

// TestClockWasAhead has images whose last use was noted while the clock was years ahead. They do not displace the one that is used now.
func TestClockWasAhead(t *testing.T) {
	image := func(n int, used time.Duration) cachedImage {
		return cachedImage{Image: fmt.Sprint("image", n), Manifest: v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%064x", n)},
			Files: []string{fmt.Sprint(n)}, Used: time.Now().Add(used)}
	}
	const year = 365 * 24 * time.Hour
	index := cacheIndex{Images: []cachedImage{image(1, year), image(2, 2*year), image(3, -time.Minute)}}
	s := cached(t, defaultRetention, index, "1", "2", "3")
	s.cache.collect(false)
	if diff := cmp.Diff([]string{"1", "3"}, files(t, s)); diff != "" {
		t.Error(diff)
	}
}

func TestDamagedIndexCostsFetchingAgain(t *testing.T) {
	h := newRegistry(t, false)
	push(t, h, "a/b:v1", twoLayers(t))
	s := newStore(t, "")
	for range 2 {
		got, err := stage(t, s, h.host()+"/a/b:v1")
		checkStaged(t, got, err)
		if err := os.WriteFile(filepath.Join(s.CacheDirectory, indexName), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestImageInUseIsKept collects while an image is being staged.
func TestImageInUseIsKept(t *testing.T) {
	h := newRegistry(t, false)
	push(t, h, "a/b:v1", twoLayers(t))
	s := newStore(t, "")
	s.cache.retention = retention{images: 0, bytes: 1, age: time.Hour}
	err := s.Stage(t.Context(), h.host()+"/a/b:v1", t.TempDir(), func(int64, int64) { s.cache.collect(true) })
	if err != nil {
		t.Fatal(err)
	}
	if left := files(t, s); len(left) != 0 {
		t.Errorf("kept %v", left)
	}
}

func TestSteadyStateWritesNothing(t *testing.T) {
	h := newRegistry(t, false)
	push(t, h, "a/b:v1", twoLayers(t))
	s := newStore(t, "")
	if _, err := stage(t, s, h.host()+"/a/b:v1"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.CacheDirectory, indexName)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	s.cache.collect(false)
	after, err := os.Stat(path)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the index was written again: %v", err)
	}
}

func FuzzDecodeIndex(f *testing.F) {
	f.Add([]byte(`{"images":[{"image":"a","manifest":"sha256:` + strings.Repeat("a", 64) +
		`","files":["../../etc/passwd"],"used":"2026-01-01T00:00:00Z"}],"parts":{"x.part":"2026-01-01T00:00:00Z"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		decoded, err := decodeCacheIndex(raw)
		if err != nil {
			return
		}
		dir := t.TempDir()
		outside := filepath.Join(dir, "outside")
		if err := os.WriteFile(outside, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s := newStore(t, "")
		s.CacheDirectory = filepath.Join(dir, "cache")
		if err := os.MkdirAll(s.CacheDirectory, 0o700); err != nil {
			t.Fatal(err)
		}
		s.cache.writeIndex(decoded)
		s.cache.collect(false)
		if _, err := os.Stat(outside); err != nil {
			t.Error("a file outside of the store is gone")
		}
	})
}
