// Package artefact gets the files of a release from a folder or a server and reads its checksum file. It trusts nothing it
// reads: comparing a file with its checksum is left to whoever uses the bytes, so that what is checked is what is used.
package artefact

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

// ErrNotFound says that a release has no file of a name. It is wrapped in an error that names the file and the place.
var ErrNotFound = errors.New("not found")

// File is a file of a release, on this machine.
type File struct {
	// Name is its name in the release.
	Name string
	// Path is where it lies now.
	Path string
	// Size in bytes.
	Size int64
}

// Source is where the files of a release come from.
type Source interface {
	// Fetch makes a file available on this machine. Its error wraps ErrNotFound when there is no such file.
	Fetch(ctx context.Context, name string) (File, error)
	// Remote tells whether the files come over a network.
	Remote() bool
	// String names the place for messages.
	String() string
}

// Options are what a Source needs beside the place.
type Options struct {
	// TempDir receives downloads; whoever made it removes it.
	TempDir string
	// Client makes the requests; nil means one with sensible time limits.
	Client *http.Client
	// Progress reports downloads; may be nil.
	Progress *progress.Reporter
}

// Open returns the source that place names: a folder, or an https URL below which the files lie.
func Open(place string, opts Options) (Source, error) {
	switch {
	case place == "":
		return nil, errors.New("no folder or URL given")
	case strings.HasPrefix(place, "http://"):
		return nil, fmt.Errorf("%s: the checksums come from the same place, so it has to be an https URL", place)
	case strings.HasPrefix(place, "https://"):
		base, err := url.Parse(place)
		if err != nil || base.Host == "" {
			return nil, fmt.Errorf("%s is not a URL", place)
		}
		return newDownloads(base, opts), nil
	case strings.Contains(place, "://"):
		return nil, fmt.Errorf("%s: only folders and https URLs are understood", place)
	}
	info, err := os.Stat(place)
	if err != nil {
		return nil, fmt.Errorf("reading the folder of release files: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is a file: the folder that holds it is wanted", place)
	}
	return folder(place), nil
}

// Split divides a path or URL of one file into what Open and Fetch take.
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

type folder string

func (f folder) Fetch(_ context.Context, name string) (File, error) {
	path := filepath.Join(string(f), name)
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return File{}, fmt.Errorf("%s: %w in %s", name, ErrNotFound, f)
	}
	if err != nil {
		return File{}, fmt.Errorf("reading %s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return File{}, fmt.Errorf("%s is not a regular file", path)
	}
	return File{Name: name, Path: path, Size: info.Size()}, nil
}

func (f folder) Remote() bool { return false }

func (f folder) String() string { return string(f) }
