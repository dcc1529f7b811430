package build

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"

	"github.com/drover-dev/drover/packaging/notices"
)

// release counts packages of one version, for changes of the package alone.
const release = "1"

// stage collects what one package contains.
type stage struct {
	Options
	version Version
	// arch and format are those of the package.
	arch, format string
	// dir holds generated files until the package is written.
	dir      string
	contents files.Contents
	// programs are the paths of the binaries in the package.
	programs  []string
	collector *notices.Collector
}

// add adds a file of type typ; "" is a regular file.
func (s *stage) add(to, typ string, mode fs.FileMode, text []byte) error {
	path := filepath.Join(s.dir, fmt.Sprint(len(s.contents)))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	s.addPath(to, typ, mode, path)
	return nil
}

// addPath adds a file that is on disk.
func (s *stage) addPath(to, typ string, mode fs.FileMode, path string) {
	s.contents = append(s.contents, &files.Content{Source: path, Destination: to, Type: typ,
		FileInfo: &files.ContentFileInfo{Mode: mode, MTime: s.Time, Owner: "root", Group: "root"}})
}

func (s *stage) link(to, target string) {
	s.contents = append(s.contents, &files.Content{Source: target, Destination: to, Type: files.TypeSymlink,
		FileInfo: &files.ContentFileInfo{MTime: s.Time, Owner: "root", Group: "root"}})
}

func (s *stage) directory(to string, mode fs.FileMode) { s.addPath(to, files.TypeDir, mode, "") }

// embedded adds a file of this package.
func (s *stage) embedded(to, typ, name string) error {
	text, err := embedded.ReadFile("files/" + name)
	if err != nil {
		return err
	}
	return s.add(to, typ, 0o644, text)
}

// environment adds the file of a service's environment, where the format has it.
func (s *stage) environment(service, name string) error {
	dir := map[string]string{Deb: "/etc/default/", RPM: "/etc/sysconfig/"}[s.format]
	return s.embedded(dir+service, files.TypeConfigNoReplace, name)
}

// manPages adds the manual pages whose names begin with prefix.
func (s *stage) manPages(prefix string) error {
	pages, err := filepath.Glob(filepath.Join(s.Source, "packaging/man", prefix+"*.1"))
	if err != nil {
		return err
	}
	if len(pages) == 0 {
		return fmt.Errorf("source: %s has no packaging/man/%s*.1", s.Source, prefix)
	}
	slices.Sort(pages)
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		if err := s.addCompressed("/usr/share/man/man1/"+filepath.Base(page)+".gz", raw); err != nil {
			return err
		}
	}
	return nil
}

// addCompressed adds a file that gzip compresses, without name and time.
func (s *stage) addCompressed(to string, raw []byte) error {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(raw); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return s.add(to, "", 0o644, out.Bytes())
}

// info is what all packages have in common.
func (s *stage) info(name, description string) (*nfpm.Info, error) {
	if err := s.documents(name); err != nil {
		return nil, err
	}
	info := &nfpm.Info{
		Name: name, Arch: s.arch, Platform: "linux", Section: "admin", Priority: "optional", Maintainer: maintainer, Vendor: "Drover",
		Homepage: homepage, License: "Apache-2.0", Description: description, MTime: s.Time, DisableGlobbing: true,
		Version: s.version.Number, Prerelease: s.version.Prerelease, VersionMetadata: s.version.Metadata, Release: release,
	}
	if s.format == RPM {
		// The default is the name of this machine.
		info.RPM.BuildHost = "localhost"
		info.RPM.Group = "System Environment/Daemons"
	}
	info.Contents = s.contents
	return info, nil
}

// packageVersion is the version in the format's own notation.
func (s *stage) packageVersion() string {
	return strings.Join([]string{s.version.String(), release}, "-")
}
