package sbom

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
)

// Package is a deb or rpm package that is listed.
type Package struct {
	// Name is that of the package, Release its version as its format writes it, URL its package URL.
	Name, Release, URL string
	// File is the package itself, Files its regular files: paths from the root of the machine, and where they were packaged from.
	File  string
	Files map[string]string
	Subject
}

// GeneratePackage returns the document of a package.
func GeneratePackage(p Package) ([]byte, error) {
	itself, err := openFile("", p.File)
	if err != nil {
		return nil, err
	}
	root := newPackage(purposeInstall, p.Name, p.Release, p.URL)
	root.Checksums = []checksum{{"SHA256", itself.sha256}}
	return p.generate(root, func(visit func(file)) error {
		for _, path := range slices.Sorted(maps.Keys(p.Files)) {
			f, err := openFile(strings.TrimPrefix(path, "/"), p.Files[path])
			if err != nil {
				return err
			}
			visit(f)
		}
		return nil
	})
}

// openFile reads a file of this machine, which has another path in the package.
func openFile(path, source string) (_ file, err error) {
	in, err := os.Open(source)
	if err != nil {
		return file{}, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	return readFile(path, in)
}
