// Package artifact reads the files of a release from a directory or a server, and parses its checksum file. It verifies nothing: its
// callers compare a file with its checksum while they read it, so that what is verified is what is used.
package artifact

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/installer/progress"
)

// ErrNotFound is returned when a release has no file of a name. It is wrapped in an error that names the file and the source.
var ErrNotFound = errors.New("not found")

// File is a file of a release, on this machine.
type File struct {
	// Name is its name in the release.
	Name string
	// Path is its path on this machine.
	Path string
	// Size in bytes.
	Size int64
}

// Source is a place that has the files of a release.
type Source interface {
	// Fetch makes a file available on this machine. Its error wraps ErrNotFound when there is no such file.
	Fetch(ctx context.Context, name string) (File, error)
	// Remote reports whether the files come over a network.
	Remote() bool
	// String names the source in messages.
	String() string
}

// Options of a Source.
type Options struct {
	// TempDir receives downloads. The caller creates and removes it.
	TempDir string
	// Client sends the requests; the default follows redirects to https only and has timeouts.
	Client *http.Client
	// Progress reports downloads; nil reports none.
	Progress *progress.Reporter
}

// Open returns the source for a directory, or for an https URL below which the files are.
func Open(place string, opts Options) (Source, error) {
	switch {
	case place == "":
		return nil, errors.New("no directory or URL given")
	case strings.HasPrefix(place, "http://"):
		return nil, fmt.Errorf("%s: must be an https URL, since the checksums come from there too", place)
	case strings.HasPrefix(place, "https://"):
		base, err := url.Parse(place)
		if err != nil || base.Host == "" {
			return nil, fmt.Errorf("%s is not a URL", place)
		}
		return newHTTPSource(base, opts), nil
	case strings.Contains(place, "://"):
		return nil, fmt.Errorf("%s: must be a directory or an https URL", place)
	}
	info, err := os.Stat(place)
	if err != nil {
		return nil, fmt.Errorf("reading the directory of release files: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is a file: name its directory", place)
	}
	return directory(place), nil
}

// Split splits the path or URL of a file into the arguments of Open and Fetch.
func Split(place string) (dir, name string) {
	cut := strings.LastIndex(place, "/")
	if cut < 0 {
		return ".", place
	}
	if cut == 0 {
		return "/", place[1:]
	}
	return place[:cut], place[cut+1:]
}

// directory is a Source on this machine.
type directory string

func (d directory) Fetch(_ context.Context, name string) (File, error) {
	path := filepath.Join(string(d), name)
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return File{}, fmt.Errorf("%s: %w in %s", name, ErrNotFound, d)
	}
	if err != nil {
		return File{}, fmt.Errorf("reading %s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return File{}, fmt.Errorf("%s is not a regular file", path)
	}
	return File{Name: name, Path: path, Size: info.Size()}, nil
}

func (d directory) Remote() bool { return false }

func (d directory) String() string { return string(d) }
