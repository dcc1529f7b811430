package filestate

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/plans"
)

// Backup is what a path held before a plan changed it. The zero value says that nothing was there. The names in JSON are the file format
// of the journal and never change.
type Backup struct {
	// Copy is the path of a file with the previous content.
	Copy string `json:"copy,omitempty"`
	// MovedTo is the path to which a folder that the plan deletes is moved.
	MovedTo string `json:"aside,omitempty"`
	// Link is the target of a symbolic link.
	Link string `json:"link,omitempty"`
	// Dir is set for a folder of which only the attributes change.
	Dir bool `json:"dir,omitempty"`
	// Unsupported is set for what cannot be restored, such as a device or a socket.
	Unsupported bool `json:"unknown,omitempty"`
	// Attrs are the previous owner and mode.
	Attrs fs.Attributes `json:"attrs"`
}

// NewBackup saves what Compare found at the path of a file, before it is changed for the first time. A file is copied into dir under name;
// a folder that will be deleted is only given its new name beside the old one, since Apply moves it.
func NewBackup(h fs.FileSystem, file plans.File, current *fs.Info, desired Desired, dir, name string) (Backup, error) {
	switch {
	case current == nil:
		return Backup{}, nil
	case current.Link != "":
		return Backup{Link: current.Link, Attrs: current.Attributes}, nil
	case current.Dir && desired.Absent && desired.Dir:
		parent, base := filepath.Split(filepath.Clean(file.Path))
		return Backup{MovedTo: parent + "." + base + ".system-agent-" + name, Attrs: current.Attributes}, nil
	case current.Dir:
		return Backup{Dir: true, Attrs: current.Attributes}, nil
	case current.Other:
		return Backup{Unsupported: true}, nil
	}
	content, err := h.Open(file.Path)
	if err != nil {
		return Backup{}, err
	}
	defer content.Close()
	path := filepath.Join(dir, name)
	return Backup{Copy: path, Attrs: current.Attributes}, h.WriteStream(path, content, fs.WithMode(0o600))
}

// Restore brings the path of a file back to what the backup says. It may be repeated after a crash.
func (b Backup) Restore(h fs.FileSystem, file plans.File) error {
	switch {
	case b.Unsupported:
		return errors.New("the previous file is not of a kind that can be restored")
	case b.Copy != "":
		content, err := h.Open(b.Copy)
		if err != nil {
			return err
		}
		defer content.Close()
		return h.WriteStream(file.Path, content, b.Attrs)
	case b.MovedTo != "":
		return moveBack(h, file.Path, b.MovedTo)
	case b.Link != "":
		return h.Symlink(b.Link, file.Path)
	case b.Dir:
		return h.MkdirAll(file.Path, b.Attrs)
	case file.Directory:
		err := h.Remove(file.Path)
		if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
			return nil // what others have put there since does not belong to the plan
		}
		return err
	}
	return h.Remove(file.Path)
}

func moveBack(h fs.FileSystem, path, from string) error {
	if _, err := h.Lstat(from); err != nil {
		if errors.Is(err, os.ErrNotExist) && IsDir(h, path) {
			return nil // it is back already, or was never moved
		}
		return err
	}
	if err := h.RemoveAll(path); err != nil {
		return err
	}
	return h.Rename(from, path)
}

// Remove deletes the copy or the moved folder.
func (b Backup) Remove(h fs.FileSystem) error {
	for _, path := range []string{b.Copy, b.MovedTo} {
		if path == "" {
			continue
		}
		if err := h.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}
