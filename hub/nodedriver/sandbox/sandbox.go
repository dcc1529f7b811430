// Package sandbox runs a program of somebody else, such as a node driver, apart from the hub: in a directory tree with nothing but the
// program and the files that name resolution and TLS need, as a user without rights, in user, process and IPC namespaces of its own,
// without the hub's environment, and with limits of its resources. It shares the network of the hub, since drivers call the APIs of clouds.
//
// The package knows nothing of drivers.
package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// user is the UID and GID of the program. No account of the system has it.
	user = 65530
	// Home is the program's home and working directory, the only one besides /tmp that it may write to.
	Home    = "/home"
	program = "/program"
	// programsDir has links to the further programs in a container, whose root directory cannot be written to.
	programsDir = Home + "/.programs"

	maxFileSize  = 256 << 20
	maxData      = 2 << 30
	maxOpenFiles = 1024
)

// shared are files of the machine that the program gets copies of: for name resolution and for the certificates of servers.
var shared = []string{
	"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
}

// Sandbox is a directory tree for one program. Close removes it.
type Sandbox struct {
	dir  string
	root *os.Root
	// contained is the path of the program where a container is the sandbox.
	contained string
}

// InContainer returns the container of this process as the sandbox of a program of it: one that was made for nothing else, with Home and
// /tmp of its own, whose user has no rights. Close empties Home.
func InContainer(binary string) (*Sandbox, error) {
	root, err := os.OpenRoot("/")
	if err != nil {
		return nil, fmt.Errorf("opening the files of the container: %w", err)
	}
	return &Sandbox{root: root, contained: binary}, nil
}

// New creates a sandbox below parent with a copy of the program in it. The caller closes it.
func New(parent, binary string) (_ *Sandbox, err error) {
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of sandboxes: %w", err)
	}
	dir, err := os.MkdirTemp(parent, "run-")
	if err != nil {
		return nil, fmt.Errorf("creating a sandbox: %w", err)
	}
	s := &Sandbox{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	// The directory above has mode 0700, so that only the hub's user gets here.
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec
		return nil, fmt.Errorf("creating a sandbox: %w", err)
	}
	if s.root, err = os.OpenRoot(dir); err != nil {
		return nil, fmt.Errorf("opening the sandbox: %w", err)
	}
	if err := s.fill(binary); err != nil {
		return nil, fmt.Errorf("filling the sandbox: %w", err)
	}
	return s, nil
}

func (s *Sandbox) fill(binary string) error {
	if err := s.put(binary, program); err != nil {
		return err
	}
	for _, path := range shared {
		if err := s.copy(path, path, 0o644); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := s.addNull(); err != nil {
		return err
	}
	for _, path := range []string{Home, "/tmp"} {
		if err := s.root.Mkdir(path[1:], 0o700); err != nil {
			return err
		}
		if err := s.own(path); err != nil {
			return err
		}
	}
	return nil
}

// mknod is replaced in tests.
var mknod = unix.Mknod

// addNull adds /dev/null, which a program gives to others as their input. Where the hub may make no device, or the file system allows none,
// for which kernels and security modules have many errors, it is an empty file.
func (s *Sandbox) addNull() error {
	if err := s.root.Mkdir("dev", 0o755); err != nil {
		return err
	}
	path := filepath.Join(s.dir, os.DevNull)
	err := mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
	switch {
	case err == nil:
		if null, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			return errors.Join(null.Close(), os.Chmod(path, 0o666)) //nolint:gosec // it is a device
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	case errors.Is(err, unix.EEXIST):
		return err
	}
	return s.root.WriteFile(os.DevNull[1:], nil, 0o444)
}

// AddProgram gives the program another one, which it may start by its name.
func (s *Sandbox) AddProgram(name, binary string) error {
	if s.contained == "" {
		if err := s.put(binary, "/"+name); err != nil {
			return fmt.Errorf("adding %s to the sandbox: %w", name, err)
		}
		return nil
	}
	err := s.root.MkdirAll(programsDir[1:], 0o700)
	if err == nil {
		err = s.root.Symlink(binary, programsDir[1:]+"/"+name)
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("adding %s to the container: %w", name, err)
	}
	return nil
}

// put puts a program into the sandbox.
func (s *Sandbox) put(binary, to string) error {
	if s.link(binary, to) {
		return nil
	}
	return s.copy(binary, to, 0o755)
}

// link makes a program another name of the binary, where that is of the same file system and the program's user could not change it: it
// is root's. A program has some ten or a hundred megabytes, which need not be written for each machine.
func (s *Sandbox) link(binary, to string) bool {
	info, err := os.Lstat(binary)
	if err != nil || os.Geteuid() != 0 || !info.Mode().IsRegular() || info.Mode().Perm()&0o027 != 0o005 {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && owner.Uid == 0 && os.Link(binary, filepath.Join(s.dir, to)) == nil
}

func (s *Sandbox) copy(from, to string, mode os.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := s.root.MkdirAll(filepath.Dir(to)[1:], 0o755); err != nil && filepath.Dir(to) != "/" {
		return err
	}
	// A process that is forked now would have the file open for writing until it executes its own program, and nobody could execute the copy.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	target, err := s.root.OpenFile(to[1:], os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// own makes the program's user the owner. Only root can, and only root runs the program as another user.
func (s *Sandbox) own(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return s.root.Lchown(path[1:], user, user)
}

// Root is the tree as the program sees it. Links that the program has made lead nowhere outside of it.
func (s *Sandbox) Root() *os.Root { return s.root }

// WriteFile writes a file that only the program may read. path is absolute, as the program sees it, below Home.
func (s *Sandbox) WriteFile(path string, content []byte) error {
	dir := filepath.Dir(path)[1:]
	if err := s.root.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("creating %s in the sandbox: %w", dir, err)
	}
	for at := "/" + dir; at != Home && len(at) > len(Home); at = filepath.Dir(at) {
		if err := s.own(at); err != nil {
			return fmt.Errorf("setting the owner of %s in the sandbox: %w", at, err)
		}
	}
	if err := s.root.WriteFile(path[1:], content, 0o600); err != nil {
		return fmt.Errorf("writing %s into the sandbox: %w", path, err)
	}
	if err := s.own(path); err != nil {
		return fmt.Errorf("setting the owner of %s in the sandbox: %w", path, err)
	}
	return nil
}

// Command returns the program, not started. Its process is the first of its PID namespace: when it ends, so does all that it has started.
func (s *Sandbox) Command(env []string, args ...string) *exec.Cmd {
	cmd := &exec.Cmd{Path: program, Args: append([]string{program}, args...), Dir: Home}
	cmd.Env = append([]string{"HOME=" + Home, "TMPDIR=/tmp", "PATH=/:" + programsDir}, env...)
	if s.contained != "" {
		cmd.Path, cmd.Args[0] = s.contained, s.contained
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
		return cmd
	}
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 {
		uid, gid = user, user
	}
	attributes := &syscall.SysProcAttr{
		Chroot: s.dir,
		// In a user namespace of its own the program has no rights on anything outside, and the hub has all rights on it.
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: gid, Size: 1}},
		Setsid:      true,
		Pdeathsig:   syscall.SIGKILL,
	}
	if os.Geteuid() == 0 {
		attributes.GidMappingsEnableSetgroups = true
		attributes.Credential = &syscall.Credential{Uid: user, Gid: user, Groups: []uint32{}}
	}
	cmd.SysProcAttr = attributes
	return cmd
}

// Start starts a command with limits of its resources.
func Start(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("creating the namespaces of a sandbox: %w; run the hub as root, or allow it user namespaces "+
				"(sysctl user.max_user_namespaces, on Ubuntu kernel.apparmor_restrict_unprivileged_userns, the seccomp profile of its "+
				"container)", err)
		}
		return err
	}
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: maxFileSize, unix.RLIMIT_DATA: maxData, unix.RLIMIT_NOFILE: maxOpenFiles,
	} {
		err := unix.Prlimit(cmd.Process.Pid, resource, &unix.Rlimit{Cur: limit, Max: limit}, nil)
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			return errors.Join(fmt.Errorf("limiting the resources of the program: %w", err), cmd.Process.Kill(), cmd.Wait())
		}
	}
	return nil
}

// Close removes the tree. The program must have ended.
func (s *Sandbox) Close() error {
	if s.contained != "" {
		return errors.Join(s.emptyHome(), s.root.Close())
	}
	var err error
	if s.root != nil {
		err = s.root.Close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// emptyHome removes what is in Home, which is a volume of the container.
func (s *Sandbox) emptyHome() error {
	home, err := s.root.Open(Home[1:])
	if err != nil {
		return fmt.Errorf("emptying %s: %w", Home, err)
	}
	defer home.Close()
	names, err := home.Readdirnames(-1)
	for _, name := range names {
		err = errors.Join(err, s.root.RemoveAll(filepath.Join(Home, name)[1:]))
	}
	return err
}
