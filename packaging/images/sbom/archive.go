package sbom

import (
	"compress/gzip"
	"errors"
	"os"
)

// Archive is an archive of programs, as tar and gzip make it, that is listed.
type Archive struct {
	// Name is that of what is in it, File the archive itself.
	Name, File string
	Subject
}

// GenerateArchive returns the document of an archive.
func GenerateArchive(a Archive) ([]byte, error) {
	itself, err := openFile("", a.File)
	if err != nil {
		return nil, err
	}
	root := newPackage(purposeArchive, a.Name, a.Version, "pkg:generic/"+a.Name+"@"+escape(a.Version)+"?arch="+a.Arch)
	root.Checksums = []checksum{{"SHA256", itself.sha256}}
	return a.generate(root, func(visit func(file)) error { return readArchive(a.File, visit) })
}

func readArchive(path string, visit func(file)) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	content, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	return readTar(content, visit)
}
