package sbom

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// file is a regular file of an image, a package or an archive.
type file struct {
	// path without a leading slash.
	path   string
	sha256 string
	// info is nil for what is not a Go program.
	info *debug.BuildInfo
}

// readImage calls visit for every file of an image, in the order of their paths.
func readImage(image v1.Image, visit func(file)) error {
	in := mutate.Extract(image)
	defer func() { _ = in.Close() }()
	return readTar(in, visit)
}

// readTar calls visit for every file of an archive, in the order of their paths.
func readTar(in io.Reader, visit func(file)) error {
	var files []file
	for archive := tar.NewReader(in); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		f, err := readFile(header.Name, archive)
		if err != nil {
			return fmt.Errorf("reading %s: %w", header.Name, err)
		}
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	for _, f := range files {
		visit(f)
	}
	return nil
}

// elfMagic is how programs for Linux begin.
var elfMagic = []byte("\x7fELF")

// readFile reads a file. Programs are read through a temporary file, since their build information can be anywhere.
func readFile(path string, in io.Reader) (_ file, err error) {
	sum := sha256.New()
	f := file{path: path}
	in = io.TeeReader(in, sum)
	begin := make([]byte, len(elfMagic))
	n, err := io.ReadFull(in, begin)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return f, err
	}
	if !bytes.Equal(begin[:n], elfMagic) {
		if _, err := io.Copy(io.Discard, in); err != nil {
			return f, err
		}
		f.sha256 = hex.EncodeToString(sum.Sum(nil))
		return f, nil
	}
	program, err := os.CreateTemp("", "sbom-")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, program.Close(), os.Remove(program.Name())) }()
	if _, err := io.Copy(program, io.MultiReader(bytes.NewReader(begin), in)); err != nil {
		return f, err
	}
	f.sha256 = hex.EncodeToString(sum.Sum(nil))
	// A program of another language is listed as a file.
	f.info, _ = buildinfo.Read(program)
	return f, nil
}

// modules returns the modules that a program was built from, and Go's own library.
func modules(info *debug.BuildInfo) []pkg {
	// Experiments follow the version after a space.
	goVersion, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ")
	library := newPackage(purposeLibrary, "stdlib", info.GoVersion, goURL("stdlib", goVersion))
	library.LicenseDeclared = "BSD-3-Clause"
	found := []pkg{library}
	for _, m := range info.Deps {
		used := Used(m)
		p := newPackage(purposeLibrary, used.Path, used.Version, goURL(used.Path, used.Version))
		if used.Sum != "" {
			p.SourceInfo = "go.sum: " + used.Sum
		}
		found = append(found, p)
	}
	return found
}

// Used returns the module whose code is compiled into a program that depends on m: m, or the module that replaces it.
func Used(m *debug.Module) *debug.Module {
	// A directory has no version of its own.
	if m.Replace != nil && m.Replace.Version != "" && m.Replace.Version != "(devel)" {
		return m.Replace
	}
	return m
}

// described are the settings of a build that decide what a program does.
var described = []string{"-tags", "CGO_ENABLED", "GOOS", "GOARCH", "vcs.revision", "vcs.modified"}

func describe(info *debug.BuildInfo) string {
	var b strings.Builder
	for _, setting := range info.Settings {
		if slices.Contains(described, setting.Key) {
			b.WriteString(", " + setting.Key + "=" + setting.Value)
		}
	}
	return b.String()
}
