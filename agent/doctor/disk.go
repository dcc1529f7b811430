package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// What a file system should have free. An installer image with its unpacked copy takes about a gigabyte; a distribution brings several.
const (
	fewBytes    = 5 << 30
	tooFewBytes = 512 << 20
	// fewInodes and tooFewInodes are in percent.
	fewInodes    = 5
	tooFewInodes = 1
)

// checkDisk looks at every file system on which the agent keeps something, each once.
func checkDisk(_ context.Context, m Machine) []Result {
	paths := []string{m.Config.WorkDirectory, m.Config.StateDirectory, m.Config.ImagesDirectory, "/var/lib/rancher", "/etc/rancher", "/"}
	var results []Result
	seen := map[uint64]bool{}
	for _, path := range paths {
		if path == "" {
			continue
		}
		existing, device, err := m.existing(path)
		if err != nil {
			results = append(results, Result{"disk " + path, Problem, err.Error(), "repair or remount the file system"})
			continue
		}
		if !seen[device] {
			seen[device] = true
			results = append(results, m.fileSystem(path, existing))
		}
	}
	return results
}

// existing is the path, or the nearest folder above it that is there, and its file system.
func (m Machine) existing(path string) (string, uint64, error) {
	for {
		var stat unix.Stat_t
		err := unix.Stat(m.path(path), &stat)
		switch {
		case err == nil:
			return m.path(path), stat.Dev, nil
		case !errors.Is(err, os.ErrNotExist) || path == "/":
			return "", 0, fmt.Errorf("%s cannot be looked at: %w", path, err)
		}
		path = filepath.Dir(path)
	}
}

func (m Machine) fileSystem(path, existing string) Result {
	r := Result{Check: "disk " + path, Verdict: OK}
	var stat unix.Statfs_t
	if err := m.Statfs(existing, &stat); err != nil {
		return Result{r.Check, Problem, err.Error(), "repair or remount the file system"}
	}
	free := stat.Bavail * uint64(stat.Bsize)
	r.Seen = fmt.Sprintf("%.1f of %.1f GiB free", gib(free), gib(stat.Blocks*uint64(stat.Bsize)))
	inodes := uint64(100)
	if stat.Files > 0 { // some file systems have no fixed number
		inodes = stat.Ffree * 100 / stat.Files
		r.Seen += fmt.Sprintf(", %d%% of inodes free", inodes)
	}
	switch {
	case stat.Flags&unix.ST_RDONLY != 0:
		r.Verdict, r.Seen = Problem, r.Seen+", read-only"
		r.Advice = "remount it writable, or move workDirectory and stateDirectory to a file system that is"
		if path == "/" || path == "/etc/rancher" {
			r.Verdict, r.Advice = Warning, "plans that write there will fail; on a transactional system that is as it should be"
		}
	case free < tooFewBytes || inodes < tooFewInodes:
		r.Verdict, r.Advice = Problem, "free some space; du -xh --max-depth=2 "+path+" tells what takes it"
	case free < fewBytes || inodes < fewInodes:
		r.Verdict, r.Advice = Warning, "an installation or upgrade may need more; du -xh --max-depth=2 "+path+" tells what takes it"
	}
	return r
}

func gib(n uint64) float64 { return float64(n) / (1 << 30) }
