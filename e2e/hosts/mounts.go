package hosts

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const overlayMagic = 0x794c7630

// onOverlay reports whether dir is on an overlay file system, which cannot carry the upper layer of another one.
func onOverlay(dir string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, fmt.Errorf("looking at the file system of %s: %w", dir, err)
	}
	return int64(st.Type) == overlayMagic, nil
}

// mountsBelow lists the mount points at and below dir, the last mounted first.
func mountsBelow(mountinfo, dir string) []string {
	var out []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := unescapeMount(fields[4])
		if point == dir || strings.HasPrefix(point, dir+"/") {
			out = append(out, point)
		}
	}
	slices.Reverse(out)
	return out
}

func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func isMounted(point string) bool {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && slices.Contains(mountsBelow(string(raw), point), point)
}

// unmountBelow takes down every mount at and below dir; one that is still busy is detached and goes when it is free.
func unmountBelow(dir string) error {
	for range 3 { // a mount may lie on another at the same point
		raw, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return err
		}
		points := mountsBelow(string(raw), dir)
		if len(points) == 0 {
			return nil
		}
		for _, point := range points {
			if err := unix.Unmount(point, 0); err != nil {
				if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && err != unix.EINVAL {
					return fmt.Errorf("unmounting %s: %w", point, err)
				}
			}
		}
	}
	return nil
}

// removeTree removes a folder with everything in it, after what is mounted there has been taken down.
func removeTree(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := unmountBelow(dir); err != nil {
		return err
	}
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if left := mountsBelow(string(raw), dir); len(left) > 0 {
		return fmt.Errorf("%s is still mounted, so nothing below it is removed", left[0])
	}
	return os.RemoveAll(dir)
}
