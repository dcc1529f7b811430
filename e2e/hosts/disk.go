package hosts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// diskBytes is the size of a disk. Its file takes what is written to it.
const diskBytes = 512 << 20

// fsShutdown is FS_IOC_SHUTDOWN of Linux with its flag that not even the log is written: from then on nothing reaches the disk, as if the
// power were cut.
const (
	fsShutdown    = 0x8004587d // _IOR('X', 125, __u32)
	withoutTheLog = 2
)

// disk is a file system of the host's own. What the host has not synced there is lost when it is killed; elsewhere it stays, since the page
// cache is that of the machine, and the host's root file system syncs nothing at all.
type disk struct {
	// image is its file, point the folder of the host that lies on it.
	image, point string
}

func (h *Host) disks() []disk {
	var all []disk
	for i, inside := range h.lab.State().Hosts[h.Name].Disks {
		all = append(all, disk{image: filepath.Join(h.dir(), "disk-"+strconv.Itoa(i)+".img"), point: h.Path(inside)})
	}
	return all
}

func (h *Host) makeDisks(ctx context.Context) error {
	for _, d := range h.disks() {
		file, err := os.OpenFile(d.image, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		if err := errors.Join(file.Truncate(diskBytes), file.Close(), os.MkdirAll(d.point, 0o755)); err != nil {
			return err
		}
		// It begins with what the base image has there.
		if _, err := run(ctx, "mkfs.ext4", "-q", "-F", "-d", d.point, d.image); err != nil {
			return fmt.Errorf("making the file system of a disk: %w", err)
		}
		if err := h.lab.add(Thing{Kind: KindMount, Name: d.point, Host: h.Name}); err != nil {
			return err
		}
		if err := d.mount(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d disk) mount(ctx context.Context) error {
	if _, err := run(ctx, "mount", "-o", "loop", d.image, d.point); err != nil {
		return fmt.Errorf("mounting a disk: %w", err)
	}
	return nil
}

// cutDisks has nothing reach the disks of a host from now on.
func (h *Host) cutDisks() error {
	for _, d := range h.disks() {
		if err := d.shutDown(); err != nil {
			return fmt.Errorf("cutting the power of the disk at %s: %w", d.point, err)
		}
	}
	return nil
}

// loseUnsynced leaves on the disks of a host that is off what had reached them.
func (h *Host) loseUnsynced() error {
	// All at the same moment first, since what follows takes its time.
	if err := h.cutDisks(); err != nil {
		return err
	}
	for _, d := range h.disks() {
		if err := d.renew(context.Background()); err != nil {
			return fmt.Errorf("mounting the disk at %s again: %w", d.point, err)
		}
	}
	return nil
}

func (d disk) shutDown() error {
	dir, err := os.Open(d.point)
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.IoctlSetPointerInt(int(dir.Fd()), fsShutdown, withoutTheLog)
}

// renew mounts a copy of a disk that was shut down, of which nothing is in memory. The disk itself may stay in use for long: by any process
// of the machine that began with a copy of all mounts.
func (d disk) renew(ctx context.Context) error {
	next := d.image + ".new"
	if _, err := run(ctx, "cp", "--sparse=always", d.image, next); err != nil {
		return err
	}
	if err := unix.Unmount(d.point, unix.MNT_DETACH); err != nil {
		return err
	}
	if err := os.Rename(next, d.image); err != nil {
		return err
	}
	return d.mount(ctx)
}

// disksMounted reports whether all disks of a host are.
func (h *Host) disksMounted() bool {
	return !slices.ContainsFunc(h.disks(), func(d disk) bool { return !isMounted(d.point) })
}
