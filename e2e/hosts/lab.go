package hosts

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Options says which lab to open.
type Options struct {
	Name string
	// Cache is where labs and the base image are kept; CacheDir() if empty.
	Cache string
	// Subnet is the third number of the lab's addresses 10.88.x.0/24; the lowest free one if negative.
	Subnet int
	// Progress is told, in a few words, what a long step is doing; may be nil.
	Progress func(string)
}

// Lab is a set of hosts and processes on a network of their own.
type Lab struct {
	Name string
	// Dir holds the ledger, the hosts' files and the logs.
	Dir string

	cache    string
	subnet   int
	progress func(string)
	groups   cgroups

	mu   sync.Mutex // guards last
	last *State     // the ledger as it was last read
}

// Open reads the ledger of a lab, if there is one. It makes nothing.
func Open(o Options) (*Lab, error) {
	if err := checkName("lab", o.Name, maxLabName); err != nil {
		return nil, err
	}
	if o.Cache == "" {
		dir, err := CacheDir()
		if err != nil {
			return nil, err
		}
		o.Cache = dir
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	groups, err := readCgroups()
	if err != nil {
		return nil, err
	}
	l := &Lab{Name: o.Name, Dir: filepath.Join(o.Cache, "labs", o.Name), cache: o.Cache, subnet: o.Subnet, progress: o.Progress,
		groups: groups}
	l.last, err = readState(l.Dir)
	return l, err
}

// Lock keeps every other process from taking charge of this lab until this one unlocks or ends. The lab's own processes need it not: the
// ledger that they share with its holder has a lock of its own.
func (l *Lab) Lock() (unlock func(), err error) {
	unlock, err = fileLock(l.lockFile(), false)
	if locked := (lockedError{}); errors.As(err, &locked) {
		return nil, fmt.Errorf("lab %q is in use by process %s: wait for it, or interrupt it", l.Name, locked.holder)
	}
	return unlock, err
}

func (l *Lab) lockFile() string { return filepath.Join(l.cache, "labs", l.Name+".lock") }

// Exists reports whether there is a ledger, so something to take down.
func (l *Lab) Exists() bool { return l.ledger() != nil }

// State returns a copy of the ledger's head and its values; the zero State if there is no lab.
func (l *Lab) State() State {
	if s := l.ledger(); s != nil {
		return *s
	}
	return State{}
}

// SetValue remembers something in the ledger for whoever composes the lab.
func (l *Lab) SetValue(key, value string) error {
	return l.record(func(s *State) {
		if s.Values == nil {
			s.Values = map[string]string{}
		}
		s.Values[key] = value
	})
}

// Up makes the hub's namespace with the bridge that hosts hang on. What is already there stays. A failed Up leaves a
// ledger with which Down removes what was made.
func (l *Lab) Up(ctx context.Context) error {
	if !l.Exists() {
		if err := l.begin(); err != nil {
			return err
		}
	}
	ns := l.hubNS()
	if l.has(KindNetns, ns) && netnsExists(ns) {
		return nil
	}
	if err := l.claimNetns(ns, ""); err != nil {
		return err
	}
	if err := runEach(ctx, hubNetwork(ns, l.HubIP())); err != nil {
		return fmt.Errorf("making the lab's network: %w", err)
	}
	return nil
}

// begin chooses a subnet and writes the first ledger.
func (l *Lab) begin() error {
	unlock, err := fileLock(filepath.Join(l.cache, "labs", ".lock"), true)
	if err != nil {
		return err
	}
	defer unlock()
	names, err := Names(l.cache)
	if err != nil {
		return err
	}
	used := map[int]string{}
	for _, name := range names {
		s, err := readState(filepath.Join(l.cache, "labs", name))
		if err != nil {
			return err
		}
		if s != nil {
			used[s.Subnet] = name
		}
	}
	subnet, err := pickSubnet(l.subnet, used)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(l.LogDir(), 0o700); err != nil {
		return err
	}
	s := &State{Name: l.Name, Created: time.Now().Truncate(time.Second), Subnet: subnet, Hosts: map[string]HostRecord{}}
	return s.write(l.Dir)
}

// claimNetns enters a namespace into the ledger; one that exists and is not in the ledger belongs to somebody else.
func (l *Lab) claimNetns(ns, host string) error {
	if netnsExists(ns) && !l.has(KindNetns, ns) {
		return fmt.Errorf("a network namespace %q exists that is not this lab's: choose another name for the lab", ns)
	}
	return l.add(Thing{Kind: KindNetns, Name: ns, Host: host})
}

// HubIP is the address of the hub's namespace.
func (l *Lab) HubIP() netip.Addr {
	return address(l.State().Subnet, hubIndex)
}

// LogDir holds one log file for each process and each host's console.
func (l *Lab) LogDir() string { return filepath.Join(l.Dir, "logs") }

func (l *Lab) hubNS() string { return l.Name + "-hub" }
