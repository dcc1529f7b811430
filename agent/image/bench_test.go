package image

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent/host"
)

const (
	benchLayers = 4
	benchFiles  = 8
	benchFile   = 32 << 20 // 1 GiB in all
)

// benchLayer writes a layer of programs and data, of which about half can be compressed away.
func benchLayer(b *testing.B, path string, seed uint64) (digest string, size int64) {
	b.Helper()
	file, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	sum := sha256.New()
	zip, err := gzip.NewWriterLevel(io.MultiWriter(file, sum), gzip.BestSpeed)
	if err != nil {
		b.Fatal(err)
	}
	w := tar.NewWriter(zip)
	random := rand.NewChaCha8([32]byte{byte(seed)})
	block := make([]byte, 64<<10)
	for i := range benchFiles {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("layer-%d/file-%d", seed, i), Mode: 0o644, Size: benchFile}
		if err := w.WriteHeader(header); err != nil {
			b.Fatal(err)
		}
		for range benchFile / len(block) {
			_, _ = random.Read(block[:len(block)/2])
			if _, err := w.Write(block); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, closer := range []io.Closer{w, zip} {
		if err := closer.Close(); err != nil {
			b.Fatal(err)
		}
	}
	info, err := file.Stat()
	if err != nil {
		b.Fatal(err)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), info.Size()
}

// benchRegistry serves an image of 1 GiB from files.
func benchRegistry(b *testing.B) (ref string, layers []string) {
	b.Helper()
	dir := b.TempDir()
	var descriptors []map[string]any
	for i := range uint64(benchLayers) {
		temp := filepath.Join(dir, "layer")
		digest, size := benchLayer(b, temp, i)
		path := filepath.Join(dir, digest)
		if err := os.Rename(temp, path); err != nil {
			b.Fatal(err)
		}
		layers = append(layers, path)
		descriptors = append(descriptors, map[string]any{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "size": size,
			"digest": digest})
	}
	manifest, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"layers": descriptors,
		"config": map[string]any{"mediaType": "application/vnd.oci.image.config.v1+json", "size": 2, "digest": "sha256:" +
			strings.Repeat("0", 64)}})
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch _, digest, isBlob := strings.Cut(r.URL.Path, "/blobs/"); {
		case isBlob:
			http.ServeFile(w, r, filepath.Join(dir, filepath.Base(digest)))
		case strings.Contains(r.URL.Path, "/manifests/"):
			_, _ = w.Write(manifest)
		}
	}))
	b.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/bench/image:v1", layers
}

// peak is the most memory that this process has had in use since it was reset.
func peak(b *testing.B) float64 {
	b.Helper()
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("peak memory is not known here: ", err)
	}
	for line := range strings.Lines(string(raw)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kib); n == 1 {
			return kib / 1024
		}
	}
	b.Fatal("no VmHWM")
	return 0
}

func resetPeak() {
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o200)
}

// BenchmarkStage stages an image of 1 GiB, from a registry on this machine and from the store, and compares the latter with what tar does
// with the same layers. The memory is that of the whole process, registry included.
func BenchmarkStage(b *testing.B) {
	ref, layers := benchRegistry(b)
	store := func() *Store {
		return New(Options{Host: host.Local{}, Log: slog.New(slog.DiscardHandler), CacheDirectory: b.TempDir()})
	}
	const bytes = benchLayers * benchFiles * benchFile
	b.Run("pull", func(b *testing.B) {
		b.SetBytes(bytes)
		resetPeak()
		for b.Loop() {
			b.StopTimer()
			s, dir := store(), b.TempDir()
			b.StartTimer()
			if err := s.Stage(context.Background(), ref, dir, nil); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			for _, path := range []string{s.CacheDirectory, dir} {
				if err := os.RemoveAll(path); err != nil {
					b.Fatal(err)
				}
			}
			b.StartTimer()
		}
		b.ReportMetric(peak(b), "peak-MiB")
	})
	b.Run("stored", func(b *testing.B) {
		s, first := store(), b.TempDir()
		if err := s.Stage(context.Background(), ref, first, nil); err != nil {
			b.Fatal(err)
		}
		if err := os.RemoveAll(first); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(bytes)
		resetPeak()
		var own, tars time.Duration
		for b.Loop() {
			b.StopTimer()
			dir, other := b.TempDir(), b.TempDir()
			syncDisk(b)
			started := time.Now()
			for _, layer := range layers {
				if out, err := exec.Command("tar", "-xzf", layer, "-C", other).CombinedOutput(); err != nil {
					b.Fatalf("tar: %v: %s", err, out)
				}
			}
			tars += time.Since(started)
			if err := os.RemoveAll(other); err != nil {
				b.Fatal(err)
			}
			syncDisk(b)
			b.StartTimer()
			started = time.Now()
			if err := s.Stage(context.Background(), ref, dir, nil); err != nil {
				b.Fatal(err)
			}
			own += time.Since(started)
			b.StopTimer()
			if err := os.RemoveAll(dir); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		b.ReportMetric(peak(b), "peak-MiB")
		b.ReportMetric(tars.Seconds()/own.Seconds(), "of-tar")
	})
}

// syncDisk leaves nothing to be written that is not ours.
func syncDisk(b *testing.B) {
	b.Helper()
	if out, err := exec.Command("sync").CombinedOutput(); err != nil {
		b.Fatalf("sync: %v: %s", err, out)
	}
}
