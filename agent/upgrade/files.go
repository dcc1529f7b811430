package upgrade

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/agent/host"
	hostfs "github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
)

const (
	// VersionsDirectory is the directory of the binaries, beside that of the agent. There they have the label of programs under SELinux.
	VersionsDirectory = "system-agent-versions"
	// maxBinaryBytes is the size limit of an agent.
	maxBinaryBytes = 512 << 20
	// programTimeout bounds a call of systemctl, and of a new binary that prints its version.
	programTimeout = time.Minute
	versionPrefix  = "system-agent version "
)

// files are the files of upgrades on a machine.
type files struct {
	host                                   host.Host
	program, stateDirectory, unitDirectory string
	environment                            []string
}

// version is the path of the binary with a checksum.
func (f files) version(sum string) string {
	return filepath.Join(filepath.Dir(f.program), VersionsDirectory, sum)
}

// stage downloads the agent with a checksum, unless it is there already, and returns the version that it prints: a binary that this machine
// cannot execute is found before anything depends on it.
func (m *Manager) stage(ctx context.Context, sum string) (string, error) {
	path := m.files.version(sum)
	if m.files.checksumOf(path) != sum {
		body, err := m.Source.DownloadAgent(ctx, m.Arch)
		if err != nil {
			return "", err
		}
		defer body.Close()
		err = m.files.writeVerified(path, body, sum)
		if errors.Is(err, syscall.EROFS) {
			// It stays so until somebody does something about it, and must not keep other agents waiting.
			return "", refusedf("%s is on a read-only file system: run the install script in a transactional-update", m.Program)
		}
		if err != nil {
			return "", fmt.Errorf("downloading the agent: %w", err)
		}
	}
	result, err := m.Host.Run(ctx, run.Command{Path: path, Args: []string{"--version"}, Env: m.Environment, Timeout: programTimeout})
	if err != nil {
		return "", fmt.Errorf("executing the downloaded agent: %w", err)
	}
	version, found := strings.CutPrefix(strings.TrimSpace(string(result.Stdout)), versionPrefix)
	if result.ExitCode != 0 || !found {
		return "", fmt.Errorf("executing the downloaded agent: exit code %d, and no version was printed", result.ExitCode)
	}
	return version, nil
}

// replaceProgram puts the binary with the checksum s.New at the path of the agent, after everything is on disk that brings the previous one
// back. What it has done when it fails, settle undoes.
func (f files) replaceProgram(ctx context.Context, s state, self func() (io.ReadCloser, error), timeout time.Duration) error {
	unlock, err := f.lock()
	if err != nil {
		return err
	}
	defer unlock()
	previous, err := self()
	if err != nil {
		return fmt.Errorf("opening the running binary: %w", err)
	}
	defer previous.Close()
	if path := f.version(s.Previous); f.checksumOf(path) != s.Previous {
		if err := f.writeVerified(path, previous, s.Previous); err != nil {
			return fmt.Errorf("keeping the running binary: %w", err)
		}
	}
	s.Phase, s.Timeout = phaseTrial, timeout.String()
	if err := f.writeState(s); err != nil {
		return err
	}
	err = f.startTimer(ctx, s, timeout)
	if err == nil {
		err = f.install(s.New)
	}
	if err != nil {
		// It is in the report if this was the last attempt.
		s.Reason = err.Error()
		_ = f.writeState(s)
	}
	return err
}

// install puts a binary of the versions directory at the path of the agent.
func (f files) install(sum string) error {
	binary, err := f.host.Open(f.version(sum))
	if err != nil {
		return fmt.Errorf("opening the binary: %w", err)
	}
	defer binary.Close()
	if err := f.writeVerified(f.program, binary, sum); err != nil {
		return fmt.Errorf("replacing %s: %w", f.program, err)
	}
	return nil
}

// restore puts the previous binary back, unless somebody else has installed another one than that of the upgrade. One that is missing, or
// cannot be read, is replaced too: nobody would ever start this machine's agent again.
func (f files) restore(s state) error {
	if installed := f.checksumOf(f.program); installed != "" && installed != s.New {
		return nil
	}
	return f.install(s.Previous)
}

// writeVerified writes a program; one with another checksum is an error, and leaves the file as it was.
func (f files) writeVerified(path string, content io.Reader, sum string) error {
	verified := &verifiedReader{content: io.LimitReader(content, maxBinaryBytes), hash: sha256.New(), want: sum}
	return f.host.WriteStream(path, verified, hostfs.WithMode(0o755))
}

// verifiedReader fails at the end of a content with another checksum.
type verifiedReader struct {
	content io.Reader
	hash    hash.Hash
	want    string
}

func (r *verifiedReader) Read(p []byte) (int, error) {
	n, err := r.content.Read(p)
	r.hash.Write(p[:n])
	if got := hex.EncodeToString(r.hash.Sum(nil)); errors.Is(err, io.EOF) && got != r.want {
		return n, fmt.Errorf("binary has the checksum %s instead of %s", got, r.want)
	}
	return n, err
}

// checksumOf returns the checksum of a file, or empty if it cannot be read.
func (f files) checksumOf(path string) string {
	file, err := f.host.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	sum, err := checksum(file)
	if err != nil {
		return ""
	}
	return sum
}

func checksum(content io.Reader) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, content); err != nil {
		return "", fmt.Errorf("reading a binary: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// prune removes all binaries but the two of an upgrade.
func (f files) prune(s state) error {
	if f.program == "" {
		return nil
	}
	names, err := f.host.ReadDir(filepath.Join(filepath.Dir(f.program), VersionsDirectory))
	if err != nil {
		return err
	}
	for _, name := range names {
		if name != s.New && name != s.Previous {
			err = errors.Join(err, f.host.Remove(f.version(name)))
		}
	}
	return err
}

// exists reports whether there is something at a path.
func (f files) exists(path string) bool {
	_, err := f.host.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
