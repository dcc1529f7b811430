package programs

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

const prefix = "docker-machine-driver-"

// unpack writes the program in a downloaded file to a path: the file itself, or the one of an archive that is named as drivers are.
func unpack(from, to string) error {
	head, err := readHead(from)
	if err != nil {
		return err
	}
	temp := from + ".program"
	defer func() { _ = os.Remove(temp) }() // it may have been renamed
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		err = unpackTar(from, temp)
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		err = unpackZip(from, temp)
	default:
		err = os.Link(from, temp)
	}
	if err != nil {
		return err
	}
	if err := checkProgram(temp); err != nil {
		return err
	}
	if err := os.Chmod(temp, 0o700); err != nil { //nolint:gosec
		return err
	}
	// A file that has the name is used from then on: its content must not be lost in a power cut.
	if err := syncPath(temp); err != nil {
		return err
	}
	if err := os.Rename(temp, to); err != nil {
		return err
	}
	return syncPath(path.Dir(to))
}

// syncPath writes a file or a directory to the disk.
func syncPath(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func readHead(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, 4)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return head[:n], nil
}

// checkProgram refuses what is no program for Linux.
func checkProgram(name string) error {
	head, err := readHead(name)
	if err != nil {
		return err
	}
	if string(head) != "\x7fELF" {
		return fault("the driver is no program for Linux: spec.url must lead to such a program, or to a .tar.gz or .zip with a file %s<name>",
			prefix)
	}
	return nil
}

// IsDynamic reports whether a program needs a dynamic linker.
func IsDynamic(name string) bool {
	program, err := elf.Open(name)
	if err != nil {
		return false
	}
	defer program.Close()
	return slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

func unpackTar(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		return fault("the archive of the driver is not readable: %v", err)
	}
	archive := tar.NewReader(io.LimitReader(plain, 2*maxSize))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return errNone()
		}
		if err != nil {
			return fault("the archive of the driver is not readable: %v", err)
		}
		if header.Typeflag == tar.TypeReg && isDriver(header.Name) {
			return writeProgram(to, archive)
		}
	}
}

func unpackZip(from, to string) error {
	archive, err := zip.OpenReader(from)
	if err != nil {
		return fault("the archive of the driver is not readable: %v", err)
	}
	defer archive.Close()
	for _, entry := range archive.File {
		if !entry.Mode().IsRegular() || !isDriver(entry.Name) {
			continue
		}
		content, err := entry.Open()
		if err != nil {
			return fault("the archive of the driver is not readable: %v", err)
		}
		return errors.Join(writeProgram(to, content), content.Close())
	}
	return errNone()
}

func isDriver(name string) bool { return strings.HasPrefix(path.Base(name), prefix) }

func errNone() error {
	return fault("the archive of the driver has no file whose name begins with %s", prefix)
}

func writeProgram(to string, content io.Reader) error {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700) //nolint:gosec
	if err != nil {
		return fmt.Errorf("creating a file for the driver: %w", err)
	}
	n, err := io.Copy(f, io.LimitReader(content, maxSize+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return fault("the archive of the driver is not readable: %v", err)
	}
	if n > maxSize {
		return fault("the program in the archive is larger than %d MiB", maxSize>>20)
	}
	return nil
}
