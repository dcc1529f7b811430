// Package programs keeps the programs of node drivers on disk: those that an operator has put into a directory, and those that were
// downloaded from a URL and have the expected checksum. It runs none.
package programs

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

const (
	// maxSize is the size of a download and of a program; rancher-machine has some 130 MiB.
	maxSize         = 512 << 20
	downloadTimeout = 10 * time.Minute
)

// FaultError is an error that stays until somebody changes the NodeDriver or the directory: a retry does not help.
type FaultError struct{ Message string }

func (e *FaultError) Error() string { return e.Message }

func fault(format string, args ...any) error { return &FaultError{fmt.Sprintf(format, args...)} }

// Store keeps programs.
type Store struct {
	// Dir is where builtin programs are; downloaded ones are kept in Dir/cache.
	Dir string
	// Client downloads. Default: one that follows redirects to https only.
	Client *http.Client

	// downloads are those in progress, by their URL and checksum: many machines that need a driver at once would each download it. The
	// failure of another URL says nothing of this one.
	downloads singleflight.Group
}

// downloadPrefix begins the names of files in Dir/cache that are being downloaded.
const downloadPrefix = "download-"

// NewStore returns a Store of a directory that no other process uses. It removes the downloads that a killed hub has left there, each as
// large as a driver; one that cannot be removed takes space only.
func NewStore(dir string) *Store {
	s := &Store{Dir: dir}
	if dir == "" {
		return s
	}
	left, _ := filepath.Glob(filepath.Join(dir, "cache", downloadPrefix+"*")) // its only error is that of a wrong pattern
	for _, file := range left {
		_ = os.Remove(file)
	}
	return s
}

// Program is a program on disk.
type Program struct {
	Path string
	// Checksum is the SHA-256 of the program in lower-case hex.
	Checksum string
}

// IsDownload reports whether the program of a driver is downloaded, and not one that is built in.
func IsDownload(spec *managementv3.NodeDriverSpec) bool {
	return strings.HasPrefix(spec.URL, "https://")
}

// Get returns the program of a driver from where its NodeDriver says.
func (s *Store) Get(ctx context.Context, driver string, spec *managementv3.NodeDriverSpec) (*Program, error) {
	if spec.Builtin && !IsDownload(spec) {
		return s.Builtin(driver)
	}
	return s.Download(ctx, spec.URL, spec.Checksum)
}

// Builtin returns the program of a driver from the directory. The error is a *FaultError if there is none.
func (s *Store) Builtin(driver string) (*Program, error) {
	if s.Dir == "" {
		return nil, fault("the hub has no --node-driver-dir; set it, and put docker-machine-driver-%s or rancher-machine there", driver)
	}
	for _, name := range []string{"docker-machine-driver-" + driver, "rancher-machine"} {
		path := filepath.Join(s.Dir, name)
		sum, err := checksum(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the program of the driver: %w", err)
		}
		return &Program{path, sum}, checkProgram(path)
	}
	return nil, fault("neither docker-machine-driver-%s nor rancher-machine is in the hub's --node-driver-dir %s; put one there", driver,
		s.Dir)
}

// Download returns the program at a URL, which may be an archive. sum is the SHA-256 or SHA-512 of what is downloaded, in hex. What was
// downloaded once is not downloaded again, unless a power cut has left a file without its content.
func (s *Store) Download(ctx context.Context, address, sum string) (*Program, error) {
	if s.Dir == "" {
		return nil, fault("the hub has no --node-driver-dir, in which downloaded drivers are kept; set it")
	}
	sum = strings.ToLower(sum)
	key := sha256.Sum256([]byte(sum))
	path := filepath.Join(s.Dir, "cache", hex.EncodeToString(key[:16]))
	if have := downloaded(path); have != nil {
		return have, nil
	}
	// The caller that began it may be gone before the others.
	unended := context.WithoutCancel(ctx)
	downloading := s.downloads.DoChan(address+" "+sum, func() (any, error) { return s.download(unended, address, sum, path) })
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("downloading the driver: %w", context.Cause(ctx))
	case done := <-downloading:
		if done.Err != nil {
			return nil, done.Err
		}
		return done.Val.(*Program), nil
	}
}

// downloaded is the program in a file; nil if it is not there, or none.
func downloaded(path string) *Program {
	sum, err := checksum(path)
	if err != nil || checkProgram(path) != nil {
		return nil
	}
	return &Program{path, sum}
}

// download downloads the program to a path, unless that was done meanwhile.
func (s *Store) download(ctx context.Context, address, sum, path string) (*Program, error) {
	if have := downloaded(path); have != nil {
		return have, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of drivers: %w", err)
	}
	temp, err := os.CreateTemp(filepath.Dir(path), downloadPrefix)
	if err != nil {
		return nil, fmt.Errorf("creating a file for the driver: %w", err)
	}
	defer func() {
		_ = temp.Close()           // it is read by its name, or not needed
		_ = os.Remove(temp.Name()) // it may have been renamed
	}()
	if err := s.fetch(ctx, address, sum, temp); err != nil {
		return nil, err
	}
	if err := unpack(temp.Name(), path); err != nil {
		return nil, err
	}
	have, err := checksum(path)
	return &Program{path, have}, err
}

func (s *Store) fetch(ctx context.Context, address, sum string, into io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	at, err := url.Parse(address)
	if err != nil || at.Scheme != "https" || at.Host == "" {
		return fault("spec.url is no https URL")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fault("spec.url is no URL: %v", err)
	}
	client := s.Client
	if client == nil {
		client = &http.Client{}
	}
	secure := *client
	secure.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if r.URL.Scheme != "https" || len(via) > 5 {
			return errors.New("redirected to what is no https URL, or too often")
		}
		return nil
	}
	response, err := secure.Do(request)
	if err != nil {
		return fmt.Errorf("downloading the driver: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("downloading the driver from %s: the server answers %s", at.Redacted(), response.Status)
	}
	digest := digestOf(sum)
	if digest == nil {
		return fault("spec.checksum is no SHA-256 or SHA-512 in hex")
	}
	n, err := io.Copy(io.MultiWriter(into, digest), io.LimitReader(response.Body, maxSize+1))
	if err != nil {
		return fmt.Errorf("downloading the driver: %w", err)
	}
	if n > maxSize {
		return fault("what is at spec.url is larger than %d MiB", maxSize>>20)
	}
	if have := hex.EncodeToString(digest.Sum(nil)); have != sum {
		return fault("what is at spec.url has the checksum %s, not spec.checksum %s", have, sum)
	}
	return nil
}

func digestOf(sum string) hash.Hash {
	switch len(sum) {
	case hex.EncodedLen(sha256.Size):
		return sha256.New()
	case hex.EncodedLen(sha512.Size):
		return sha512.New()
	}
	return nil
}

func checksum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}
