package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"
)

// Free space of a file system below which there is a warning or a problem. An installer image with its unpacked copy takes about a
// gigabyte, a distribution several.
const (
	warnBytes    = 5 << 30
	problemBytes = 512 << 20
	// warnInodes and problemInodes are in percent.
	warnInodes    = 5
	problemInodes = 1
)

// checkDisk checks every file system on which the agent or the distribution stores data, each once.
func checkDisk(_ context.Context, m Machine) []Result {
	paths := []string{m.Config.WorkDirectory, m.Config.StateDirectory, m.Config.ImageCacheDirectory, m.Config.ImagesDirectory,
		"/var/lib/rancher", "/etc/rancher", "/"}
	var results []Result
	checked := map[uint64]bool{}
	for _, path := range paths {
		if path == "" {
			continue
		}
		existing, device, err := m.nearestExisting(path)
		if err != nil {
			results = append(results, problem("disk "+path, err.Error(), repairDisk))
			continue
		}
		if !checked[device] {
			checked[device] = true
			results = append(results, m.checkFileSystem(path, existing))
		}
	}
	return results
}

const repairDisk = "repair or remount the file system"

// nearestExisting returns the path, or its nearest parent that exists, and the device of that.
func (m Machine) nearestExisting(path string) (string, uint64, error) {
	for {
		var stat unix.Stat_t
		err := unix.Stat(m.path(path), &stat)
		switch {
		case err == nil:
			return m.path(path), stat.Dev, nil
		case !errors.Is(err, os.ErrNotExist) || path == "/":
			return "", 0, fmt.Errorf("reading %s: %w", path, err)
		}
		path = filepath.Dir(path)
	}
}

func (m Machine) checkFileSystem(path, existing string) Result {
	name := "disk " + path
	var stat unix.Statfs_t
	if err := m.Statfs(existing, &stat); err != nil {
		return problem(name, err.Error(), repairDisk)
	}
	free := stat.Bavail * uint64(stat.Bsize)
	message := fmt.Sprintf("%s of %s free", humanize.IBytes(free), humanize.IBytes(stat.Blocks*uint64(stat.Bsize)))
	inodes := uint64(100)
	if stat.Files > 0 { // some file systems have no fixed number
		inodes = stat.Ffree * 100 / stat.Files
		message += fmt.Sprintf(", %d%% of inodes free", inodes)
	}
	findUsage := "; find what uses it with du -xh --max-depth=2 " + path
	switch {
	case stat.Flags&unix.ST_RDONLY != 0 && (path == "/" || path == "/etc/rancher"):
		return warning(name, message+", read-only", "plans that write there will fail; this is expected on a transactional system")
	case stat.Flags&unix.ST_RDONLY != 0:
		return problem(name, message+", read-only", "remount it read-write, or move workDirectory and stateDirectory to a writable file system")
	case stat.Flags&unix.ST_NOEXEC != 0 && path == m.Config.WorkDirectory:
		return problem(name, message+", noexec", "remount it with exec, or move workDirectory: instructions of plans are executed there")
	case stat.Flags&unix.ST_NOEXEC != 0 && path == "/var/lib/rancher":
		return warning(name, message+", noexec", "remount it with exec: k3s and RKE2 execute programs in their data directories")
	case free < problemBytes || inodes < problemInodes:
		return problem(name, message, "free some space"+findUsage)
	case free < warnBytes || inodes < warnInodes:
		return warning(name, message, "an installation or upgrade may need more space"+findUsage)
	}
	return ok(name, message)
}
