// Package build makes the deb and rpm packages of Drover from binaries that are already built. It compiles nothing; the go command finds
// the licenses of what the binaries contain, see package notices. The same input gives the same bytes, on any machine and in any directory.
package build

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format

	"github.com/drover-dev/drover/packaging/notices"
)

// The names of the formats.
const (
	Deb = "deb"
	RPM = "rpm"
)

// Arches are the architectures that packages are made for, as Go names them.
var Arches = []string{"amd64", "arm64"}

// Names are the packages. There is no package of a command line alone: the hub's binary is that of operators, too.
var Names = []string{agentName, hubName}

// Options say what is packaged. All fields are required.
type Options struct {
	// Names is a subset of Names.
	Names []string
	// Version is the version of the release: semantic, or as `git describe` prints it, see ParseVersion.
	Version string
	// Source is the root of the repository; its manual pages and license are packaged.
	Source string
	// Bin is the directory of the binaries: assets/system-agent-<arch> and linux-<arch>/hub, as `make cross` lays it out. Those of this
	// machine's architecture are run for the completions of shells.
	Bin string
	// Arches is a subset of the architectures in Arches.
	Arches []string
	// Time is that of every file in the packages and of the changelog.
	Time time.Time
	// Out is the directory of the packages. It is created.
	Out string
}

// Packages writes all packages and returns their paths. Beside each is its software bill of materials, see DocumentSuffix.
func Packages(o Options) ([]string, error) {
	version, err := o.validate()
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "drover-packages-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return nil, err
	}
	var written []string
	var collector notices.Collector
	for _, name := range o.Names {
		for _, arch := range o.Arches {
			for _, format := range []string{Deb, RPM} {
				dir, err := os.MkdirTemp(work, "stage-")
				if err != nil {
					return nil, err
				}
				s := &stage{Options: o, version: version, arch: arch, format: format, dir: dir, collector: &collector}
				path, err := s.write(name)
				if err != nil {
					return nil, fmt.Errorf("package %s for %s as %s: %w", name, arch, format, err)
				}
				written = append(written, path)
			}
		}
	}
	return written, nil
}

// validate returns the version, or an error that names each invalid option.
func (o Options) validate() (Version, error) {
	version, err := ParseVersion(o.Version)
	errs := []error{err}
	errs = append(errs, subset("packages", o.Names, Names), subset("architectures", o.Arches, Arches))
	if o.Time.Unix() <= 0 {
		errs = append(errs, errors.New("time: must be after 1970, for example that of the commit"))
	}
	for _, dir := range []struct{ field, path, contains, hint string }{
		{"source", o.Source, "packaging/man", "the root of the repository"},
		{"bin", o.Bin, "assets", "the directory that `make cross` builds"},
	} {
		if _, err := os.Stat(filepath.Join(dir.path, dir.contains)); err != nil {
			errs = append(errs, fmt.Errorf("%s: must be %s: %w", dir.field, dir.hint, err))
		}
	}
	if o.Out == "" {
		errs = append(errs, errors.New("out: must be the directory to write packages to"))
	}
	return version, errors.Join(errs...)
}

// subset returns an error unless values is a subset of known that has one at least.
func subset(field string, values, known []string) error {
	list := strings.Join(known, ", ")
	if len(values) == 0 {
		return errors.New(field + ": must name at least one of " + list)
	}
	for i, value := range values {
		switch {
		case !slices.Contains(known, value):
			return fmt.Errorf("%s: must be of %s, got %q", field, list, value)
		case slices.Contains(values[:i], value):
			return fmt.Errorf("%s: %s is listed twice", field, value)
		}
	}
	return nil
}

// write makes the package and writes it. A file of its name is replaced only by a complete one.
func (s *stage) write(name string) (string, error) {
	collect := map[string]func(*stage) (*nfpm.Info, error){agentName: agentPackage, hubName: hubPackage}[name]
	info, err := collect(s)
	if err != nil {
		return "", err
	}
	packager, err := nfpm.Get(s.format)
	if err != nil {
		return "", err
	}
	if err := info.Validate(); err != nil {
		return "", err
	}
	path := filepath.Join(s.Out, packager.ConventionalFileName(info))
	f, err := os.CreateTemp(s.Out, ".package-")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	err = packager.Package(info, f)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return "", err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return "", err
	}
	return path, s.writeDocument(info, path)
}
