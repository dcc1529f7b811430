package fs

import (
	"archive/tar"
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/readahead"
)

// writeLayer makes a layer of about so many MiB as installer images have them: a few large files, many small ones, and content that
// compresses to about half.
func writeLayer(w io.Writer, mib int) error {
	archive := tar.NewWriter(w)
	random := rand.New(rand.NewChaCha8([32]byte{1}))
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(random.Uint32())
		if i%(16<<10) < 8<<10 {
			block[i] = "installer"[i%9]
		}
	}
	add := func(name string, size int) error {
		err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(size)})
		for ; size > 0 && err == nil; size -= len(block) {
			_, err = archive.Write(block[:min(size, len(block))])
		}
		return err
	}
	for i := range 5 {
		if err := add(fmt.Sprintf("bin/large-%d", i), mib*18/100<<20); err != nil {
			return err
		}
	}
	for i := range mib {
		if err := add(fmt.Sprintf("share/%d/medium-%d", i%16, i), 64<<10); err != nil {
			return err
		}
		for j := range 4 {
			if err := add(fmt.Sprintf("share/%d/small-%d-%d", i%16, i, j), 4<<10); err != nil {
				return err
			}
		}
	}
	return archive.Close()
}

func writeLayerFile(path string, mib int, compressed bool) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	var to io.WriteCloser = file
	if compressed {
		if to, err = gzip.NewWriterLevel(file, gzip.BestSpeed); err != nil {
			return err
		}
	}
	buffered := bufio.NewWriterSize(to, 1<<20)
	if err := writeLayer(buffered, mib); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil || !compressed {
		return err
	}
	return to.Close()
}

// TestMain unpacks a layer instead of testing if the environment asks for it.
func TestMain(m *testing.M) {
	if os.Getenv("FS_TEST_LAYER") != "" {
		os.Exit(unpackHelper())
	}
	os.Exit(m.Run())
}

// unpackHelper unpacks a layer in a process that does nothing else, in the same way as package image, and prints its most memory in KiB.
func unpackHelper() int {
	if err := unpackFile(os.Getenv("FS_TEST_LAYER"), os.Getenv("FS_TEST_DIR")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	fmt.Println(strings.Fields(rest)[0])
	return 0
}

func unpackFile(path, dir string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	var plain io.Reader = bufio.NewReaderSize(file, 256<<10)
	if strings.HasSuffix(path, ".gz") {
		if plain, err = gzip.NewReader(plain); err != nil {
			return err
		}
	}
	ahead, err := readahead.NewReaderSize(plain, 4, 1<<20)
	if err != nil {
		return err
	}
	defer ahead.Close()
	return OS{}.Unpack(context.Background(), dir, ahead)
}

// race unpacks a layer with tar and with a process of ours, rounds times by turns, and gives the best of each.
func race(tb testing.TB, layer string, rounds int) (theirs, ours time.Duration, memory int) {
	tb.Helper()
	flag := "-xf"
	if strings.HasSuffix(layer, ".gz") {
		flag = "-xzf"
	}
	for range rounds {
		for _, name := range []string{"tar", "agent"} {
			dir := filepath.Join(filepath.Dir(layer), name)
			must(tb, os.RemoveAll(dir), os.Mkdir(dir, 0o755))
			cmd := exec.Command("tar", flag, layer, "-C", dir)
			if name == "agent" {
				cmd = exec.Command("/proc/self/exe")
				cmd.Env = []string{"FS_TEST_LAYER=" + layer, "FS_TEST_DIR=" + dir}
			}
			cmd.Stderr = os.Stderr
			if info, err := os.Stat(layer); err == nil && info.Size() > 256<<20 {
				must(tb, exec.Command("sync").Run()) // neither pays for the other
			}
			start := time.Now()
			out, err := cmd.Output()
			took := time.Since(start)
			must(tb, err)
			if name == "tar" {
				theirs = best(theirs, took)
				continue
			}
			ours = best(ours, took)
			used, err := strconv.Atoi(strings.TrimSpace(string(out)))
			must(tb, err)
			memory = max(memory, used)
		}
	}
	return theirs, ours, memory
}

func best(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// BenchmarkUnpackAgainstTar unpacks 1 GiB. The goal is a ratio of at least 0.8 in less than 64 MiB.
func BenchmarkUnpackAgainstTar(b *testing.B) {
	for _, name := range []string{"layer.tar", "layer.tar.gz"} {
		b.Run(name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), name)
			must(b, writeLayerFile(path, 1024, strings.HasSuffix(name, ".gz")))
			for b.Loop() {
				theirs, ours, memory := race(b, path, 2)
				b.ReportMetric(theirs.Seconds(), "tar-s")
				b.ReportMetric(ours.Seconds(), "agent-s")
				b.ReportMetric(theirs.Seconds()/ours.Seconds(), "ratio")
				b.ReportMetric(float64(memory)/1024, "MiB-most")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// TestUnpackSpeed is the benchmark on a small scale. The time may be five times that of tar, since other tests run beside it, in one of
// three races: any of them may stand still for a moment. The memory is what it is.
func TestUnpackSpeed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "layer.tar.gz")
	must(t, writeLayerFile(path, 48, true))
	for attempt := 1; ; attempt++ {
		theirs, ours, memory := race(t, path, 3)
		t.Logf("tar %s, agent %s in %d MiB", theirs, ours, memory>>10)
		if memory >= 64<<10 {
			t.Fatalf("the agent needs %d MiB", memory>>10)
		}
		if ours <= 5*theirs {
			return
		}
		if attempt == 3 {
			t.Fatalf("tar took %s, the agent %s", theirs, ours)
		}
	}
}
