package hosts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Kind says what a Thing is, and so how it is removed.
type Kind string

const (
	// KindProcess is a background process; Name is its name in the lab.
	KindProcess Kind = "process"
	// KindUnit is a transient systemd service on the machine; Name is the unit.
	KindUnit Kind = "unit"
	// KindCgroup is a cgroup outside systemd; Name is its path below each hierarchy's root.
	KindCgroup Kind = "cgroup"
	// KindMount is a mount; Name is the mount point.
	KindMount Kind = "mount"
	// KindNetns is a named network namespace.
	KindNetns Kind = "netns"
	// KindPath is a file or folder outside the lab's own folder, removed with what is in it.
	KindPath Kind = "path"
)

// Thing is one entry of the ledger: something that was, or was about to be, made on this machine.
type Thing struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Host is the host that the thing belongs to; empty for the lab's own.
	Host string `json:"host,omitempty"`
	// PID and Start identify a process; PID is 0 until it has been started. Start is field 22 of /proc/<pid>/stat, so that
	// a number used again by another process is never mistaken for ours.
	PID   int    `json:"pid,omitempty"`
	Start uint64 `json:"start,omitempty"`
}

// HostRecord is what is remembered of one host.
type HostRecord struct {
	// Index is the last number of the host's address.
	Index int `json:"index"`
	// Made is true once its file system and its network are complete.
	Made bool `json:"made,omitempty"`
	// Owner is who had the host made; empty for a user.
	Owner string `json:"owner,omitempty"`
	// Disks are the folders of the host that lie on file systems of their own.
	Disks []string `json:"disks,omitempty"`
}

// State is the ledger of one lab, kept in state.json in the lab's folder.
type State struct {
	Name    string                `json:"name"`
	Created time.Time             `json:"created"`
	Subnet  int                   `json:"subnet"`
	Things  []Thing               `json:"things,omitempty"`
	Hosts   map[string]HostRecord `json:"hosts,omitempty"`
	// Values are kept for whoever composes the lab.
	Values map[string]string `json:"values,omitempty"`
}

// Add enters a thing; entering it again changes nothing.
func (s *State) Add(t Thing) {
	if s.find(t.Kind, t.Name) < 0 {
		s.Things = append(s.Things, t)
	}
}

// Remove takes a thing off the ledger.
func (s *State) Remove(kind Kind, name string) {
	if i := s.find(kind, name); i >= 0 {
		s.Things = slices.Delete(s.Things, i, i+1)
	}
}

// Get returns the entry of that kind and name.
func (s *State) Get(kind Kind, name string) (Thing, bool) {
	if i := s.find(kind, name); i >= 0 {
		return s.Things[i], true
	}
	return Thing{}, false
}

// SetProcess notes the identity of a process entered before.
func (s *State) SetProcess(name string, pid int, start uint64) {
	if i := s.find(KindProcess, name); i >= 0 {
		s.Things[i].PID, s.Things[i].Start = pid, start
	}
}

func (s *State) find(kind Kind, name string) int {
	return slices.IndexFunc(s.Things, func(t Thing) bool { return t.Kind == kind && t.Name == name })
}

// readState returns the ledger in dir, or nil if there is none.
func readState(dir string) (*State, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &State{Hosts: map[string]HostRecord{}}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Join(dir, "state.json"), err)
	}
	return s, nil
}

// write replaces the ledger as a whole: a reader sees the old or the new one.
func (s *State) write(dir string) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, "state.json.tmp") // who writes has the ledger's lock
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(raw, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, "state.json"))
}
